"""Closed-form arithmetic of bottleneck attention: what a ratio should save, before anything is measured.

Counted are the products of matrices, in multiplications with an addition (MACs) for one text; norms, activations,
rotations and the convolution on the narrow states are a few numbers a token beside them.
"""

from typing import NamedTuple, cast

from narrows.bottleneck.config import BottleneckConfig

__all__ = [
    "Kept",
    "Macs",
    "attention_macs",
    "attention_parameters",
    "block_macs",
    "kept_states",
    "latent_macs",
    "pairs",
]


class Macs(NamedTuple):
    """Of linear maps, and of scores and their weighted sums."""

    linear: int
    attention: int

    @property
    def total(self) -> int:
        """Both."""
        return self.linear + self.attention


class Kept(NamedTuple):
    """Numbers a token that are kept for the backward pass, without a layer's input and weights.

    Attributes:
        core: queries, keys, values, and what attention makes of them.
        around: what the parts around it read: the activation, the convolution, the projections.
        sums: logarithms of each head's sum.
    """

    core: int
    around: int
    sums: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.core + self.around + self.sums


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
    size = _size(config, kind)
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


def latent_macs(*, width: int, latent: int, length: int, causal: bool) -> Macs:
    """Of attention in the whole width whose keys and values are made of a narrower state, as in MLA.

    Args:
        width: of the states, the queries and the output.
        latent: of the state that keys and values are made of.
        length: tokens of the text.
        causal: see `pairs`.

    Example:
        >>> latent_macs(width=4, latent=2, length=3, causal=True)
        Macs(linear=168, attention=48)
    """
    linear = 2 * width * width + 3 * width * latent
    return Macs(length * linear, 2 * pairs(length, causal=causal) * width)


def attention_parameters(config: BottleneckConfig, kind: str) -> int:
    """Weights and biases of a layer's attention.

    Example:
        >>> bare = BottleneckConfig(hidden_size=512, bottleneck_kernel=0, bottleneck_inner_residual=False)
        >>> attention_parameters(bare, "bottleneck")
        197760
    """
    size = _size(config, kind)
    biases = size.heads * size.key_dim + size.groups * (size.key_dim + size.head_dim) + size.width
    inside = _inner_weights(size) + biases
    if not kind.startswith("bottleneck"):
        return inside
    around = 2 * config.hidden_size * size.width + size.width + config.hidden_size
    mixed = config.bottleneck_kernel * size.width if config.bottleneck_kernel > 1 else 0
    return inside + around + mixed + int(config.bottleneck_inner_residual)


def kept_states(config: BottleneckConfig, kind: str) -> Kept:
    """What attention keeps of each token until the backward pass, by the fast kernel.

    The input is left out, as it is kept by what made it, and so are the rotations, which all layers share.

    Example:
        >>> plain, narrow = (BottleneckConfig(layer_pattern=kind) for kind in ("full", "bottleneck"))
        >>> kept_states(plain, "full"), kept_states(narrow, "bottleneck")
        (Kept(core=2048, around=0, sums=8), Kept(core=512, around=512, sums=2))
    """
    size = _size(config, kind)
    # Queries and keys narrower than values are filled up for the kernel.
    core = 2 * size.width + 2 * size.groups * size.head_dim
    around = 0
    if kind.startswith("bottleneck"):
        # What the activation read, what the projections read, what the up-projection read; and the convolution.
        around = size.width * (4 if config.bottleneck_kernel > 1 else 3)
    return Kept(core, around, size.heads)


class _Size(NamedTuple):
    width: int
    heads: int
    groups: int
    key_dim: int
    head_dim: int


def _size(config: BottleneckConfig, kind: str) -> _Size:
    if not kind.startswith("bottleneck"):
        width, heads = config.hidden_size, cast(int, config.num_attention_heads)
        groups, key_dim = config.num_key_value_heads, None
    else:
        width, heads = config.inner_size, config.inner_heads
        groups, key_dim = config.bottleneck_key_value_heads, config.bottleneck_key_dim
    return _Size(width, heads, groups or heads, key_dim or width // heads, width // heads)


def _inner_weights(size: _Size) -> int:
    """Of the projections to queries, keys and values, and of the one behind attention."""
    projected = size.heads * size.key_dim + size.groups * (size.key_dim + size.head_dim)
    return size.width * (projected + size.width)
