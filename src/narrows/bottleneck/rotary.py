"""Rotary positions: queries and keys are turned by their places, so that scores depend on distances alone."""

from typing import Any, NamedTuple, cast

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


class _Rotate(torch.autograd.Function):
    """A rotation, whose gradient is turned back: nothing but the angles is kept for it."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
        ctx.save_for_backward(cosines, sines)
        return _turn(states, cosines, sines)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        cosines, sines = ctx.saved_tensors
        return rotate(gradients[0], Rotation(cosines, -sines)), None, None


def rotate(states: Float[Tensor, "batch heads length dim"], by: Rotation) -> Float[Tensor, "batch heads length dim"]:
    """Number i and number i + dim/2 of each head turned as a pair; in fp32, and back to the states' dtype.

    In memory the result is ordered as the states are, so that what a kernel makes of heads that were a token's numbers
    side by side is so again, and needs no copy.

    Example:
        >>> quarter = Rotation(torch.zeros(1, 1), torch.ones(1, 1))
        >>> rotate(torch.tensor([[[[1.0, 0.0]]]]), quarter).tolist()
        [[[[0.0, 1.0]]]]
    """
    if torch.is_grad_enabled() and states.requires_grad:
        return cast(Tensor, _Rotate.apply(states, *by))
    return _turn(states, *by)


def _turn(states: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    dtype, wide = states.dtype, torch.promote_types(states.dtype, cosines.dtype)
    pairs = cosines.shape[-1]
    turned, states = states.to(wide, copy=True), states.to(wide)
    first, second = states[..., :pairs], states[..., pairs : 2 * pairs]
    turned[..., :pairs].mul_(cosines).addcmul_(second, sines, value=-1)
    turned[..., pairs : 2 * pairs].mul_(cosines).addcmul_(first, sines)
    return turned.to(dtype)
