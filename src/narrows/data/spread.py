"""A part of a list that stands for all of it."""

from collections.abc import Sequence
from typing import TypeVar

__all__ = ["evenly_spread"]

_Item = TypeVar("_Item")


def evenly_spread(items: Sequence[_Item], limit: int | None) -> Sequence[_Item]:
    """As many items as the limit lets, evenly spread and in their order, so that every document has its share.

    Args:
        items: all of them.
        limit: how many at most; None: all.

    Example:
        >>> evenly_spread("abcdefgh", 3), evenly_spread("ab", 3)
        (['a', 'c', 'f'], 'ab')
    """
    if limit is None or limit >= len(items):
        return items
    step = len(items) / limit
    return [items[int(index * step)] for index in range(limit)]
