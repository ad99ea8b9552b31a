"""Rotary positions: queries and keys are turned by their places, so that scores depend on distances alone."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["Rotation", "rotate", "rotation"]


class Rotation(NamedTuple):
    """Cosines and sines by place, fp32, broadcastable to `[batch, heads, length, pairs]`."""

    cosines: Tensor
    sines: Tensor


def rotation(places: Int[Tensor, "*batch length"], *, dim: int, base: float) -> Rotation:
    """The angles of each place: place · base^(−2·pair / dim).

    Args:
        places: of the tokens in their text.
        dim: of a head; of an odd one the last number is not turned.
        base: of the angles.

    Source: Su et al., RoFormer (2021), section 3.2.2.

    Example:
        >>> rotation(torch.tensor([0, 1]), dim=2, base=10_000.0).sines.tolist()
        [[0.0], [0.8414709568023682]]
    """
    pairs = torch.arange(dim // 2, device=places.device, dtype=torch.float32)
    angles = places[..., None] * base ** (-2 * pairs / max(dim, 1))
    if angles.dim() == 3:
        angles = angles[:, None]
    return Rotation(angles.cos(), angles.sin())


def rotate(states: Float[Tensor, "batch heads length dim"], by: Rotation) -> Float[Tensor, "batch heads length dim"]:
    """Number i and number i + dim/2 of each head turned as a pair; in fp32, and back to the states' dtype.

    Example:
        >>> quarter = Rotation(torch.zeros(1, 1), torch.ones(1, 1))
        >>> rotate(torch.tensor([[[[1.0, 0.0]]]]), quarter).tolist()
        [[[[0.0, 1.0]]]]
    """
    pairs = by.cosines.shape[-1]
    first, second, rest = states.split((pairs, pairs, states.shape[-1] - 2 * pairs), dim=-1)
    turned = (first * by.cosines - second * by.sines, second * by.cosines + first * by.sines, rest)
    return torch.cat([part.to(states.dtype) for part in turned], dim=-1)
