"""The rows of Funnel: what is measured, beside which peer, and the bar each has to reach."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

from narrows.bench.funnel_cost import decoder_flops, encoder_flops, plain_flops
from narrows.bench.funnel_distilled import distilled_groups
from narrows.bench.funnel_gate import FUNNEL
from narrows.bench.funnel_models import FunnelSide
from narrows.bench.funnel_numbers import alone_rows, cost_rows, loss_rows, precision_rows, resident_rows
from narrows.bench.pairs import Pair, compare_memory, compare_times, needs_memory, sides_of
from narrows.bench.rows import Context, Group, Row
from narrows.funnel import preset

__all__ = ["CHECKS", "groups"]

CHECKS = FUNNEL

_ENCODER = (
    "core/compact.py",
    "core/linear.py",
    "funnel/activation.py",
    "funnel/attention*.py",
    "funnel/config.py",
    "funnel/embeddings.py",
    "funnel/encoder.py",
    "funnel/inputs.py",
    "funnel/layers.py",
    "funnel/model.py",
    "funnel/pooling.py",
    "funnel/positions.py",
    "funnel/presets.py",
    "funnel/projection.py",
    "funnel/terms.py",
)
_PRETRAINING = (*_ENCODER, "funnel/decoder.py", "funnel/heads/*.py", "losses/*.py")
_COUNTS = ("funnel/config.py", "funnel/presets.py", "bench/funnel_cost.py")

_BERT, _LAYOUTS = "L12", ("L12", "B6-6-6", "B6-3x2-3x2", "B4-4-4")
_LENGTHS = (128, 256, 512)
_NAMES = {"bert": "BERT-base, sdpa", "hf": "transformers' Funnel", "ours": "ours"}
# Of BERT's time, by layout and length.
_TIME_BARS = {("B6-6-6", 512): 0.98, ("B4-4-4", 512): 0.66, ("B6-6-6", 128): 1.0}
# By how much faster than transformers' Funnel, by length.
_SPEED_BARS = {128: 1.3, 512: 1.5}
# What the paper measured of the plain encoder's time, on a TPU.
_PAPER = {
    "B6-6-6": {128: 0.99, 256: 0.88, 512: 0.81},
    "B4-4-4": {128: 0.69, 256: 0.62, 512: 0.55},
}
_ROUNDS = {128: 15, 256: 9, 512: 9}
# Half of each layout, for a quick run: as many runs of layers in every block.
_HALVES = {"L12": "L6", "B6-6-6": "B3-3-3", "B6-3x2-3x2": "B3-1x3-1x3", "B4-4-4": "B2-2-2"}


class _Compared(NamedTuple):
    """A row and the pair that gives its value."""

    row: Row
    pair: Pair


def _side(model: Literal["ours", "hf", "bert"], layout: str, length: int, **options: Any) -> FunnelSide:
    return FunnelSide(model, f"{layout}H768", length, **options)


def _compared(
    name: str,
    ours: FunnelSide,
    peer: FunnelSide | None = None,
    *,
    value: Literal["speed", "share"] = "share",
    bar: float | None = None,
    unit: str = "×",
    beside: str = "",
    counted: bool = False,
) -> _Compared:
    sources = () if ours.model != "ours" else _PRETRAINING if ours.work == "pretrain" else _ENCODER
    beside = beside or ("" if peer is None else _NAMES[peer.model])
    side: Literal["at least", "at most"] = "at least" if value == "speed" else "at most"
    arithmetic = _arithmetic(ours, peer) if counted and peer is not None else None
    return _Compared(
        Row(name=name, unit=unit, peer=beside, bar=bar, side=side, sources=sources),
        Pair(name, value, ours, peer, arithmetic),
    )


def _arithmetic(ours: FunnelSide, bert: FunnelSide) -> float:
    """Operations of our layers by those of a BERT's."""
    config, plain = preset(ours.layout), preset(bert.layout)
    size = {"length": ours.length, "rows": ours.batch}
    flops = encoder_flops(config, **size) + (decoder_flops(config, **size) if ours.work == "pretrain" else 0)
    return flops / plain_flops(layers=plain.num_hidden_layers, width=plain.d_model, **size)


