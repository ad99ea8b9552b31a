"""Memory and start-up rows: each reading in a process of its own, weights apart."""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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


def question_rows(context: Context, *, size_name: str, split_layer: int, work: Workload) -> dict[str, Measurement]:
    """Peak memory of a question over stored passages beside the joint model's, above loaded weights."""
    with tempfile.TemporaryDirectory() as folder:
        ours = {"folder": f"{folder}/store", "size_name": size_name, "split_layer": split_layer}
        # Written by another process, so that what encoding took is not in the reading.
        rows = in_own_process(f"{__name__}:prepare_store", **ours, **work._asdict())
        peak = in_own_process(f"{__name__}:peak_of_stored", rows=rows, **ours, **work._asdict())
    joint = {
        batch: in_own_process(f"{__name__}:peak_of_joint", size_name=size_name, batch=batch, **work._asdict())
        for batch in (1, work.passages)
    }
    return {
        f"memory-question{suffix}": Measurement(
            value=peak / joint[batch],
            detail={"peer": f"joint/float32/batch {batch}", "mib": [peak / _MIB, joint[batch] / _MIB]},
        )
        for suffix, batch in (("", work.passages), ("-batch1", 1))
    }


def prepare_store(*, folder: str, size_name: str, split_layer: int, **work: int) -> list[int]:
    """Write the passages' store; its row ids."""
    return write_store(split_engine(SIZES[size_name], split_layer), Workload(**work), Path(folder))


def peak_of_stored(*, folder: str, rows: list[int], size_name: str, split_layer: int, **work: int) -> int:
    """Bytes above weights while a question is read over the store."""
    engine = split_engine(SIZES[size_name], split_layer)
    with Store.open(folder, expect=engine.fingerprint("int8")) as store:
        one = Workload(**{**work, "passages": 1})
        stored_reading(engine, one, store, rows[:1])()
        return peak_above(stored_reading(engine, Workload(**work), store, rows))


def peak_of_joint(*, size_name: str, batch: int, **work: int) -> int:
    """Bytes above weights while the joint model reads the same."""
    model = joint_model(SIZES[size_name])
    joint_contenders(model, Workload(**{**work, "passages": 1}), [1])[1]()
    return peak_above(joint_contenders(model, Workload(**work), [batch])[batch])


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
