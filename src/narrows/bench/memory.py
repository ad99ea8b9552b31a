"""Memory and start-up rows: each reading in a process of its own, weights apart."""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from narrows.bench.probes import in_own_process, in_turn, peak_above, resident_bytes
from narrows.bench.rows import Context, Measurement
from narrows.bench.workload import (
    SIZES,
    Workload,
    joint_contenders,
    joint_model,
    split_engine,
    stored_reading,
    write_store,
)
from narrows.store import Store

__all__ = ["help_rows", "indexing_rows", "question_rows"]

_MIB = 2**20
# Tokens a batch, the default of `narrows ask`.
_BUDGET = 8192


def question_rows(context: Context, *, size_name: str, split_layer: int, work: Workload) -> dict[str, Measurement]:
    """Peak memory of a question over stored passages beside the joint model's, above loaded weights.

    The joint model reads all passages at once, ours as it does by default, in batches of its token budget; in
    `-batch1` both read them one at a time.
    """
    with tempfile.TemporaryDirectory() as folder:
        shared: dict[str, Any] = {"size_name": size_name, **work._asdict()}
        ours = {"folder": f"{folder}/store", "split_layer": split_layer, **shared}
        # Written by another process, so that what encoding took is not in the reading.
        rows = in_own_process(f"{__name__}:prepare_store", **ours)
        found = {}
        for suffix, batch in (("", work.passages), ("-batch1", 1)):
            peak = in_own_process(f"{__name__}:peak_of_stored", rows=rows, batch=batch, **ours)
            joint = in_own_process(f"{__name__}:peak_of_joint", batch=batch, **shared)
            found[f"memory-question{suffix}"] = Measurement(
                value=peak / joint,
                detail={"peer": f"joint/float32/batch {batch}", "mib": [peak / _MIB, joint / _MIB]},
            )
    return found


def prepare_store(*, folder: str, size_name: str, split_layer: int, **work: int) -> list[int]:
    """Write the passages' store; its row ids."""
    return write_store(split_engine(SIZES[size_name], split_layer), Workload(**work), Path(folder))


def peak_of_stored(*, folder: str, rows: list[int], size_name: str, split_layer: int, batch: int, **work: int) -> int:
    """Bytes above weights while a question is read over the store, `batch` passages at once."""
    asked = Workload(**work)
    budget = min(_BUDGET, batch * (asked.question + asked.passage))
    engine = split_engine(SIZES[size_name], split_layer, batch_tokens=budget)
    with Store.open(folder, expect=engine.fingerprint("int8")) as store:
        stored_reading(engine, _small(asked), store, rows[:1])()
        return peak_above(stored_reading(engine, asked, store, rows))


def peak_of_joint(*, size_name: str, batch: int, **work: int) -> int:
    """Bytes above weights while the joint model reads the same."""
    asked, model = Workload(**work), joint_model(SIZES[size_name])
    joint_contenders(model, _small(asked), [1])[1]()
    return peak_above(joint_contenders(model, asked, [batch])[batch])


def _small(work: Workload) -> Workload:
    """What a model is warmed up with: so short that it leaves no buffers of the size to be measured."""
    return work._replace(passage=8, passages=1)


def indexing_rows(
    context: Context, *, size_name: str, split_layer: int, passages: int, tokens: int
) -> dict[str, Measurement]:
    """Memory over the course of an indexing run, and its rate."""
    samples, seconds = in_own_process(
        f"{__name__}:index_many",
        size_name=size_name,
        split_layer=split_layer,
        passages=passages,
        tokens=tokens,
    )
    tenth = max(1, len(samples) // 10)
    first, last = statistics.mean(samples[:tenth]), statistics.mean(samples[-tenth:])
    return {
        "memory-indexing": Measurement(
            value=last / first,
            detail={"mib": [round(sample / _MIB, 1) for sample in samples], "peer": "first tenth of the run"},
        ),
        "indexing-rate": Measurement(value=passages / seconds, detail={"seconds": seconds}),
    }


def index_many(*, size_name: str, split_layer: int, passages: int, tokens: int) -> tuple[list[int], float]:
    """Index synthetic passages; resident bytes after each hundredth of them, and the seconds it took."""
    from narrows.serving.indexing import IndexProgress, index_folder

    engine = split_engine(SIZES[size_name], split_layer)
    samples: list[int] = []

    def sample(progress: IndexProgress) -> None:
        while len(samples) < 100 * progress.passages // passages:
            samples.append(resident_bytes())

    with tempfile.TemporaryDirectory() as folder:
        documents = Path(folder) / "documents"
        documents.mkdir()
        with open(documents / "passages.jsonl", "w", encoding="utf-8") as file:
            for index in range(passages):
                words = " ".join(f"w{(index * 31 + place) % 30000}" for place in range(tokens - 1))
                file.write(json.dumps({"id": str(index), "text": words}) + "\n")
        began = time.perf_counter()
        index_folder(documents, Path(folder) / "store", engine, on_progress=sample)
        return samples, time.perf_counter() - began


def help_rows(context: Context, *, rounds: int) -> dict[str, Measurement]:
    """Seconds from starting `narrows --help` to its end."""
    command = [sys.executable, "-m", "narrows.cli.main", "--help"]
    times = in_turn(
        {"help": lambda: subprocess.run(command, capture_output=True, check=True)},
        rounds=context.rounds or rounds,
    )["help"]
    return {"help": Measurement(value=statistics.median(times), spread=(min(times), max(times)))}