def groups(context: Context) -> list[Group]:
    """All rows, in the order of the table."""
    return [
        *_exact(),
        *[_forward(length) for length in reversed(_LENGTHS)],
        *[_forward_memory(length) for length in reversed(_LENGTHS)],
        *_training(),
        *_long(),
        *[group for length in (512, 128) for group in _pretraining(length)],
        *distilled_groups(),
    ]


def _exact() -> list[Group]:
    """What is a matter of numbers, not of speed; most of it takes seconds."""
    lengths = (64, 256, 512)
    alone = Row(
        name="alone-batched", unit="·10⁻⁶", peer="alone", bar=10.0, side="at most",
        sources=(*_ENCODER, "funnel/decoder.py"),
    )  # fmt: skip
    errors = tuple(Row(name=f"bf16-error-{n}", unit="%", peer="fp32", sources=_ENCODER) for n in lengths)
    growth = Row(
        name="bf16-error-growth", unit="×", peer="the smallest of them", bar=1.5, side="at most", sources=_ENCODER
    )
    loss = Row(
        name="mlm-first-loss", unit="% off", peer="ln V", bar=20.0, side="at most",
        sources=(*_PRETRAINING, "funnel/presets.py"),
    )  # fmt: skip
    flops = Row(name="cost-flops", unit="% off", peer="the paper", bar=2.0, side="at most", sources=_COUNTS)
    parameters = Row(
        name="cost-parameters", unit="% off", peer="released models", bar=2.0, side="at most", sources=_COUNTS
    )
    small = "B1-1-1H768"
    return [
        _both_ways(
            (alone,),
            partial(alone_rows, layout="B2-2-2H768", longest=64),
            size="B2-2-2H768, texts of 1 to 64 tokens",
            quick=partial(alone_rows, layout=small, longest=16),
            quick_size=f"{small}, texts of 1 to 16 tokens",
            seconds=5,
        ),
        _both_ways(
            (*errors, growth),
            partial(precision_rows, layout="L1H768", lengths=lengths),
            size="first layer of base width, weights as transformers draws them",
            seconds=3,
        ),
        _both_ways(
            (loss,),
            partial(loss_rows, layout="B4-4-4H768", length=128),
            size="B4-4-4H768, 2 × 128 tokens",
            quick=partial(loss_rows, layout=small, length=128),
            quick_size=f"{small}, 2 × 128 tokens",
            seconds=5,
        ),
        _both_ways((flops, parameters), cost_rows, size="the five released layouts", seconds=2),
    ]


def _both_ways(
    rows: tuple[Row, ...],
    measure: Callable[..., Any],
    *,
    size: str,
    seconds: float,
    quick: Callable[..., Any] | None = None,
    quick_size: str = "",
) -> Group:
    """Held to its bars in a quick run too."""
    return Group(
        rows=rows,
        measure=measure,
        size=size,
        quick=quick or measure,
        quick_size=quick_size,
        quick_seconds=seconds,
    )


def _forward(length: int) -> Group:
    """Each layout beside BERT, and two of them beside transformers' Funnel."""
    bert = _side("bert", _BERT, length)
    rows = []
    for layout in _LAYOUTS:
        paper = _PAPER.get(layout, {}).get(length)
        rows.append(
            _compared(
                f"time-{layout}-{length}",
                _side("ours", layout, length),
                bert,
                bar=_TIME_BARS.get((layout, length)),
                beside=_NAMES["bert"] + ("" if paper is None else f" (the paper's TPU: {paper})"),
                counted=True,
            )
        )
    if length in _SPEED_BARS:
        for layout in ("B6-6-6", "B4-4-4"):
            ours, theirs = _side("ours", layout, length), _side("hf", layout, length)
            rows.append(_compared(f"speed-{layout}-{length}", ours, theirs, value="speed", bar=_SPEED_BARS[length]))
    rows.append(_compared(f"time-BERT-{length}", bert, unit="s"))
    return _times(rows, rounds=_ROUNDS[length], quick=length == 512, seconds=20)


def _forward_memory(length: int) -> Group:
    bert = _side("bert", _BERT, length)
    rows = [_compared(f"memory-{layout}-{length}", _side("ours", layout, length), bert) for layout in _LAYOUTS]
    return _memory([*rows, _compared(f"memory-BERT-{length}", bert, unit="MiB")])


