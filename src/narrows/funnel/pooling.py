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
        """Whether so few slots are not pooled at all. In `exact` pooling changes nothing in a single slot."""
        return self.rule != "exact" and length <= (2 if self.separate_cls else 1)

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
            length=self._windows(slots.length) + int(self.separate_cls),
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
        mask = slots.mask if self.rule == "exact" else None
        parts = self._parts(states.shape[1], states.device)
        real = [part.inside[None] if mask is None else part.inside & part.of(mask) for part in parts]
        if self.kind == "mean":
            pooled = _mean([part.of(states) for part in parts], real)
        elif self.kind == "max":
            pooled = _max([part.of(states) for part in parts], real)
        else:
            assert received is not None
            best = _best([part.of(received) for part in parts], real)
            places = (parts[0].places + best)[:, :, None].expand(-1, -1, states.shape[2])
            pooled = states.gather(1, places)
        return self._with_first(states, pooled)

    def totals(self, numbers: Float[Tensor, "batch length"]) -> Float[Tensor, "batch pooled"]:
        """The sum over the slots that each slot of the next block covers."""
        if self.keeps(numbers.shape[1]):
            return numbers
        parts = self._parts(numbers.shape[1], numbers.device)
        return self._with_first(numbers, torch.stack([part.of(numbers) * part.inside for part in parts]).sum(0))

    def _end(self, length: int) -> int:
        """Where the slots end that are pooled."""
        return length - int(self.truncate and self.separate_cls and self.rule != "exact")

    def _windows(self, length: int) -> int:
        """How many, without that of a first slot that stays alone."""
        return (self._end(length) - int(self.separate_cls) + self.size - 1) // self.size

    def _parts(self, length: int, device: torch.device) -> "list[_Part]":
        """The first slots of all windows, the second, and so on.

        By index and not by slices: the number of windows is then one expression wherever it occurs, which torch can
        follow through an export with a dynamic length.
        """
        end = self._end(length)
        first = int(self.separate_cls) + self.size * torch.arange(self._windows(length), device=device)
        return [_Part((first + place).clamp_max(end - 1), first + place < end) for place in range(self.size)]

    def _with_first(self, tensor: Tensor, pooled: Tensor) -> Tensor:
        return torch.cat([tensor[:, :1], pooled], 1) if self.separate_cls else pooled

    def _pool_mask(self, mask: Tensor) -> Tensor:
        parts = self._parts(mask.shape[1], mask.device)
        if self.rule == "hf":
            pooled = torch.stack([part.of(mask) | ~part.inside for part in parts]).all(0)
        else:
            pooled = torch.stack([part.of(mask) & part.inside for part in parts]).any(0)
        return self._with_first(mask, pooled)

    def _first_of_windows(self, tensor: Tensor) -> Tensor:
        return self._with_first(tensor, self._parts(tensor.shape[1], tensor.device)[0].of(tensor))


class _Part(NamedTuple):
    """One slot of each window."""

    places: Int[Tensor, " windows"]
    inside: Bool[Tensor, " windows"]
    """False beyond the end, where the last slot stands in."""

    def of(self, tensor: Tensor) -> Tensor:
        return tensor.index_select(1, self.places)


def _mean(parts: list[Tensor], real: list[Tensor]) -> Tensor:
    wide = torch.promote_types(parts[0].dtype, torch.float32)
    share = torch.stack(real).sum(0).clamp_min(1).to(wide).reciprocal()
    shares = [(part.to(wide) * (each * share)[:, :, None]) for part, each in zip(parts, real, strict=True)]
    return torch.stack(shares).sum(0).to(parts[0].dtype)


def _max(parts: list[Tensor], real: list[Tensor]) -> Tensor:
    shown = [part.masked_fill(~each[:, :, None], float("-inf")) for part, each in zip(parts, real, strict=True)]
    return torch.stack(shown).amax(0).masked_fill(~torch.stack(real).any(0)[:, :, None], 0.0)


def _best(received: list[Tensor], real: list[Tensor]) -> Tensor:
    """Place within its window of the real slot that received the most; the first of equals."""
    shown = [each.masked_fill(~here, -1.0) for each, here in zip(received, real, strict=True)]
    return torch.stack(shown).argmax(0)


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
