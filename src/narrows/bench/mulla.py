"""The rows of Mulla: what is measured, beside which peer, and the bar each has to reach."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from narrows.bench.conversion import conversion_rows
from narrows.bench.encoders import Side
from narrows.bench.mulla_gate import MULLA
from narrows.bench.pairs import Pair, compare_memory, compare_times, needs_memory, sides_of
from narrows.bench.rows import Context, Group, Row
from narrows.bench.summaries import summary_groups

__all__ = ["CHECKS", "groups"]

CHECKS = MULLA

_ENCODER = (
    "core/compact.py",
    "core/positions.py",
    "core/windows.py",
    "mulla/attention.py",
    "mulla/levels.py",
    "mulla/tiled.py",
    "mulla/config.py",
    "mulla/encoder.py",
    "mulla/layers.py",
)
_GENERATION = (*_ENCODER, "mulla/generation.py")
_CONVERSION = (*_GENERATION, "mulla/convert.py", "mulla/rules.py", "hf/checkpoints.py", "hf/conversion.py")

# Tokens that a feed-forward layer of ours takes at once, where memory is at stake.
_CHUNK = 1024
_CURVE = (2048, 4096, 8192, 16_384, 32_768, 49_152)
_NAMES = {"local": "LongT5 local", "tglobal": "LongT5 transient-global", "dynamic": "dynamic Mulla"}

_dynamic = partial(Side, "dynamic", chunk=_CHUNK)
_fixed = partial(Side, "fixed", chunk=_CHUNK)
_local = partial(Side, "local")
_tglobal = partial(Side, "tglobal")


class _Compared(NamedTuple):
    """A row and the pair that gives its value."""

    row: Row
    pair: Pair


def _compared(
    name: str,
    ours: Side,
    peer: Side | None = None,
    *,
    value: Literal["speed", "share"] = "share",
    bar: float | None = None,
    unit: str = "×",
    beside: str = "",
) -> _Compared:
    sources = _GENERATION if ours.work == "generate" else _ENCODER if ours.ours else ()
    beside = beside or ("" if peer is None else _NAMES[peer.model])
    side: Literal["at least", "at most"] = "at least" if value == "speed" else "at most"
    return _Compared(
        Row(name=name, unit=unit, peer=beside, bar=bar, side=side, sources=sources), Pair(name, value, ours, peer)
    )


def groups(context: Context) -> list[Group]:
    """All rows, in the order of the table."""
    return [
        *_forward(),
        *_long(),
        *_one_layer(),
        *_backward(),
        _short(),
        *[_generation(length) for length in (8192, 16_384)],
        _conversion(),
        *_curve(),
        *summary_groups(list(context.models)),
    ]


def _forward() -> list[Group]:
    """A long text through the encoder."""
    ours, local, tglobal = _dynamic(16_384), _local(16_384), _tglobal(16_384)
    bf16, whole = _dynamic(16_384, dtype="bfloat16"), _dynamic(16_384, chunk=0)
    at_once = "LongT5 local, our feed-forward whole"
    times = [
        _compared("forward-16k-speed-to-tglobal", ours, tglobal, value="speed", bar=2.2),
        _compared("forward-16k-time-to-local", ours, local, bar=1.0),
        _compared("forward-16k-time-to-local-whole", whole, local, beside=at_once),
        _compared("forward-16k-speed-bfloat16", bf16, ours, value="speed", bar=1.7, beside="fp32"),
        *_curve_rows("time", 16_384, unit="s"),
    ]
    memory = [
        _compared("forward-16k-memory-to-tglobal", ours, tglobal, bar=0.1),
        _compared("forward-16k-memory-to-local", ours, local, bar=0.5),
        _compared("forward-16k-memory-to-local-whole", whole, local, beside=at_once),
        _compared("forward-16k-memory-bfloat16", bf16, ours, bar=0.5, beside="fp32"),
        _compared(
            "forward-48k-memory-to-tglobal-16k",
            _dynamic(49_152),
            tglobal,
            bar=0.2,
            beside="LongT5 transient-global, 16,384 tokens",
        ),
        *_curve_rows("memory", 16_384, unit="MiB"),
    ]
    return [_times(times, rounds=5, shrink=8, seconds=12), _memory(memory)]


def _long() -> list[Group]:
    grown = _compared(
        "forward-48k-time-to-16k", _dynamic(49_152), _dynamic(16_384), bar=3.2, beside="dynamic Mulla, 16,384 tokens"
    )
    return [
        _times([grown, *_curve_rows("time", 49_152, unit="s")], rounds=3),
        _memory(_curve_rows("memory", 49_152, unit="MiB")),
    ]


def _one_layer() -> list[Group]:
    """The longest texts whose transient-global attention a machine still holds: 24k takes about 13 GB, 32k 23."""
    found = []
    for length, memory, speed in ((24_576, None, None), (32_768, 1 / 25, 5.0)):
        ours, peer, name = _dynamic(length, layers=1), _tglobal(length, layers=1), f"one-layer-{length // 1024}k"
        found.append(_memory([_compared(f"{name}-memory", ours, peer, bar=memory)]))
        found.append(_times([_compared(f"{name}-speed", ours, peer, value="speed", bar=speed)], rounds=3))
    return found


def _backward() -> list[Group]:
    ours = Side("dynamic", 8192, "backward")
    recomputed = ours._replace(chunk=_CHUNK, recompute=True)
    tglobal, local = _tglobal(8192, "backward"), _local(8192, "backward")
    again = "LongT5 transient-global, our feed-forward recomputed"
    times = [
        _compared("backward-8k-time", ours, tglobal, bar=0.85),
        _compared("backward-8k-time-recomputed", recomputed, tglobal, beside=again),
        _compared("backward-8k-time-to-local", ours, local),
    ]
    memory = [
        _compared("backward-8k-memory", ours, tglobal, bar=0.45),
        _compared("backward-8k-memory-recomputed", recomputed, tglobal, bar=0.3, beside=again),
        _compared("backward-8k-memory-to-local", ours, local),
    ]
    return [_times(times, rounds=5, shrink=8, seconds=11), _memory(memory)]


def _short() -> Group:
    row = _compared("forward-1k-time-to-local", Side("dynamic", 1024), _local(1024), bar=1.25)
    return _times([row], rounds=15, shrink=1, quick_rounds=5, seconds=7)


def _generation(length: int) -> Group:
    ours = _dynamic(length, "generate")
    row = _compared(f"generate-{length // 1024}k", ours, _tglobal(length, "generate"), value="speed", bar=1.0)
    return _times([row], rounds=3, shrink=length // 1024, seconds=5)


def _conversion() -> Group:
    rows = (
        Row(name="convert-seconds", unit="s", bar=60.0, side="at most", sources=_CONVERSION),
        Row(name="convert-memory", unit="×", peer="the weights", bar=2.2, side="at most", sources=_CONVERSION),
    )
    return Group(
        rows=rows,
        measure=partial(conversion_rows, width="base", layers=12),
        size="LongT5 transient-global of base width, 12 + 12 layers, 32,128 tokens in the vocabulary",
        quick=partial(conversion_rows, width="base", layers=1),
        quick_size="1 + 1 layers of base width",
        quick_seconds=14,
        quick_judged=False,
    )


def _curve() -> list[Group]:
    """Time and memory from short to long, beside local attention, to be drawn."""
    found = []
    for length in _CURVE:
        if length not in (16_384, 49_152):
            found.append(_times(_curve_rows("time", length, unit="s"), rounds=3))
            found.append(_memory(_curve_rows("memory", length, unit="MiB")))
    # Apart from the others, since there is seldom memory for them.
    for length in (32_768, 49_152):
        found.append(_times([_to_local("time", "tglobal", _tglobal(length))], rounds=3))
        found.append(_memory([_to_local("memory", "tglobal", _tglobal(length))]))
    return found


def _curve_rows(what: str, length: int, *, unit: str) -> list[_Compared]:
    """Each model's share of what local attention takes, and that itself."""
    sides = {"dynamic": _dynamic(length), "fixed": _fixed(length)}
    if length <= 16_384:
        sides["tglobal"] = _tglobal(length)
    alone = _compared(f"curve-{what}-local-{length}", _local(length), unit=unit)
    return [alone, *[_to_local(what, name, side) for name, side in sides.items()]]


