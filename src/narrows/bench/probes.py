"""Times and memory: contenders in turn, ratios pair by pair; peaks in a process of their own."""

import gc
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from narrows.errors import NarrowsError

__all__ = ["Ratio", "fastest", "in_own_process", "in_turn", "peak_above", "ratio", "resident_bytes"]


class Ratio(NamedTuple):
    """Median of pairwise ratios, and the lowest and highest of them."""

    median: float
    low: float
    high: float


def in_turn(
    contenders: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    warm_up: int = 1,
    seconds: float | None = None,
) -> dict[str, list[float]]:
    """Seconds of every contender in every round, run one after the other: A B C, A B C, …

    What disturbs the machine for longer than a round disturbs all of them alike.

    Args:
        contenders: by name.
        rounds: measured rounds.
        warm_up: rounds before, not measured.
        seconds: stop before a round that would not end in this time; at least one is measured.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    began = time.perf_counter()
    for number in range(-warm_up, rounds):
        round_began = time.perf_counter()
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            if number >= 0:
                times[name].append(time.perf_counter() - start)
        now = time.perf_counter()
        if seconds is not None and number >= 0 and now - began + (now - round_began) > seconds:
            break
    return times


def ratio(peer: Sequence[float], ours: Sequence[float]) -> Ratio:
    """How many times the peer's seconds are ours, round by round.

    Example:
        >>> ratio([4.0, 6.0, 9.0], [2.0, 2.0, 3.0])
        Ratio(median=3.0, low=2.0, high=3.0)
    """
    ratios = [theirs / own for theirs, own in zip(peer, ours, strict=True)]
    return Ratio(statistics.median(ratios), min(ratios), max(ratios))


def fastest(times: Mapping[str, Sequence[float]], names: Sequence[str]) -> str:
    """The contender with the lowest median."""
    return min(names, key=lambda name: statistics.median(times[name]))


def in_own_process(function: str, *, environment: Mapping[str, str] | None = None, **arguments: Any) -> Any:
    """Call `module:function` with these arguments in a fresh Python process; both ways as JSON.

    Args:
        function: what to call.
        environment: variables beside those of this process.
        arguments: of the function.

    Raises:
        NarrowsError: the process failed; the sentence holds its last line.
    """
    command = [sys.executable, "-m", "narrows.bench.probes", function, json.dumps(arguments)]
    variables = {**os.environ, **(environment or {})}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise NarrowsError(
            f"expected {function} to end in a process of its own, got exit code {done.returncode} ({last}); "
            "free memory and run it again"
        )
    return json.loads(done.stdout.strip().splitlines()[-1])


def resident_bytes() -> int:
    """Bytes of this process in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_above(work: Callable[[], object]) -> int:
    """How far this process's memory rises above what it holds now while `work` runs, in bytes."""
    gc.collect()
    # 5 sets the high-water mark back to what is resident now.
    Path("/proc/self/clear_refs").write_text("5")
    before = resident_bytes()
    work()
    status = Path("/proc/self/status").read_text()
    peak = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))
    return max(0, peak - before)


def _serve(function: str, arguments: str) -> None:
    module, _, name = function.partition(":")
    answer = getattr(importlib.import_module(module), name)(**json.loads(arguments))
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    _serve(*sys.argv[1:])
