"""The batches of a run whose inputs grow: short inputs first, long ones last, all in one order that is known before."""

import math
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from torch.utils.data import Sampler

from narrows.data import shuffled_batches
from narrows.errors import UsageError

__all__ = ["GrowingPlan", "Item", "Stage"]


class Item(NamedTuple):
    """A row of a stage, and the epoch that it is seen in."""

    stage: int
    epoch: int
    row: int


class Stage(NamedTuple):
    """One length of a run.

    Attributes:
        share: of the run's steps.
        lengths: tokens of each row.
        records: the rows of each record; a record stands as often as an epoch sees it.
    """

    share: float
    lengths: Sequence[int]
    records: Sequence[Sequence[int]]


class GrowingPlan(Sampler[list[Item]]):
    """All batches of a whole run in their order, so that a resumed run goes on with the very next one.

    The stages follow one another within the epochs: where one ends in the middle of an epoch, the next takes the
    records of that epoch which are left. A stage's part of the epochs is such that its part of the tokens, and so of
    the steps, is its share.

    Args:
        stages: in their order.
        batch_tokens: padded tokens of a batch at most.
        epochs: passes over the records; a fraction ends inside one.
        seed: decides the order.

    Raises:
        UsageError: so small a part of an epoch that no batch is left.
    """

    def __init__(self, stages: Sequence[Stage], *, batch_tokens: int, epochs: float, seed: int):
        self._stages, self._batch_tokens, self._seed = stages, batch_tokens, seed
        self._batches = list(self._plan(epochs))
        if not self._batches:
            raise UsageError(f"expected at least one batch in {epochs} epochs, got none; raise optimiser.epochs")

    def _plan(self, epochs: float) -> Iterator[list[Item]]:
        tokens = [sum(stage.lengths[row] for rows in stage.records for row in rows) for stage in self._stages]
        weights = [stage.share / max(1, count) for stage, count in zip(self._stages, tokens, strict=True)]
        start = 0.0
        for number, weight in enumerate(weights):
            last = number + 1 == len(weights)
            end = epochs if last else start + epochs * weight / sum(weights)
            for epoch in range(math.floor(start), math.ceil(end)):
                yield from self._part(number, epoch, max(start - epoch, 0.0), min(end - epoch, 1.0))
            start = end

    def _part(self, number: int, epoch: int, start: float, end: float) -> list[list[Item]]:
        """The records of an epoch from one share of it to another."""
        stage = self._stages[number]
        order = list(range(len(stage.records)))
        # By the epoch and not the stage: what one stage leaves of an epoch is what the next takes.
        random.Random(f"{self._seed}/{epoch}/records").shuffle(order)
        chosen = order[round(start * len(order)) : round(end * len(order))]
        rows = [row for record in chosen for row in stage.records[record]]
        batches = shuffled_batches(
            [stage.lengths[row] for row in rows], batch_tokens=self._batch_tokens, seed=self._seed, epoch=epoch
        )
        return [[Item(number, epoch, rows[place]) for place in batch] for batch in batches]

    def __iter__(self) -> Iterator[list[Item]]:
        return iter(self._batches)

    def __len__(self) -> int:
        return len(self._batches)
