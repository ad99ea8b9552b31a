"""A batch as the layers see it: real tokens at the front of each row, and where they stand in what was read before."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol, Self

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from narrows.bottleneck.rotary import Rotation, rotation
from narrows.core import Compact, compact

__all__ = ["Memory", "Rows", "arrange"]


class Memory(Protocol):
    """What a layer keeps of the tokens it has read, in the caller's order of columns; a cache has one a layer."""

    tail: Tensor | None
    """`[batch, kernel − 1, width]`: what the convolution reads of the tokens before; None: nothing yet."""

    @property
    def keeps_states(self) -> bool:
        """Whether it keeps the narrow states alone, of which keys and values are made again."""
        ...

    def update(self, key_states: Tensor, value_states: Tensor) -> tuple[Tensor, Tensor]:
        """Add columns, `[batch, heads, new, dim]`, and return all."""
        ...


class Rows(NamedTuple):
    """Made by `arrange`.

    Attributes:
        lengths: `[batch]`, real tokens of each row; None: all are.
        order: how the caller's tokens were moved to the front; None: they were not.
        past: columns that a cache holds already.
        places: `[batch, length]`, place of each token in its text; None: its place in the row.
        columns: `[batch, past + length]`, place of what stands in each of the caller's columns, −1 at padding; None
            without a past.
        rotations: by the width of a head; of `places`.
        is_simple: whether nothing is padding and each row has one new token.
    """

    lengths: Int[Tensor, " batch"] | None
    order: Compact | None
    past: int
    places: Int[Tensor, "batch length"] | None
    columns: Int[Tensor, "batch columns"] | None
    rotations: Mapping[int, Rotation]
    is_simple: bool

    def gather(self, states: Tensor) -> Tensor:
        """The caller's `[batch, length, …]` with real tokens at the front, zeros behind them."""
        return states if self.order is None else self.blank(self.order.gather(states))

    def scatter(self, states: Tensor) -> Tensor:
        """Back to the caller's places, zeros at padding."""
        return states if self.order is None else self.order.scatter(self.blank(states))

    def blank(self, states: Tensor) -> Tensor:
        """Zeros at padding of rows in our order."""
        if self.lengths is None:
            return states
        padding = torch.arange(states.shape[1], device=states.device) >= self.lengths[:, None]
        return states.masked_fill(padding.view(*padding.shape, *(1,) * (states.dim() - 2)), 0)

    def scatter_heads(self, states: Float[Tensor, "batch heads length dim"]) -> Float[Tensor, "batch heads length dim"]:
        """As `scatter`, of heads."""
        return states if self.order is None else self.scatter(states.transpose(1, 2)).transpose(1, 2)

    @classmethod
    def plain(cls, length: int, *, dims: tuple[int, ...], base: float, device: torch.device | None = None) -> Self:
        """Rows without padding or a past."""
        places = torch.arange(length, device=device)
        rotations = {dim: rotation(places, dim=dim, base=base) for dim in dims}
        return cls(None, None, 0, None, None, rotations, is_simple=length == 1)


def arrange(
    real: Bool[Tensor, "batch columns"] | None,
    *,
    length: int,
    past: int,
    dims: tuple[int, ...],
    base: float,
    device: torch.device,
) -> Rows:
    """The rows of a batch.

    Args:
        real: True for real tokens, anywhere in the row, those of the past among them; None: all are.
        length: new tokens of each row.
        past: columns that a cache holds already.
        dims: widths of heads whose rotations are needed.
        base: of the rotations.
        device: of the new tensors.

    Example:
        >>> real, cpu = torch.tensor([[False, True]]), torch.device("cpu")
        >>> rows = arrange(real, length=2, past=0, dims=(), base=1.0, device=cpu)
        >>> rows.lengths.tolist(), rows.gather(torch.tensor([[7, 8]])).tolist()
        ([1], [[8, 0]])
    """
    if real is None:
        plain = Rows.plain(length, dims=(), base=base, device=device)
        places = torch.arange(past, past + length, device=device)[None]
        columns = torch.arange(past + length, device=device)[None]
        rotations = {dim: rotation(places, dim=dim, base=base) for dim in dims}
        if not past:
            return plain._replace(rotations=rotations)
        return plain._replace(past=past, places=places, columns=columns, rotations=rotations)
    order = compact(real[:, past:])
    before = real[:, :past].sum(1)
    places = before[:, None] + torch.arange(length, device=device)
    columns = torch.where(real, real.cumsum(1) - 1, -1) if past else None
    rotations = {dim: rotation(places, dim=dim, base=base) for dim in dims}
    return Rows(order.lengths, order, past, places, columns, rotations, is_simple=False)
