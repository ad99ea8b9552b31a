"""What a model costs, in closed form: multiplications and additions, parameters, numbers that a cache keeps.

Counted are the products of matrices, in multiplications with an addition (MACs) for one text; norms, activations,
rotations and the convolution on the narrow states are a few numbers a token beside them.
"""

import copy
from typing import Literal, NamedTuple, cast

from narrows.bottleneck.config import BottleneckConfig
from narrows.errors import UsageError

__all__ = [
    "Cost",
    "Macs",
    "attention_macs",
    "attention_parameters",
    "block_macs",
    "cached_numbers",
    "matched",
    "model_cost",
    "pairs",
    "size_of",
]


class Macs(NamedTuple):
    """Of linear maps, and of scores and their weighted sums."""

    linear: int
    attention: int

    @property
    def total(self) -> int:
        """Both."""
        return self.linear + self.attention


class Cost(NamedTuple):
    """Of a model's layers, without embeddings, the vocabulary and the last norm.

    Attributes:
        macs: of the forward pass over one text.
        parameters: with biases and norms.
    """

    macs: int
    parameters: int


class Size(NamedTuple):
    """Widths of a layer's attention, and its heads."""

    width: int
    heads: int
    groups: int
    key_dim: int
    head_dim: int


def size_of(config: BottleneckConfig, kind: str) -> Size:
    """Of a layer of a kind."""
    if not kind.startswith("bottleneck"):
        width, heads = config.hidden_size, cast(int, config.num_attention_heads)
        groups, key_dim = config.num_key_value_heads, None
    else:
        width, heads = config.inner_size, config.inner_heads
        groups, key_dim = config.bottleneck_key_value_heads, config.bottleneck_key_dim
    return Size(width, heads, groups or heads, key_dim or width // heads, width // heads)


def pairs(length: int, *, causal: bool, window: int | None = None) -> int:
    """How many keys all queries of a text see together.

    Args:
        length: tokens of the text.
        causal: whether a query sees only the keys up to its own place, which about halves them.
        window: only keys less than this many tokens away; None: any.

    Example:
        >>> pairs(4, causal=False), pairs(4, causal=True)
        (16, 10)
        >>> pairs(4, causal=False, window=2), pairs(4, causal=True, window=2)
        (10, 7)
    """
    reach = length if window is None else min(window, length)
    one_way = length * reach - reach * (reach - 1) // 2
    return one_way if causal else 2 * one_way - length


def attention_macs(config: BottleneckConfig, kind: str, length: int) -> Macs:
    """Of a layer's attention, from its input to what is added to the residual stream.

    Args:
        config: with the sizes.
        kind: of `narrows.bottleneck.config.KINDS`.
        length: tokens of the text.

    Source: linear maps of 4·L·d² against 4·L·m² + 2·L·d·m, attention of 2·L²·d against 2·L²·m, with m = d / r.

    Example:
        >>> config = BottleneckConfig(hidden_size=512, causal=False)
        >>> attention_macs(config, "bottleneck", 1024)
        Macs(linear=201326592, attention=268435456)
    """
    size = size_of(config, kind)
    seen = pairs(length, causal=config.causal, window=config.window if kind.endswith("window") else None)
    linear = _inner_weights(size)
    if kind.startswith("bottleneck"):
        linear += 2 * config.hidden_size * size.width
    # Queries and keys narrower than values are filled up for the kernel.
    return Macs(length * linear, 2 * seen * size.heads * size.head_dim)


def block_macs(config: BottleneckConfig, kind: str, length: int) -> Macs:
    """Of a layer with its feed-forward.

    Example:
        >>> plain, narrow = (BottleneckConfig(layer_pattern=kind) for kind in ("full", "bottleneck"))
        >>> round(block_macs(plain, "full", 2048).total / block_macs(narrow, "bottleneck", 2048).total, 2)
        1.64
    """
    linear, attention = attention_macs(config, kind, length)
    return Macs(linear + 2 * length * config.hidden_size * cast(int, config.intermediate_size), attention)


def attention_parameters(config: BottleneckConfig, kind: str) -> int:
    """Weights and biases of a layer's attention.

    Example:
        >>> bare = BottleneckConfig(hidden_size=512, bottleneck_kernel=0, bottleneck_inner_residual=False)
        >>> attention_parameters(bare, "bottleneck")
        197760
    """
    size = size_of(config, kind)
    biases = size.heads * size.key_dim + size.groups * (size.key_dim + size.head_dim) + size.width
    inside = _inner_weights(size) + biases
    if not kind.startswith("bottleneck"):
        return inside
    around = 2 * config.hidden_size * size.width + size.width + config.hidden_size
    mixed = config.bottleneck_kernel * size.width if config.bottleneck_kernel > 1 else 0
    return inside + around + mixed + int(config.bottleneck_inner_residual)


def cached_numbers(config: BottleneckConfig, kind: str) -> int:
    """What a layer's cache keeps of each token.

    Example:
        >>> plain, narrow = (BottleneckConfig(layer_pattern=kind) for kind in ("full", "bottleneck"))
        >>> cached_numbers(plain, "full"), cached_numbers(narrow, "bottleneck")
        (1024, 256)
    """
    size = size_of(config, kind)
    if kind.startswith("bottleneck") and config.cache_kind == "narrow_states":
        return size.width
    return size.groups * (size.key_dim + size.head_dim)


def model_cost(config: BottleneckConfig, *, length: int) -> Cost:
    """Of all layers.

    Args:
        config: with the sizes.
        length: tokens of the text.
    """
    width, inner = config.hidden_size, cast(int, config.intermediate_size)
    macs = sum(block_macs(config, kind, length).total for kind in config.kinds)
    # The feed-forward layer, and a scale and a shift of each of two norms.
    beside = 2 * width * inner + width + inner + 4 * width
    parameters = sum(attention_parameters(config, kind) + beside for kind in config.kinds)
    return Cost(macs, parameters)


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
    times = length if by == "flops" else 1
    each = config.num_hidden_layers * (2 * config.hidden_size * times + (1 if by == "parameters" else 0))
    ours, theirs = (_by(model_cost(one, length=length), by) for one in (bare, like))
    size = round((theirs - ours) / each)
    if size < 1:
        raise UsageError(
            f"expected a config that is cheaper than the one to match by {by}, got one that needs {ours:,.0f} of its "
            f"{theirs:,.0f} before its feed-forward layers; narrow it more"
        )
    bare.intermediate_size = size
    return bare


def _by(cost: Cost, by: str) -> int:
    return cost.parameters if by == "parameters" else cost.macs


def _inner_weights(size: Size) -> int:
    """Of the projections to queries, keys and values, and of the one behind attention."""
    projected = size.heads * size.key_dim + size.groups * (size.key_dim + size.head_dim)
    return size.width * (projected + size.width)