def _training() -> list[Group]:
    """A step of fine-tuning: forward and backward with dropout, its gradients apart."""
    ours = _side("ours", "B6-6-6", 512, work="step")
    again, theirs, bert = (
        ours._replace(recompute=True),
        ours._replace(model="hf"),
        _side("bert", _BERT, 512, work="step"),
    )
    memory = [
        _compared("training-memory", ours, theirs, bar=0.6),
        _compared("training-memory-checkpointed", again, theirs, bar=0.25),
        _compared("training-memory-to-bert", ours, bert),
    ]
    times = [
        _compared("training-speed", ours, theirs, value="speed"),
        _compared("training-speed-checkpointed", again, theirs, value="speed"),
        _compared("training-time-to-bert", ours, bert, counted=True),
    ]
    return [_memory(memory), _times(times, rounds=3)]


def _long() -> list[Group]:
    ours, theirs = (_side(model, "B6-6-6", 4096, batch=1) for model in ("ours", "hf"))
    longest = _side("ours", "B6-6-6", 8192, batch=1)
    whole = Row(name="long-8192-resident", unit="GB", bar=1.5, side="below", sources=_ENCODER)
    return [
        _memory([_compared("long-4096-memory", ours, theirs, bar=0.1)]),
        _times([_compared("long-4096-speed", ours, theirs, value="speed")], rounds=3),
        Group(
            rows=(whole,),
            measure=partial(resident_rows, row=whole.name, side=longest),
            size="B6-6-6H768, 8,192 tokens, batch 1, all that the process holds",
            missing=partial(needs_memory, pairs=[Pair(whole.name, "share", longest)]),
        ),
    ]


def _pretraining(length: int) -> list[Group]:
    """A step of masked language modelling, a funnel's with its decoder."""
    bert = _side("bert", _BERT, length, work="pretrain")
    found: dict[str, list[_Compared]] = {"time": [], "memory": []}
    for layout in ("B6-6-6", "B6-3x2-3x2", "B4-4-4"):
        ours = _side("ours", layout, length, work="pretrain")
        for what, rows in found.items():
            rows.append(_compared(f"pretraining-{what}-{layout}-{length}", ours, bert, counted=what == "time"))
    ours = _side("ours", "B6-6-6", length, work="pretrain")
    theirs = ours._replace(model="hf")
    found["time"].append(_compared(f"pretraining-speed-B6-6-6-{length}", ours, theirs, value="speed"))
    found["memory"].append(_compared(f"pretraining-memory-B6-6-6-{length}-to-hf", ours, theirs))
    return [_times(found["time"], rounds=3), _memory(found["memory"])]


def _times(compared: Sequence[_Compared], *, rounds: int, quick: bool = False, seconds: float = 0.0) -> Group:
    """Rows timed together. A quick run takes half of the layers and one text."""
    halved = [_halved(one.pair) for one in compared] if quick else []
    return _group(
        compared,
        partial(compare_times, rounds=rounds),
        size=f"{_size([one.pair for one in compared])}, {rounds} rounds",
        quick=partial(compare_times, pairs=halved, rounds=2) if quick else None,
        quick_size=f"half of the layers, {_size(halved)}, 2 rounds" if quick else "",
        quick_seconds=seconds,
        quick_judged=False,
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


def _halved(pair: Pair) -> Pair:
    ours, peer = (
        None if side is None else side._replace(layout=_half(side.layout), batch=1, vocabulary=1000)
        for side in (pair.ours, pair.peer)
    )
    return pair._replace(ours=ours, peer=peer)


def _half(layout: str) -> str:
    name, _, width = layout.partition("H")
    return f"{_HALVES[name]}H{width}"


def _size(pairs: Sequence[Pair]) -> str:
    """What a group has its sides do, in words: `base width, 512 tokens, batch 4`."""
    first = sides_of(pairs)[0]
    parts = ["base width", f"{first.length:,} tokens", f"batch {first.batch}"]
    parts += {"forward": [], "step": ["forward and backward with dropout"], "pretrain": ["a step of masked LM"]}[
        first.work
    ]
    return ", ".join(parts)
