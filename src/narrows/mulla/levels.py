"""The pyramid of levels: how long each is, which of its slots a query sees, and pooling into it and back.

Level 1 is the text; a slot of level l covers K^(l−1) tokens and holds the mean of those that exist. Integer arithmetic
throughout. Source: Zhou, LongT5-Mulla (IEEE Access 2023); what is read into it is stated in the README.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from narrows.core.windows import window
from narrows.errors import UsageError

__all__ = ["LOCAL_RADIUS", "VARIANTS", "Pyramid", "covered_tokens", "pool", "slot_means", "unpool_"]

LOCAL_RADIUS = 127
"""The source's, and LongT5's."""

VARIANTS: dict[str, tuple[int, int | None]] = {"fixed": (4, 3), "dynamic": (8, None)}
"""The versions that the source recommends: pooling rate, and levels (None: as many as a text needs)."""


@dataclass(frozen=True)
class Pyramid:
    """The numbers that define which keys a query sees.

    Args:
        radius: slots that a query sees to each side, at every level; at least 1.
        pooling_rate: slots of a level that one slot of the next covers; at least 2.
        num_levels: how many levels every text has (the fixed version), or None: as many as it takes to reach one that
            is no longer than `radius`, so that every query sees the whole text (the dynamic version).

    Raises:
        UsageError: a number is out of its range.
    """

    radius: int
    pooling_rate: int
    num_levels: int | None = None

    def __post_init__(self) -> None:
        for name, value, least in (
            ("radius", self.radius, 1),
            ("pooling_rate", self.pooling_rate, 2),
            ("num_levels", self.num_levels, 1),
        ):
            if name == "num_levels" and value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise UsageError(
                    f"`{name}` must be a whole number of at least {least}, got {value!r}; choose such a one"
                )

    def lengths(self, length: int) -> tuple[int, ...]:
        """Slots of each level for a text of `length` tokens: ceil(length / K^(l−1)).

        Example:
            >>> Pyramid(radius=127, pooling_rate=8).lengths(16_384)
            (16384, 2048, 256, 32)
            >>> Pyramid(radius=127, pooling_rate=4, num_levels=3).lengths(10)
            (10, 3, 1)
        """
        lengths = [length]
        while len(lengths) < self.num_levels if self.num_levels is not None else lengths[-1] > self.radius:
            lengths.append(-(-lengths[-1] // self.pooling_rate))
        return tuple(lengths)

    def span(self, level: int) -> int:
        """Tokens that a slot covers; `level` counts from 0, the text itself."""
        return self.pooling_rate**level

    def visible(self, position: int, length: int) -> tuple[range, ...]:
        """The slots that one query sees at each level of a text of `length` tokens.

        Example:
            >>> Pyramid(radius=2, pooling_rate=3).visible(7, length=10)
            (range(5, 10), range(0, 4), range(0, 2))
        """
        found = []
        for level, slots in enumerate(self.lengths(length)):
            keys = window(range(position, position + 1), radius=self.radius, length=slots, span=self.span(level)).keys
            found.append(range(keys.start, keys.stop))
        return tuple(found)


def covered_tokens(
    lengths: Int[Tensor, " batch"], pyramid: Pyramid, level: int, *, length: int
) -> Int[Tensor, "batch slots"]:
    """How many real tokens each slot of a level covers, in rows padded to `length`; 0: the slot does not exist.

    Dynamic levels are those of the row's own length: one exists where the level below it is longer than the radius.

    Example:
        >>> covered_tokens(torch.tensor([7, 2]), Pyramid(radius=2, pooling_rate=3), 1, length=8).tolist()
        [[3, 3, 1], [0, 0, 0]]
    """
    starts = torch.arange(0, length, pyramid.span(level), device=lengths.device)
    covered = (lengths[:, None] - starts).clamp(0, pyramid.span(level))
    if level == 0 or pyramid.num_levels is not None:
        return covered
    slots_below = -(-lengths // pyramid.span(level - 1))
    return covered * (slots_below > pyramid.radius)[:, None]


def slot_means(
    states: Float[Tensor, "batch heads length dim"], covered: Int[Tensor, "batch slots"], *, span: int
) -> Float[Tensor, "batch heads slots dim"]:
    """Each slot's mean over its real tokens, in padded rows whose states are zero at padding; differentiable."""
    length, slots = states.shape[2], covered.shape[1]
    states = functional.pad(states, (0, 0, 0, slots * span - length))
    return states.unflatten(2, (slots, span)).sum(3) / covered.clamp_min(1)[:, None, :, None]


def pool(
    states: Float[Tensor, "batch heads length dim"], *, pooling_rate: int, num_levels: int
) -> list[Float[Tensor, "batch heads _ dim"]]:
    """The states of every level, those given first; a slot is the mean of the tokens it covers, all of them real.

    Sums, not means, are handed from level to level, so that every token weighs the same in the last slot too. They are
    kept in at least fp32 and added one by one: a reduction with a dtype of its own would copy all states to it first.
    Not differentiable by autograd; `unpool_` is its adjoint.

    Example:
        >>> states = torch.tensor([1.0, 3.0, 5.0, 7.0, 9.0]).view(1, 1, 5, 1)
        >>> [level.flatten().tolist() for level in pool(states, pooling_rate=2, num_levels=3)]
        [[1.0, 3.0, 5.0, 7.0, 9.0], [2.0, 6.0, 9.0], [4.0, 9.0]]
    """
    wide = torch.promote_types(states.dtype, torch.float32)
    levels, sums = [states], states
    for level in range(1, num_levels):
        first = sums[:, :, ::pooling_rate]
        added = first.to(wide, copy=True)
        for step in range(1, min(pooling_rate, sums.shape[2])):
            item = sums[:, :, step::pooling_rate]
            added[:, :, : item.shape[2]] += item
        sums = added
        levels.append((sums / _covered(states.shape[2], sums, pooling_rate**level)).to(states.dtype))
    return levels


def unpool_(gradients: Sequence[Float[Tensor, "batch heads _ dim"]], *, pooling_rate: int) -> Tensor:
    """The gradient of the states from the gradients of the levels that `pool` made of them, added into the first.

    Example:
        >>> gradients = [torch.zeros(1, 1, 3, 1), torch.tensor([4.0, 6.0]).view(1, 1, 2, 1)]
        >>> unpool_(gradients, pooling_rate=2).flatten().tolist()
        [2.0, 2.0, 6.0]
    """
    states, of_sums = gradients[0], None
    for level in range(len(gradients) - 1, 0, -1):
        of_means = gradients[level]
        below = of_means / _covered(states.shape[2], of_means, pooling_rate**level)
        if of_sums is not None:
            _spread_(of_sums, below, pooling_rate)
        of_sums = below
    if of_sums is not None:
        _spread_(of_sums, states, pooling_rate)
    return states


def _covered(length: int, level: Tensor, span: int) -> Tensor:
    """`[slots, 1]`: how many tokens each slot covers; all `span` but for the last."""
    starts = torch.arange(level.shape[2], device=level.device) * span
    return (length - starts).clamp_max(span)[:, None]


def _spread_(slots: Tensor, below: Tensor, pooling_rate: int) -> None:
    """Add each slot to all the slots that it covers one level below."""
    for step in range(min(pooling_rate, below.shape[2])):
        item = below[:, :, step::pooling_rate]
        item += slots[:, :, : item.shape[2]]
