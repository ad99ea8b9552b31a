"""The rows of bottleneck attention: what is measured, beside which peer, and the bar each has to reach."""

from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, NamedTuple

from narrows.bench.bottleneck_gate import BOTTLENECK
from narrows.bench.bottleneck_models import BottleneckSide, macs
from narrows.bench.bottleneck_numbers import decoding_rows, fast_path_rows, kept_rows, latency_rows
from narrows.bench.pairs import Pair, compare_times, needs_memory, sides_of
from narrows.bench.rows import Context, Group, Row

__all__ = ["CHECKS", "groups"]

CHECKS = BOTTLENECK

_LAYER = (
    "bottleneck/attention.py",
    "bottleneck/config.py",
    "bottleneck/layers.py",
    "bottleneck/presets.py",
    "bottleneck/reach.py",
    "bottleneck/rotary.py",
    "bottleneck/rows.py",
)
_MODEL = (*_LAYER, "bottleneck/model.py", "core/compact.py")
_DECODING = (*_MODEL, "bottleneck/cache.py", "bottleneck/generation.py")
# What memory is kept depends on how it is counted, too.
_KEPT = (*_LAYER, "bench/bottleneck_numbers.py")

_LENGTH = 2048
_FULL, _TORCH = "the full layer, sdpa", "by hand, torch's sdpa"
_FULL_BLOCK, _FULL_MODEL = "the full block, sdpa", "the full model, sdpa"
_SHORT = (128, 256, 512, 1024, 2048, 4096)
_LONG = (8192, 16_384)

_narrow = partial(BottleneckSide, "narrows")
_full = partial(BottleneckSide, "full")


class _Compared(NamedTuple):
    """A row and the pair that gives its value."""

    row: Row
    pair: Pair


def _faster(
    name: str,
    ours: BottleneckSide,
    peer: BottleneckSide,
    *,
    beside: str,
    bar: float | None = None,
) -> _Compared:
    """How many times faster ours is."""
    row = Row(name=name, unit="×", peer=beside, bar=bar, sources=_LAYER)
    return _Compared(row, Pair(name, "speed", ours, peer, macs(peer) / macs(ours)))


def groups(context: Context) -> list[Group]:
    """All rows, in the order of the table."""
    return [
        _kept(),
        _fast_path(),
        _layers(),
        _latent(),
        *_blocks(),
        _decoding(),
        *_latency(),
    ]


def _layers() -> Group:
    """A layer of attention, causal, forward and backward."""
    full = _full(_LENGTH)
    rows = [
        _faster(f"layer-r{ratio}", _narrow(_LENGTH, ratio=ratio), full, beside=_FULL, bar=bar)
        for ratio, bar in ((2, None), (4, 3.6), (8, 6.0))
    ]
    bare, article = (BottleneckSide(name, _LENGTH) for name in ("bare", "article"))
    rows += [
        _faster("layer-r4-bare", bare, full, beside=_FULL),
        _faster("layer-article", article, full, beside=_FULL),
        # Nine tenths: ours turns queries and keys by their places, what is written by hand does not.
        _faster("layer-full", full, BottleneckSide("torch", _LENGTH), beside=_TORCH, bar=0.9),
    ]
    return _times(rows, rounds=15, quick_rounds=3, seconds=14)


def _latent() -> Group:
    peer = "x-transformers" if _needs_latent() else f"x-transformers {version('x-transformers')}"
    beside = f"{peer}, latent keys and values"
    row = _faster("layer-r4-to-latent", _narrow(_LENGTH), BottleneckSide("latent", _LENGTH), beside=beside, bar=3.0)
    return _times([row], rounds=15, quick_rounds=3, seconds=6, missing=_needs_latent)


def _needs_latent() -> str | None:
    if find_spec("x_transformers") is None:
        return "needs the peer x-transformers: pip install 'narrows[bench]'"
    return None


def _kept() -> Group:
    """What a layer holds between forward and backward."""
    sides = {
        "r2": _narrow(_LENGTH, ratio=2),
        "r4": _narrow(_LENGTH),
        "r8": _narrow(_LENGTH, ratio=8),
        "r4-bare": BottleneckSide("bare", _LENGTH),
        "article": BottleneckSide("article", _LENGTH),
    }
    bars = {"kept-r4": 1 / 1.8, "kept-r8": 1 / 2.6, "core-kept-r4": 1 / 4}
    names = [f"{what}-{name}" for what in ("kept", "core-kept") for name in sides]
    rows = tuple(
        Row(name=name, unit="×", peer=_FULL, bar=bars.get(name), side="at most", sources=_KEPT) for name in names
    )
    measure = partial(kept_rows, full=_full(_LENGTH), sides=sides)
    return _alike(rows, measure, size=f"width 512, {_LENGTH:,} tokens, batch 1, causal, fp32", seconds=3)


def _fast_path() -> Group:
    row = Row(
        name="fast-path", unit="cases off it", peer="torch's flash kernel alone", bar=0.0, side="at most",
        sources=(*_MODEL, "bench/bottleneck_numbers.py"),
    )  # fmt: skip
    measure = partial(fast_path_rows, length=512, width=512)
    size = "all presets, causal and both sides, with and without padding, forward and backward, 512 tokens"
    return _alike((row,), measure, size=size, seconds=3)


