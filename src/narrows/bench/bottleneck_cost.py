"""What bottleneck attention keeps for its backward pass, and what its peer of latent keys costs, in closed form."""

from typing import NamedTuple

from narrows.bottleneck.config import BottleneckConfig
from narrows.bottleneck.cost import Macs, pairs, size_of

__all__ = ["Kept", "kept_states", "latent_macs"]


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


def kept_states(config: BottleneckConfig, kind: str) -> Kept:
    """What attention keeps of each token until the backward pass, by the fast kernel.

    The input is left out, as it is kept by what made it, and so are the rotations, which all layers share.

    Example:
        >>> plain, narrow = (BottleneckConfig(layer_pattern=kind) for kind in ("full", "bottleneck"))
        >>> kept_states(plain, "full"), kept_states(narrow, "bottleneck")
        (Kept(core=2048, around=0, sums=8), Kept(core=512, around=512, sums=2))
    """
    size = size_of(config, kind)
    # Queries and keys narrower than values are filled up for the kernel.
    core = 2 * size.width + 2 * size.groups * size.head_dim
    around = 0
    if kind.startswith("bottleneck"):
        # What the activation read, what the projections read, what the up-projection read; and the convolution.
        around = size.width * (4 if config.bottleneck_kernel > 1 else 3)
    return Kept(core, around, size.heads)
