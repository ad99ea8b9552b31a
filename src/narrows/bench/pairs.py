"""Ours beside a peer: pairs of sides timed in turn, or the memory of each in a process of its own."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any, Literal, NamedTuple, Protocol

from narrows.bench.probes import in_own_process, in_turn, peak_above, ratio
from narrows.bench.rows import Context, Measurement

__all__ = ["ALLOCATOR", "Pair", "Side", "compare_memory", "compare_times", "needs_memory", "peak_of", "sides_of"]

_MIB = 2**20
# The GNU C library keeps many freed blocks for later. Told to give back those of 1 MiB and more at once, it makes a
# peak the memory that is in use, for ours and for the peers.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(_MIB), "MALLOC_TRIM_THRESHOLD_": str(_MIB)}


class Side(Protocol):
    """One side of a comparison: a model and what it does, as a named tuple of what goes through JSON.

    Attributes:
        label: all that tells it from another, for the results.
        gigabytes: about what it takes above its weights.
        needs: what its model depends on; equal for sides that share one.
        warm_up: the same with so little to do that it leaves no buffers behind.
    """

    @property
    def label(self) -> str: ...
    @property
    def gigabytes(self) -> float: ...
    @property
    def needs(self) -> Any: ...
    @property
    def warm_up(self) -> "Side": ...
    def build(self) -> Any:
        """Its model."""

    def task(self, model: Any) -> Callable[[], object]:
        """A function that does its work once."""
        ...

    def _asdict(self) -> dict[str, Any]: ...


class Pair(NamedTuple):
    """What a row compares.

    Attributes:
        row: its name.
        value: `speed`: how many times faster ours is; `share`: ours by the peer's, of seconds or of bytes.
        ours: one side.
        peer: the other one; None: the value is that of `ours` alone, in seconds or MiB.
        arithmetic: what counting operations predicts for the value.
    """

    row: str
    value: Literal["speed", "share"]
    ours: Any
    peer: Any = None
    arithmetic: float | None = None


def sides_of(pairs: Iterable[Pair]) -> list[Any]:
    """Every side once, in their order."""
    return list(dict.fromkeys(side for pair in pairs for side in (pair.ours, pair.peer) if side is not None))


def compare_times(context: Context, *, pairs: Sequence[Pair], rounds: int) -> dict[str, Measurement]:
    """Run all sides in turn; a value is the median over the rounds."""
    models: dict[Any, Any] = {}
    contenders = {}
    for side in sides_of(pairs):
        models[side.needs] = models.get(side.needs) or side.build()
        contenders[side.label] = side.task(models[side.needs])
    times = in_turn(contenders, rounds=context.rounds or rounds, seconds=context.seconds)
    return {pair.row: _compared(pair, times) for pair in pairs}


def _compared(pair: Pair, times: Mapping[str, Sequence[float]]) -> Measurement:
    ours = times[pair.ours.label]
    detail: dict[str, Any] = {"rounds": len(ours), "seconds": {pair.ours.label: statistics.median(ours)}}
    if pair.peer is None:
        return Measurement(value=statistics.median(ours), spread=(min(ours), max(ours)), detail=detail)
    peer = times[pair.peer.label]
    detail["seconds"][pair.peer.label] = statistics.median(peer)
    found = ratio(peer, ours) if pair.value == "speed" else ratio(ours, peer)
    return Measurement(value=found.median, spread=(found.low, found.high), arithmetic=pair.arithmetic, detail=detail)


def compare_memory(context: Context, *, pairs: Sequence[Pair]) -> dict[str, Measurement]:
    """Take the peak of every side, each in a process of its own."""
    peaks = {
        side.label: in_own_process(
            f"{__name__}:peak_of", environment=ALLOCATOR, kind=_name_of(type(side)), **side._asdict()
        )
        for side in sides_of(pairs)
    }
    found = {}
    for pair in pairs:
        ours = peaks[pair.ours.label]
        detail = {"mib": {pair.ours.label: round(ours / _MIB, 1)}}
        value = ours / _MIB
        if pair.peer is not None:
            peer = peaks[pair.peer.label]
            detail["mib"][pair.peer.label] = round(peer / _MIB, 1)
            value = ours / peer
        found[pair.row] = Measurement(value=value, detail=detail)
    return found


def _name_of(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def peak_of(*, kind: str, **fields: Any) -> int:
    """Bytes above the loaded model while a side does its work.

    Args:
        kind: `module:class` of the side.
        fields: of the side.
    """
    module, _, name = kind.partition(":")
    side: Side = getattr(import_module(module), name)(**fields)
    model = side.build()
    side.warm_up.task(model)()
    return peak_above(side.task(model))


def needs_memory(context: Context, *, pairs: Sequence[Pair]) -> str | None:
    """What is missing where the largest side would not fit into the memory that is free."""
    import psutil

    needed = max(side.gigabytes for side in sides_of(pairs))
    free = psutil.virtual_memory().available / 1e9
    return None if free >= needed else f"needs about {needed:.0f} GB of free memory, got {free:.1f}"
