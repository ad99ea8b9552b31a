"""Real tokens to the front of their rows and back, so that padding anywhere is the same as padding at the end."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

__all__ = ["Compact", "compact"]


class Compact(NamedTuple):
    """Where each token goes; made by `compact`."""

    lengths: Int[Tensor, " batch"]
    """Real tokens of each row."""
    order: Int[Tensor, "batch length"]
    """The real tokens' positions, in their order, then the padding's."""
    places: Int[Tensor, "batch length"]
    """The inverse of `order`."""

    def gather(self, states: Tensor) -> Tensor:
        """`[batch, length, …]` with the real tokens first; what stood at padding follows them."""
        return _take(states, self.order)

    def scatter(self, states: Tensor) -> Tensor:
        """Undoes `gather`."""
        return _take(states, self.places)


def compact(real: Bool[Tensor, "batch length"]) -> Compact:
    """How to move the real tokens of each row to its front, keeping their order.

    Args:
        real: True for real tokens.

    Example:
        >>> moved = compact(torch.tensor([[False, True, False, True]]))
        >>> moved.lengths.tolist(), moved.gather(torch.tensor([[5, 6, 7, 8]])).tolist()
        ([2], [[6, 8, 5, 7]])
        >>> moved.scatter(torch.tensor([[6, 8, 5, 7]])).tolist()
        [[5, 6, 7, 8]]
    """
    order = torch.argsort((~real).to(torch.uint8), dim=1, stable=True)
    return Compact(real.sum(1), order, torch.argsort(order, dim=1))


def _take(states: Tensor, index: Tensor) -> Tensor:
    wide = index.view(*index.shape, *(1,) * (states.dim() - 2)).expand(states.shape)
    return states.gather(1, wide)
