"""What a model costs, in closed form: multiplications and additions, parameters, numbers that a cache keeps."""

import copy
from typing import Literal, NamedTuple

from narrows.bottleneck.config import BottleneckConfig
from narrows.errors import UsageError

__all__ = ["Cost", "attention_cost", "matched", "model_cost"]


class Cost(NamedTuple):
    """Of a text of some length.

    Attributes:
        macs: multiplications with their additions of the forward pass, for one token on average; elementwise work and
            the vocabulary are not counted.
        parameters: with biases and norms.
        kept: numbers that a cache keeps of a token.
    """

    macs: float
    parameters: int
    kept: int

    def __add__(self, other: "Cost") -> "Cost":  # type: ignore[override]
        return Cost(*(mine + its for mine, its in zip(self, other, strict=True)))


def attention_cost(config: BottleneckConfig, kind: str, *, length: int) -> Cost:
    """Of the attention of one layer.

    Args:
        config: with the sizes.
        kind: of `narrows.bottleneck.config.KINDS`.
        length: tokens of the text; a causal kernel computes half of the scores.

    Example:
        >>> config = BottleneckConfig(hidden_size=512, causal=False, bottleneck_kernel=0, num_attention_heads=8)
        >>> full, narrow = (attention_cost(config, kind, length=1024).macs for kind in ("full", "bottleneck"))
        >>> round(full / narrow, 2)
        4.57
    """
    seen = _seen(config, kind, length)
    width = config.hidden_size
    if not kind.startswith("bottleneck"):
        heads = config.num_attention_heads
        assert heads is not None
        groups = config.num_key_value_heads or heads
        return _heads_cost(width, width // heads, width // heads, heads, groups, seen)
    inner, heads = config.inner_size, config.inner_heads
    head_dim = inner // heads
    groups = config.bottleneck_key_value_heads or heads
    cost = _heads_cost(inner, head_dim, config.bottleneck_key_dim or head_dim, heads, groups, seen)
    taps = config.bottleneck_kernel if config.bottleneck_kernel > 1 else 0
    around = Cost(2 * width * inner + taps * inner, 2 * width * inner + inner + width + taps * inner, 0)
    cost += around
    cost = cost._replace(parameters=cost.parameters + int(config.bottleneck_inner_residual))
    return cost._replace(kept=inner) if config.cache_kind == "narrow_states" else cost


def model_cost(config: BottleneckConfig, *, length: int) -> Cost:
    """Of all layers, without embeddings, the vocabulary and the last norm.

    Args:
        config: with the sizes.
        length: tokens of the text.
    """
    width, inner = config.hidden_size, config.intermediate_size
    assert inner is not None
    beside = Cost(2 * width * inner, 2 * width * inner + width + inner + 4 * width, 0)
    total = Cost(0, 0, 0)
    for kind in config.kinds:
        total = total + beside + attention_cost(config, kind, length=length)
    return total


def matched(
    config: BottleneckConfig, like: BottleneckConfig, *, by: Literal["parameters", "flops"], length: int
) -> BottleneckConfig:
    """A config with as wide feed-forward layers as makes it cost what another does.

    Args:
        config: whose `intermediate_size` is changed.
        like: that it is compared with.
        by: `parameters`, or `flops` of a text of `length` tokens.
        length: see `by`.

    Returns:
        A copy, within half a number of the feed-forward's width of the other's cost.

    Raises:
        UsageError: it costs more than the other with no feed-forward layer at all.

    Example:
        >>> full = BottleneckConfig(hidden_size=64, layer_pattern="full", num_attention_heads=1)
        >>> narrow = matched(BottleneckConfig(hidden_size=64), full, by="parameters", length=128)
        >>> abs(model_cost(narrow, length=128).parameters / model_cost(full, length=128).parameters - 1) < 0.01
        True
    """
    bare = copy.deepcopy(config)
    bare.intermediate_size = 0
    # What one more number of each feed-forward layer's width adds.
    each = config.num_hidden_layers * (2 * config.hidden_size + (1 if by == "parameters" else 0))
    ours, theirs = (_by(model_cost(one, length=length), by) for one in (bare, like))
    size = round((theirs - ours) / each)
    if size < 1:
        raise UsageError(
            f"expected a config that is cheaper than the one to match by {by}, got one that needs {ours:,.0f} of its "
            f"{theirs:,.0f} before its feed-forward layers; narrow it more"
        )
    bare.intermediate_size = size
    return bare


def _by(cost: Cost, by: str) -> float:
    return cost.parameters if by == "parameters" else cost.macs


def _heads_cost(width: int, head_dim: int, key_dim: int, heads: int, groups: int, seen: float) -> Cost:
    keys, values = groups * key_dim, groups * head_dim
    weights = width * (heads * key_dim + keys + values + width)
    biases = heads * key_dim + keys + values + width
    return Cost(weights + seen * heads * (key_dim + head_dim), weights + biases, keys + values)


def _seen(config: BottleneckConfig, kind: str, length: int) -> float:
    """Keys that a query sees, on average over the text; of a causal text half of all, as the kernel's tiles have it."""
    if not kind.endswith("window"):
        return length / 2 if config.causal else length
    sides = 1 if config.causal else 2
    return min(sides * config.window, length / 2 if config.causal else length)
