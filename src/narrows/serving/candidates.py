"""Which passages of a store are worth reading for a question."""

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import numpy as np

from narrows.errors import UsageError
from narrows.store import Store

__all__ = ["DEFAULT_RETRIEVAL", "Retrieval", "find_candidates", "fuse"]

Retrieval = Literal["bm25", "dense", "both"]

DEFAULT_RETRIEVAL: Retrieval = "bm25"

# The constant of reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009).
_RANK_OFFSET = 60


def find_candidates(
    store: Store,
    question: str,
    *,
    limit: int,
    retrieval: Retrieval = DEFAULT_RETRIEVAL,
    embed: Callable[[str], np.ndarray],
) -> list[int]:
    """Row ids of the passages to read, the most promising first.

    Args:
        store: where to look.
        question: what is asked.
        limit: most passages.
        retrieval: `bm25` (words in common), `dense` (nearest vectors), or `both`, fused by their ranks.
        embed: gives the question's vector; called for `dense` and `both` only.

    Returns:
        At most `limit` row ids. A question without a word to look for ("who is it?") says nothing about where
        to look: `bm25` then gives the first passages of the store.

    Raises:
        UsageError: an unknown retrieval, a limit under 1, or a store without vectors where they are needed.
    """
    if retrieval not in get_args(Retrieval):
        raise UsageError(f"`retrieval` must be one of {', '.join(get_args(Retrieval))}, got {retrieval!r}; choose one")
    if limit < 1:
        raise UsageError(f"`candidates` must be at least 1, got {limit}; read 1 or more passages")
    rankings = []
    if retrieval in ("bm25", "both"):
        rankings.append(_by_words(store, question, limit))
    if retrieval in ("dense", "both"):
        rankings.append([hit.row_id for hit in store.nearest(embed(question), limit)])
    return fuse(rankings)[:limit]


def fuse(rankings: Sequence[Sequence[int]]) -> list[int]:
    """Join rankings by the sum of `1 / (60 + rank)`, rank counted from 1; equal sums keep their first order.

    Example:
        >>> fuse([[7, 8, 9], [9, 7]])
        [7, 9, 8]
    """
    sums: dict[int, float] = {}
    for ranking in rankings:
        for rank, row in enumerate(ranking, start=1):
            sums[row] = sums.get(row, 0.0) + 1 / (_RANK_OFFSET + rank)
    return sorted(sums, key=lambda row: -sums[row])


def _by_words(store: Store, question: str, limit: int) -> list[int]:
    has_words = any(letter.isalnum() for letter in question)
    found = [hit.row_id for hit in store.search(question, limit)] if has_words else []
    return found or store.first(limit)
