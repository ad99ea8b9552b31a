"""Rows of the bottleneck family that are no race of two sides: memory kept, the fast kernel, decoding, latency."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention import SDPBackend, sdpa_kernel

from narrows.bench.bottleneck_cost import kept_states
from narrows.bench.bottleneck_models import BottleneckSide, build, config_of, macs
from narrows.bench.probes import in_turn, ratio
from narrows.bench.rows import Context, Measurement
from narrows.bottleneck import BottleneckConfig, BottleneckForCausalLM, BottleneckModel, Rows, attend_rows, preset
from narrows.bottleneck.presets import PRESETS

__all__ = [
    "WITHIN_MS",
    "bytes_kept",
    "decoding_rows",
    "fast_path_rows",
    "kept_rows",
    "latency_rows",
    "longest_within",
]

WITHIN_MS = 100.0
_MIB = 2**20
_STEP = 64


def bytes_kept(run: Callable[[], object], *, without: Sequence[Tensor]) -> int:
    """Bytes that autograd keeps of what is run, each storage once.

    Args:
        run: what is run, with gradients.
        without: tensors that would be there anyway: weights, inputs, tables.

    Example:
        >>> numbers = torch.ones(10, requires_grad=True)
        >>> bytes_kept(lambda: numbers.exp(), without=[numbers])
        40
    """
    known = {tensor.untyped_storage().data_ptr() for tensor in without}
    # Held until the end, so that no storage takes the place of another.
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        result = run()
    found = sum(storage.nbytes() for storage in kept.values())
    del result
    return found


def kept_rows(context: Context, *, full: BottleneckSide, sides: Mapping[str, BottleneckSide]) -> dict[str, Measurement]:
    """What layers keep for the backward pass by what the full one keeps, and attention's core alone.

    Args:
        context: of the run.
        full: the peer.
        sides: ours, by the end of the row's name.
    """
    peer, peer_core = _layer_kept(full), _core_kept(full)
    found = {}
    for name, side in sides.items():
        layer, core = _layer_kept(side), _core_kept(side)
        counted = kept_states(config_of(side), side.kind), kept_states(config_of(full), full.kind)
        entry = 4 * side.length * side.width
        found[f"kept-{name}"] = Measurement(
            value=layer / peer,
            arithmetic=counted[0].total / counted[1].total,
            detail={
                "mib": {side.label: layer / _MIB, full.label: peer / _MIB},
                "share with the input of both": (layer + entry) / (peer + entry),
            },
        )
        found[f"core-kept-{name}"] = Measurement(
            value=core / peer_core,
            arithmetic=(counted[0].core + counted[0].sums) / (counted[1].core + counted[1].sums),
            detail={"mib": {side.label: core / _MIB, full.label: peer_core / _MIB}},
        )
    return found


def _layer_kept(side: BottleneckSide) -> int:
    layer, config = build(side), config_of(side)
    rows = Rows.plain(side.length, dims=(layer.key_dim,), base=config.rope_theta)
    states = torch.randn(1, side.length, side.width, requires_grad=True)
    tables = [table for rotation in rows.rotations.values() for table in rotation]
    return bytes_kept(lambda: layer(states, rows), without=[states, *layer.parameters(), *tables])


def _core_kept(side: BottleneckSide) -> int:
    """Queries, keys and values among it: they are there for attention alone."""
    layer = build(side)
    inner = layer if side.kind == "full" else layer.attention
    shape = (1, side.length, inner.heads, inner.head_dim)
    query, key, value = (torch.randn(shape).transpose(1, 2).requires_grad_() for _ in range(3))
    return bytes_kept(lambda: attend_rows(query, key, value, reach=inner.reach, lengths=None), without=[])


def fast_path_rows(context: Context, *, length: int, width: int) -> dict[str, Measurement]:
    """Presets whose attention leaves torch's fast kernel, forward or backward, with and without padding."""
    left = []
    mask = torch.ones(2, length, dtype=torch.long)
    mask[1, : length // 3] = 0
    ids = torch.randint(0, 256, mask.shape, generator=torch.Generator().manual_seed(0))
    cases = [(name, causal) for name in PRESETS for causal in (True, False)]
    for name, causal in cases:
        config = preset(name, length=length, hidden_size=width, num_hidden_layers=1, causal=causal)
        model = BottleneckModel(config).train()
        for given in (None, mask):
            try:
                with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
                    model(ids, attention_mask=given).last_hidden_state.sum().backward()
            except RuntimeError as error:
                padded = "padded" if given is not None else "not padded"
                left.append(f"{name}, {'causal' if causal else 'both sides'}, {padded}: {error}")
    return {"fast-path": Measurement(value=len(left), detail={"cases": 2 * len(cases), "left": left})}


def decoding_rows(
    context: Context, *, rounds: int, tokens: int, length: int, width: int, layers: int, ratio_of: int = 4
) -> dict[str, Measurement]:
    """A token after another behind a text, the models in turn: seconds, what caches hold, and the logits.

    Args:
        context: repeats and time.
        rounds: of `tokens` each.
        tokens: a round.
        length: of the text before.
        width, layers: of the models.
        ratio_of: width by that of the attention.
    """
    rounds = context.rounds or rounds
    sizes: dict[str, Any] = {"hidden_size": width, "num_hidden_layers": layers, "bottleneck_ratio": ratio_of}
    kinds: dict[str, dict[str, Any]] = {
        "full": {"layer_pattern": "full"},
        "keys-values": {"cache_kind": "keys_values"},
        "narrow-states": {"cache_kind": "narrow_states"},
    }
    # One more round, which is not measured.
    ids = torch.randint(0, 256, (1, length + tokens * (rounds + 1)), generator=torch.Generator().manual_seed(0))
    readers = {name: _Decoder(BottleneckConfig(**sizes, **kind), ids, length) for name, kind in kinds.items()}
    begun = {name: reader.num_bytes for name, reader in readers.items()}
    times = in_turn(
        {name: (lambda reader=reader: reader.go_on(tokens)) for name, reader in readers.items()},
        rounds=rounds,
        seconds=context.seconds,
    )
    grown = {name: (reader.num_bytes - begun[name]) / (reader.place - length) for name, reader in readers.items()}
    found = {}
    for name, count in (("keys-values", 2), ("narrow-states", 1)):
        share = ratio(times[name], times["full"])
        seconds = {each: statistics.median(times[each]) / tokens for each in (name, "full")}
        found[f"decode-time-{name}"] = Measurement(
            value=share.median,
            spread=(share.low, share.high),
            detail={"rounds": len(times[name]), "seconds a token": seconds},
        )
        found[f"decode-cache-{name}"] = Measurement(
            value=grown[name] / grown["full"],
            arithmetic=count / (2 * ratio_of),
            detail={"bytes a token": grown, f"bytes of {length} tokens": begun},
        )
    apart = {name: reader.apart() for name, reader in readers.items()}
    # torch's largest of NaN and a number is NaN, Python's is whichever came first.
    worst = float(torch.tensor(list(apart.values())).max())
    return {**found, "decode-logits": Measurement(value=1e6 * worst, detail={"apart": apart})}


class _Decoder:
    """A model with random weights, and the place up to which it has read a text."""

    def __init__(self, config: BottleneckConfig, ids: Tensor, length: int):
        torch.manual_seed(0)
        self.model, self.ids, self.start, self.place = BottleneckForCausalLM(config).eval(), ids, length, length
        for parameter in self.model.parameters():
            if parameter.dim() == 1:
                nn.init.normal_(parameter, mean=0.7, std=0.2)
        with torch.inference_mode():
            self.cache = self.model(ids[:, :length], use_cache=True, logits_to_keep=1).cache
        self.logits: list[Tensor] = []

    @property
    def num_bytes(self) -> int:
        assert self.cache is not None
        return self.cache.num_bytes

    def go_on(self, tokens: int) -> None:
        with torch.inference_mode():
            for _ in range(tokens):
                given = self.ids[:, self.place : self.place + 1]
                self.logits.append(self.model(given, cache=self.cache, use_cache=True).logits)
                self.place += 1

    def apart(self) -> float:
        """How far the logits are from those of the text read at once."""
        with torch.inference_mode():
            whole = self.model(self.ids[:, : self.place], use_cache=False).logits[:, self.start :]
        return float((torch.cat(self.logits, 1) - whole).abs().max())


def latency_rows(
    context: Context, *, sides: Mapping[str, BottleneckSide], lengths: Sequence[int], rounds: int, within: bool = True
) -> dict[str, Measurement]:
    """Milliseconds of a forward pass by length, and the longest text that is read in time.

    Args:
        context: repeats and time.
        sides: by layout.
        lengths: of the texts, from short to long.
        rounds: at each of them.
        within: whether the longest is asked for too.
    """
    models = {name: build(side) for name, side in sides.items()}
    found: dict[str, Measurement] = {}
    medians: dict[str, dict[int, float]] = {name: {} for name in sides}
    full = next(iter(sides))
    for length in lengths:
        given = {name: side._replace(length=length) for name, side in sides.items()}
        seconds = None if context.seconds is None else context.seconds / len(lengths)
        tasks = {name: side.task(models[name]) for name, side in given.items()}
        times = in_turn(tasks, rounds=context.rounds or rounds, seconds=seconds)
        for name, each in times.items():
            times_of = [1e3 * second for second in each]
            medians[name][length] = statistics.median(times_of)
            found[f"latency-{name}-{length}"] = Measurement(
                value=medians[name][length],
                spread=(min(times_of), max(times_of)),
                detail={
                    "rounds": len(each),
                    "share of full": ratio(each, times[full]).median,
                    "share of full by arithmetic": macs(given[name]) / macs(given[full]),
                },
            )
    for name, by_length in medians.items() if within else ():
        longest = longest_within(by_length, WITHIN_MS)
        note = {} if longest is not None else {"note": f"more than {max(lengths):,} tokens"}
        found[f"within-100ms-{name}"] = Measurement(value=longest, detail={"ms": by_length, **note})
    return found


def longest_within(by_length: Mapping[int, float], limit: float) -> float | None:
    """The longest text, in steps of 64 tokens, that is read within a time.

    Between two lengths, times lie on a line of logarithms.

    Args:
        by_length: the time of each length.
        limit: in the same unit.

    Returns:
        Tokens; None if the longest that was tried is still in time.

    Example:
        >>> longest_within({128: 20.0, 512: 80.0, 2048: 320.0}, 100.0), longest_within({128: 20.0}, 100.0)
        (640, None)
    """
    lengths = sorted(by_length)
    if by_length[lengths[-1]] <= limit:
        return None
    after = next(place for place, length in enumerate(lengths) if by_length[length] > limit)
    long, time = lengths[after], by_length[lengths[after]]
    if not after:
        # Below all that was tried: as if each token took the same.
        tokens = long * limit / time
    else:
        short, before = lengths[after - 1], by_length[lengths[after - 1]]
        share = math.log(limit / before) / math.log(time / before)
        tokens = short * (long / short) ** share
    # A whole step within rounding is that step.
    return int((tokens + 1e-6) // _STEP * _STEP)