def _blocks() -> list[Group]:
    """Attention with norms and a feed-forward of four times the width."""
    bars = {(2048, True): 1.5, (2048, False): 1.7, (8192, True): 2.0, (8192, False): 2.4}
    found = []
    for length, rounds in ((2048, 9), (8192, 3)):
        rows = []
        for causal in (True, False):
            ours, peer = (make(length, "block", causal=causal) for make in (_narrow, _full))
            name = f"block-{length}-{'causal' if causal else 'both-sides'}"
            rows.append(_faster(name, ours, peer, beside=_FULL_BLOCK, bar=bars[length, causal]))
            article = ours._replace(model="article")
            rows.append(_faster(f"{name}-article", article, peer, beside=_FULL_BLOCK))
            rows.append(_faster(f"{name}-r8", ours._replace(ratio=8), peer, beside=_FULL_BLOCK))
        found.append(_times(rows, rounds=rounds))
    return found


def _decoding() -> Group:
    """A token after another behind 2,048 others."""
    kinds = ("keys-values", "narrow-states")
    bars = {
        "decode-cache-keys-values": 1 / 4,
        "decode-cache-narrow-states": 1 / 8,
        "decode-time-keys-values": 1.0,
    }
    names = [f"decode-{what}-{kind}" for kind in kinds for what in ("cache", "time")]
    rows = [
        Row(name=name, unit="×", peer=_FULL_MODEL, bar=bars.get(name), side="at most", sources=_DECODING)
        for name in names
    ]
    logits = Row(name="decode-logits", unit="·10⁻⁶", peer="read at once", bar=100.0, side="at most", sources=_DECODING)
    sizes = {"length": _LENGTH, "width": 512}
    return Group(
        rows=(*rows, logits),
        measure=partial(decoding_rows, rounds=15, tokens=8, layers=4, **sizes),
        size=f"4 layers of width 512, {_LENGTH:,} tokens before, batch 1, 8 tokens a round, 15 rounds",
        quick=partial(decoding_rows, rounds=3, tokens=4, layers=2, **sizes),
        quick_size=f"2 layers of width 512, {_LENGTH:,} tokens before, batch 1, 4 tokens a round, 3 rounds",
        quick_seconds=9,
    )


def _latency() -> list[Group]:
    """Milliseconds of a forward pass, from short to long."""
    sides = {
        "full": _full(0, "model", "forward"),
        "r4": _narrow(0, "model", "forward"),
        "r8": _narrow(0, "model", "forward", ratio=8),
    }
    longest = [
        Row(name=f"within-100ms-{name}", unit="tokens", sources=(*_MODEL, "bench/bottleneck_numbers.py"))
        for name in sides
    ]
    size = "6 layers of width 512, causal, batch 1, forward"
    found = []
    for lengths, rounds in ((_SHORT, 7), (_LONG, 3)):
        names = [f"latency-{name}-{length}" for length in lengths for name in sides]
        rows = [Row(name=name, unit="ms", sources=_MODEL) for name in names]
        is_short = lengths is _SHORT
        largest = [Pair("", "speed", sides["full"]._replace(length=lengths[-1]))]
        measure = partial(latency_rows, sides=sides, rounds=rounds, within=is_short, lengths=lengths)
        found.append(
            Group(
                rows=(*longest, *rows) if is_short else tuple(rows),
                measure=measure,
                size=f"{size}, {rounds} rounds",
                missing=partial(needs_memory, pairs=largest),
            )
        )
    return found


def _alike(rows: tuple[Row, ...], measure: Callable[..., Any], *, size: str, seconds: float) -> Group:
    """The same in a quick run."""
    return Group(rows=rows, measure=measure, size=size, quick=measure, quick_size=size, quick_seconds=seconds)


def _times(
    compared: Sequence[_Compared],
    *,
    rounds: int,
    quick_rounds: int = 0,
    seconds: float = 0.0,
    missing: Callable[[], str | None] = lambda: None,
) -> Group:
    """Rows timed together; a quick run takes fewer rounds, or leaves them out."""
    pairs = [one.pair for one in compared]
    size = _size(pairs)

    def lacks(context: Context) -> str | None:
        return missing() or needs_memory(context, pairs=pairs)

    return Group(
        rows=tuple(one.row for one in compared),
        measure=partial(compare_times, pairs=pairs, rounds=rounds),
        size=f"{size}, {rounds} rounds",
        quick=partial(compare_times, pairs=pairs, rounds=quick_rounds) if quick_rounds else None,
        quick_size=f"{size}, {quick_rounds} rounds" if quick_rounds else "",
        quick_seconds=seconds,
        missing=lacks,
    )


def _size(pairs: Sequence[Pair]) -> str:
    """What a group has its sides do, in words: `width 512, 2,048 tokens, batch 1, …`."""
    sides = sides_of(pairs)
    first = sides[0]
    sees = {side.causal: "causal" if side.causal else "both sides" for side in sides}
    parts = [f"width {first.width}", f"{first.length:,} tokens", "batch 1", " and ".join(sees.values())]
    return ", ".join([*parts, "forward and backward" if first.work == "backward" else "forward"])
