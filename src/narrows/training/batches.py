"""Rows into batches of like size, for a whole run at once."""

from collections.abc import Iterator, Sequence
from itertools import islice

from torch.utils.data import Sampler

from narrows.data import shuffled_batches
from narrows.errors import UsageError

__all__ = ["BatchPlan"]


class BatchPlan(Sampler[list[int]]):
    """All batches of a whole run in their order, so that a resumed run goes on with the very next one.

    Args:
        lengths: tokens of each row.
        batch_tokens: padded tokens of a batch at most.
        epochs: passes over the rows; a fraction ends inside one.
        seed: decides the order.
        batch_rows: rows of a batch at most; None: as many as the tokens let.

    Raises:
        UsageError: so small a part of an epoch that no batch is left.
    """

    def __init__(
        self, lengths: Sequence[int], *, batch_tokens: int, epochs: float, seed: int, batch_rows: int | None = None
    ):
        self._lengths, self._batch_tokens, self._epochs, self._seed = lengths, batch_tokens, epochs, seed
        self._batch_rows = batch_rows
        self._batches = list(self._plan())
        if not self._batches:
            raise UsageError(f"expected at least one batch in {epochs} epochs, got none; raise optimiser.epochs")

    def _plan(self) -> Iterator[list[int]]:
        whole = int(self._epochs)
        for epoch in range(whole):
            yield from self._epoch(epoch)
        rest = self._epoch(whole) if self._epochs > whole else []
        yield from islice(rest, round(len(rest) * (self._epochs - whole)))

    def _epoch(self, epoch: int) -> list[list[int]]:
        return shuffled_batches(
            self._lengths,
            batch_tokens=self._batch_tokens,
            seed=self._seed,
            epoch=epoch,
            max_items=self._batch_rows,
        )

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self._batches)

    def __len__(self) -> int:
        return len(self._batches)
