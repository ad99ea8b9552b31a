"""From block to block: which slots there are, where they stand, which are real, and what is in them.

A block's states stand in slots. Pooling covers the slots of one block by windows of `size`, each a slot of the next;
with `separate_cls` the first slot stays alone in a window of its own. Three rules differ in what padding does:

    exact      a slot is real if any slot it covers is; its state is that of the real ones; nothing is dropped
    official   a slot is real if any slot it covers is; its state is that of all of them
    hf         a slot is real if all slots it covers are; its state is that of all of them

The last two drop the last slot first if `truncate` is set (and the first stays alone), and do not pool what is as short
as one window, as the authors' code and transformers' do.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

__all__ = ["Pooling", "Slots", "real_lengths", "upsample"]


class Slots(NamedTuple):
    """The slots of a block; equal places for all rows of a batch."""

    length: int
    first: int = 0
    """Position of the first slot, in tokens."""
    stride: int = 1
    """From a slot to the next, in tokens."""
    mask: Bool[Tensor, "batch length"] | None = None
    """True for real slots; None: all are."""
    segments: Int[Tensor, "batch length"] | None = None
    """Of the first token of each slot; None: all tokens are of one segment."""
    visible: Bool[Tensor, "batch length"] | None = None
    """True for real slots that may be attended to; None: all real ones may."""


class Pooling(NamedTuple):
    """How one block's slots become the next one's."""

    kind: str = "mean"
    """`mean`, `max` or `top_attention`."""
    size: int = 2
    """Slots that a slot of the next block covers."""
    separate_cls: bool = True
    truncate: bool = False
    """Read by `official` and `hf` only."""
    rule: str = "exact"
    """`exact`, `official` or `hf`; see the module."""

    def keeps(self, length: int) -> bool:
        """Whether so few slots are not pooled at all."""
        return length <= (2 if self.separate_cls and self.rule != "exact" else 1)

    def slots(self, slots: Slots) -> Slots:
        """Those of the next block.

        Example:
            >>> Pooling().slots(Slots(6))
            Slots(length=4, first=-1, stride=2, mask=None, segments=None, visible=None)
        """
        if self.keeps(slots.length):
            return slots
        stride = slots.stride * self.size
        return Slots(
            length=self._pooled_length(slots.length),
            # One stride left of the first window, which begins at token 1: all slots are evenly spaced.
            first=1 - stride if self.separate_cls else 0,
            stride=stride,
            mask=None if slots.mask is None else self._pool_mask(slots.mask),
            segments=None if slots.segments is None else self._first_of_windows(slots.segments),
            visible=None if slots.visible is None else self._pool_mask(slots.visible),
        )

    def states(
        self,
        states: Float[Tensor, "batch length width"],
        slots: Slots,
        *,
        received: Float[Tensor, "batch length"] | None = None,
    ) -> Float[Tensor, "batch pooled width"]:
        """What is in the slots of the next block.

        Args:
            states: `[batch, length, width]`; those of padding may be anything finite.
            slots: of the states.
            received: of `top_attention`: the attention that each slot received.

        Returns:
            `[batch, pooled, width]` in the dtype of the states; sums are in at least fp32. What is in a slot without
            a real one is finite.

        Example:
            >>> states = torch.tensor([[[9.0], [1.0], [3.0], [5.0]]])
            >>> Pooling().states(states, Slots(4)).flatten().tolist()
            [9.0, 2.0, 5.0]
        """
        if self.keeps(states.shape[1]):
            return states
        rest = self._rest(states)
        mask = slots.mask if self.rule == "exact" else None
        real = torch.ones_like(rest[:1, :, 0], dtype=torch.bool) if mask is None else self._rest(mask)
        if self.kind == "mean":
            pooled = self._mean(rest, real, masked=mask is not None)
        elif self.kind == "max":
            pooled = self._max(rest, real, masked=mask is not None)
        else:
            assert received is not None
            pooled = self._top(rest, real, self._rest(received))
        return self._with_first(states, pooled)

    def totals(self, numbers: Float[Tensor, "batch length"]) -> Float[Tensor, "batch pooled"]:
        """The sum over the slots that each slot of the next block covers; nothing is dropped."""
        if self.keeps(numbers.shape[1]):
            return numbers
        return self._with_first(numbers, self._windows(self._rest(numbers), 0.0).sum(-1))

    def _pooled_length(self, length: int) -> int:
        if not self.separate_cls:
            return (length + self.size - 1) // self.size
        return 1 + (length - 1 - self._dropped + self.size - 1) // self.size

    @property
    def _dropped(self) -> int:
        return int(self.truncate and self.separate_cls and self.rule != "exact")

    def _rest(self, tensor: Tensor) -> Tensor:
        """What is pooled: all, or all but the first, and without the one that is dropped."""
        if not self.separate_cls:
            return tensor
        return tensor[:, 1:-1] if self._dropped else tensor[:, 1:]

    def _with_first(self, tensor: Tensor, pooled: Tensor) -> Tensor:
        return torch.cat([tensor[:, :1], pooled], 1) if self.separate_cls else pooled

    def _windows(self, tensor: Tensor, fill: float | bool) -> Tensor:
        """`[batch, windows, …, size]`, the last window filled up."""
        after = (0, 0) * (tensor.dim() - 2)
        # As many as a window may lack, whatever the length is: no padding that depends on a remainder.
        return functional.pad(tensor, (*after, 0, self.size - 1), value=fill).unfold(1, self.size, self.size)

    def _pool_mask(self, mask: Tensor) -> Tensor:
        if self.rule == "hf":
            return self._with_first(mask, self._windows(self._rest(mask), True).all(-1))
        return self._with_first(mask, self._windows(self._rest(mask), False).any(-1))

    def _first_of_windows(self, tensor: Tensor) -> Tensor:
        return self._with_first(tensor, self._rest(tensor)[:, :: self.size])

    def _mean(self, rest: Tensor, real: Tensor, *, masked: bool) -> Tensor:
        if masked:
            rest = rest.masked_fill(~real[:, :, None], 0.0)
        wide = torch.promote_types(rest.dtype, torch.float32)
        counts = self._windows(real, False).sum(-1).clamp_min(1)
        return (self._windows(rest, 0.0).sum(-1, dtype=wide) / counts[:, :, None]).to(rest.dtype)

    def _max(self, rest: Tensor, real: Tensor, *, masked: bool) -> Tensor:
        if masked:
            rest = rest.masked_fill(~real[:, :, None], float("-inf"))
        largest = self._windows(rest, float("-inf")).amax(-1)
        return largest.masked_fill(~self._windows(real, False).any(-1)[:, :, None], 0.0) if masked else largest

    def _top(self, rest: Tensor, real: Tensor, received: Tensor) -> Tensor:
        best = self._windows(received.masked_fill(~real, -1.0), -1.0).argmax(-1)
        places = best + self.size * torch.arange(best.shape[1], device=best.device)
        return rest.gather(1, places[:, :, None].expand(-1, -1, rest.shape[2]))


def upsample(
    states: Float[Tensor, "batch slots width"], length: int, *, factor: int, pooling: Pooling
) -> Float[Tensor, "batch length width"]:
    """Each token's slot in the last block.

    Args:
        states: `[batch, slots, width]` of the last block.
        length: tokens.
        factor: tokens that a slot covers.
        pooling: by which the slots came about. If it truncates, the last tokens may have no slot: zeros.

    Example:
        >>> upsample(torch.tensor([[[9.0], [2.0], [5.0]]]), 4, factor=2, pooling=Pooling()).flatten().tolist()
        [9.0, 2.0, 2.0, 5.0]
    """
    if factor == 1:
        return states
    tokens = torch.arange(length, device=states.device)
    slot = torch.div(tokens + (factor - 1 if pooling.separate_cls else 0), factor, rounding_mode="floor")
    last = states.shape[1] - 1
    spread = states.index_select(1, slot.clamp_max(last))
    return spread.masked_fill((slot > last)[:, None], 0.0) if pooling.rule != "exact" else spread


def real_lengths(slots: Slots, batch: int, device: torch.device) -> Int[Tensor, " batch"]:
    """Real slots of each row."""
    if slots.mask is None:
        return torch.full((batch,), slots.length, dtype=torch.long, device=device)
    return slots.mask.sum(1)
