"""Batches that hold to a budget of tokens instead of a number of items."""

import random
from collections.abc import Sequence

from narrows.errors import UsageError

__all__ = ["equal_length_batches", "restore", "shuffled_batches", "token_budget_batches"]

# Batches' worth of items sorted together when training: more wastes less padding, fewer mixes better.
_BATCHES_PER_POOL = 50


def token_budget_batches(lengths: Sequence[int], *, batch_tokens: int, max_items: int | None = None) -> list[list[int]]:
    """Groups items of like length so that a padded batch stays within a budget.

    Args:
        lengths: length of each item, in tokens.
        batch_tokens: largest padded size of a batch (items times its longest length), in tokens. An item
            that is longer on its own is a batch of one: nothing is dropped. An empty item counts as one.
        max_items: most items in a batch; no such limit when None.

    Returns:
        Batches of indices into `lengths`, longest first (what does not fit in memory fails at once); items
        of one length keep their order. Each index is in exactly one batch.

    Raises:
        UsageError: `batch_tokens` or `max_items` is under 1, or a length is negative.

    Example:
        >>> token_budget_batches([2, 5, 3, 2], batch_tokens=6)
        [[1], [2, 0], [3]]
    """
    _check_budget(lengths, batch_tokens, max_items)
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    return _cut(order, lengths, batch_tokens, max_items)


def equal_length_batches(lengths: Sequence[int], *, batch_tokens: int) -> list[list[int]]:
    """The same for models whose outputs change with padding: all items of a batch have one length.

    Args:
        lengths: as in `token_budget_batches`.
        batch_tokens: as in `token_budget_batches`.

    Returns:
        Batches of indices, longest first; each index is in exactly one batch.

    Raises:
        UsageError: as `token_budget_batches`.

    Example:
        >>> equal_length_batches([2, 5, 3, 2], batch_tokens=6)
        [[1], [2], [0, 3]]
    """
    _check_budget(lengths, batch_tokens, None)
    alike: dict[int, list[int]] = {}
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        alike.setdefault(lengths[index], []).append(index)
    return [batch for group in alike.values() for batch in _cut(group, lengths, batch_tokens, None)]


def restore(order: Sequence[int]) -> list[int]:
    """The way back from a processing order: `[results[i] for i in restore(order)]` is in input order.

    Args:
        order: the indices in the order in which they were processed (the batches, one after another).

    Returns:
        For each input index, where its result stands among the results.

    Raises:
        UsageError: `order` does not hold each of `0 .. len(order) - 1` once.

    Example:
        >>> restore([2, 0, 1])
        [1, 2, 0]
    """
    places = [-1] * len(order)
    for place, index in enumerate(order):
        if not 0 <= index < len(order) or places[index] != -1:
            raise UsageError(
                f"expected an order that holds each of 0 to {len(order) - 1} once, got {index} "
                f"at place {place}; pass the batches' indices one after another."
            )
        places[index] = place
    return places


def shuffled_batches(
    lengths: Sequence[int], *, batch_tokens: int, seed: int, epoch: int, max_items: int | None = None
) -> list[list[int]]:
    """Random batches for training that still waste little padding.

    Items are shuffled, taken in pools of about 50 batches, sorted by length within a pool and cut by the
    token budget; then the batches are shuffled.

    Args:
        lengths: length of each item, in tokens.
        batch_tokens: as in `token_budget_batches`.
        seed: the run's seed.
        epoch: the pass over the data; each has its own order.
        max_items: as in `token_budget_batches`.

    Returns:
        Batches of indices, the same for the same `seed` and `epoch`. Each index is in exactly one batch.

    Raises:
        UsageError: as `token_budget_batches`.
    """
    _check_budget(lengths, batch_tokens, max_items)
    # A string seed is hashed whole, so (seed 1, epoch 2) and (seed 2, epoch 1) differ.
    generator = random.Random(f"{seed}/{epoch}")
    order = list(range(len(lengths)))
    generator.shuffle(order)
    batches: list[list[int]] = []
    pool: list[int] = []
    tokens = 0
    for index in order:
        pool.append(index)
        tokens += lengths[index]
        full = tokens >= _BATCHES_PER_POOL * batch_tokens
        if full or (max_items is not None and len(pool) >= _BATCHES_PER_POOL * max_items):
            batches += _cut_sorted(pool, lengths, batch_tokens, max_items)
            pool, tokens = [], 0
    batches += _cut_sorted(pool, lengths, batch_tokens, max_items)
    generator.shuffle(batches)
    return batches


def _cut_sorted(pool: list[int], lengths: Sequence[int], batch_tokens: int, max_items: int | None) -> list[list[int]]:
    return _cut(sorted(pool, key=lambda index: -lengths[index]), lengths, batch_tokens, max_items)


def _cut(order: Sequence[int], lengths: Sequence[int], batch_tokens: int, max_items: int | None) -> list[list[int]]:
    batches: list[list[int]] = []
    limit = 0
    for index in order:
        if not batches or len(batches[-1]) >= limit:
            # The order is longest first, so the first item sets the width of its batch.
            limit = max(1, batch_tokens // max(1, lengths[index]))
            limit = limit if max_items is None else min(limit, max_items)
            batches.append([])
        batches[-1].append(index)
    return batches


def _check_budget(lengths: Sequence[int], batch_tokens: int, max_items: int | None) -> None:
    if batch_tokens < 1:
        raise UsageError(f"expected batch_tokens of at least 1, got {batch_tokens}; pass a larger budget.")
    if max_items is not None and max_items < 1:
        raise UsageError(f"expected max_items of at least 1, got {max_items}; pass None for no limit.")
    if any(length < 0 for length in lengths):
        raise UsageError(f"expected lengths of at least 0, got {min(lengths)}; pass token counts.")
