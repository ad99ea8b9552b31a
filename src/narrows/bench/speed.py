"""Speed rows of DeFormer: one question over stored passages beside transformers' joint model, in turn."""

import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from narrows.bench import cost
from narrows.bench.probes import fastest, in_turn, ratio
from narrows.bench.rows import Context, Measurement
from narrows.bench.workload import (
    SIZES,
    Workload,
    bare_reading,
    joint_contenders,
    joint_model,
    split_engine,
    stored_reading,
    write_store,
)
from narrows.store import Store

__all__ = ["PRECISIONS", "Contest", "hold_contest", "speed_rows"]

PRECISIONS = ("float32", "bfloat16", "int8")


class Contest(NamedTuple):
    """Seconds by contender: `joint/PRECISION/BATCH`, `store/kK/PRECISION`, `bare/kK`; and what they read."""

    times: Mapping[str, Sequence[float]]
    work: Workload
    size: cost.EncoderSize

    def joint(self, precision: str = "float32") -> str:
        """The faster batch size of the joint model."""
        return fastest(self.times, [name for name in self.times if name.startswith(f"joint/{precision}/")])

    def compare(self, ours: str, peer: str, *, split_layer: int) -> Measurement:
        """How many times faster ours is than a peer."""
        found = ratio(self.times[peer], self.times[ours])
        saved = cost.saving(self.size, split_layer=split_layer, **self.work._asdict())
        return Measurement(
            value=found.median,
            spread=(found.low, found.high),
            arithmetic=saved,
            detail={
                "peer": peer,
                "rounds": len(self.times[ours]),
                "seconds": {name: statistics.median(self.times[name]) for name in (ours, peer)},
            },
        )


def hold_contest(
    size_name: str,
    context: Context,
    *,
    splits: Sequence[int],
    rounds: int,
    work: Workload | None = None,
    precisions: Sequence[str] = ("float32",),
) -> Contest:
    """Time the joint model (batch 1 and all passages) and ours (from a store, and bare) in turn.

    Args:
        size_name: of `SIZES`.
        context: repeats and time.
        splits: k of ours, each a contender.
        rounds: measured rounds, when the context does not say.
        work: lengths and passages.
        precisions: of the joint model and of our upper layers.
    """
    size, work = SIZES[size_name], work or Workload()
    contenders: dict[str, Callable[[], object]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for precision in precisions:
            joint = joint_contenders(joint_model(size, precision), work, sorted({1, work.passages}))
            contenders |= {f"joint/{precision}/batch {batch}": read for batch, read in joint.items()}
            for k in splits:
                engine = split_engine(size, k, precision)
                place = folder / f"{precision}-{k}"
                rows = write_store(engine, work, place)
                store = stack.enter_context(Store.open(place, expect=engine.fingerprint("int8")))
                contenders[f"store/k{k}/{precision}"] = stored_reading(engine, work, store, rows)
                if precision == "float32":
                    contenders[f"bare/k{k}"] = bare_reading(engine, work)
        times = in_turn(contenders, rounds=context.rounds or rounds, seconds=context.seconds)
    return Contest(times, work, size)


def speed_rows(
    size_name: str,
    splits: Sequence[int],
    context: Context,
    *,
    rounds: int,
    work: Workload | None = None,
    precisions: Sequence[str] = ("float32",),
) -> dict[str, Measurement]:
    """Measurements of a size, by row name (see `narrows.bench.deformer`)."""
    contest = hold_contest(size_name, context, splits=splits, rounds=rounds, work=work, precisions=precisions)
    joints = [name for name in contest.times if name.startswith("joint/float32/")]
    found: dict[str, Measurement] = {}
    for k in splits:
        row, ours = f"{size_name}-k{k}", f"store/k{k}/float32"
        found[row] = contest.compare(ours, contest.joint(), split_layer=k)
        found[f"{row}-batch1"] = contest.compare(ours, joints[0], split_layer=k)
        found[f"{row}-batch32"] = contest.compare(ours, joints[-1], split_layer=k)
        found[f"{row}-bare"] = contest.compare(f"bare/k{k}", contest.joint(), split_layer=k)
        for precision in set(precisions) - {"float32"}:
            ours = f"store/k{k}/{precision}"
            found[f"{row}-{precision}"] = contest.compare(ours, contest.joint(precision), split_layer=k)
            found[f"{row}-{precision}-to-fp32"] = contest.compare(ours, contest.joint(), split_layer=k)
    return found


def fastest_within(context: Context, *, rounds: int, split_layer: int, allowed: float = 1.0) -> Measurement:
    """The fastest precision of the shipped student whose F1 is within `allowed` of the fp32 teacher's.

    The F1s are those of the quality rows; the times are taken here, at the student's own split.
    """
    f1 = {
        precision: context.known.get("f1-student" if precision == "float32" else f"f1-student-{precision}")
        for precision in PRECISIONS
    }
    teacher = context.known.get("f1-teacher")
    near = [
        precision
        for precision, score in f1.items()
        if teacher is not None and score is not None and score >= teacher - allowed
    ]
    if not near:
        scores = ", ".join(f"{name} {score}" for name, score in f1.items())
        note = f"no precision within {allowed} F1 of the teacher ({teacher}; {scores})"
        return Measurement(value=None, detail={"note": note})
    contest = hold_contest("minilm", context, splits=(split_layer,), rounds=rounds, precisions=PRECISIONS)
    ours = fastest(contest.times, [f"store/k{split_layer}/{precision}" for precision in near])
    return contest.compare(ours, contest.joint(), split_layer=split_layer)