def _to_local(what: str, name: str, side: Side) -> _Compared:
    return _compared(f"curve-{what}-{name}-{side.length}", side, _local(side.length))


def _times(
    compared: Sequence[_Compared],
    *,
    rounds: int,
    shrink: int = 0,
    quick_rounds: int = 2,
    seconds: float = 0.0,
) -> Group:
    """Rows timed together.

    A quick run takes the first layer and a part of the text, 1 by `shrink`; with 1 it takes all, with 0 it is left out.
    """
    quick = [one.pair if shrink == 1 else _smaller(one.pair, shrink) for one in compared] if shrink else []
    return _group(
        compared,
        partial(compare_times, rounds=rounds),
        size=f"{_size([one.pair for one in compared])}, {rounds} rounds",
        quick=partial(compare_times, pairs=quick, rounds=quick_rounds) if quick else None,
        quick_size=f"{_size(quick)}, {quick_rounds} rounds" if quick else "",
        quick_seconds=seconds,
        quick_judged=shrink == 1,
    )


def _memory(compared: Sequence[_Compared]) -> Group:
    return _group(compared, compare_memory, size=_size([one.pair for one in compared]))


def _group(compared: Sequence[_Compared], measure: Callable[..., Any], **fields: Any) -> Group:
    pairs = [one.pair for one in compared]
    return Group(
        rows=tuple(one.row for one in compared),
        measure=partial(measure, pairs=pairs),
        missing=partial(needs_memory, pairs=pairs),
        **fields,
    )


def _smaller(pair: Pair, shrink: int) -> Pair:
    ours, peer = (
        None if side is None else side._replace(length=side.length // shrink, layers=1, new_tokens=8)
        for side in (pair.ours, pair.peer)
    )
    assert ours is not None
    return pair._replace(ours=ours, peer=peer)


def _size(pairs: Sequence[Pair]) -> str:
    """What a group has its sides do, in words: `2 layers of base width, 16,384 tokens, …`."""
    sides = sides_of(pairs)
    lengths = " and ".join(f"{length:,}" for length in sorted({side.length for side in sides}))
    first = sides[0]
    layers = f"{first.layers} layer{'' if first.layers == 1 else 's'}"
    parts = [f"{layers} of {first.width} width", f"{lengths} tokens", "batch 1"]
    if first.work == "generate":
        parts[0] = f"{first.layers} + {layers} of {first.width} width"
        parts.append(f"{first.new_tokens} new tokens, greedy")
    if first.work == "backward":
        parts.append("forward and backward, no dropout")
    if any(side.chunk for side in sides):
        recomputed = " where it is recomputed" if any(side.recompute for side in sides) else ""
        parts.append(f"our feed-forward {_CHUNK:,} tokens at a time{recomputed}")
    return ", ".join(parts)
