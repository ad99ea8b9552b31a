"""Which passages of a store are worth reading for a question."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np

from narrows.errors import UsageError
from narrows.store import Hit, Store

__all__ = ["DEFAULT_RETRIEVAL", "Candidate", "Retrieval", "find_candidates", "fuse"]

Retrieval = Literal["bm25", "dense", "both"]

DEFAULT_RETRIEVAL: Retrieval = "bm25"

# The constant of reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009).
_RANK_OFFSET = 60
# Passages whose BM25 scores a passage is compared with, however many are read.
_BACKGROUND = 32
# How far down the ranking by words a passage that was found by its vector is looked for.
_WORDS_DEPTH = 1000


class Candidate(NamedTuple):
    """A passage worth reading: its row, and what its words say for it.

    That is the standard score of its BM25 score among the question's 32 best (0 for each that is lacking): how many
    standard deviations it lies above their mean. Unlike BM25 itself it grows neither with the store nor with the
    length of the question.
    """

    row_id: int
    evidence: float


def find_candidates(
    store: Store,
    question: str,
    *,
    limit: int,
    retrieval: Retrieval = DEFAULT_RETRIEVAL,
    embed: Callable[[str], np.ndarray],
) -> list[Candidate]:
    """The passages to read, the most promising first.

    Args:
        store: where to look.
        question: what is asked.
        limit: most passages.
        retrieval: `bm25` (words in common), `dense` (nearest vectors), or `both`, fused by their ranks.
        embed: gives the question's vector; called for `dense` and `both` only.

    Returns:
        At most `limit` passages. A question without a word to look for ("who is it?") says nothing about where to
        look: `bm25` then gives the first passages of the store, and `both` those nearest. A passage found by its
        vector alone counts as one without a word in common, that is, a BM25 score of 0, when it is not among the
        1,000 best by words.

    Raises:
        UsageError: an unknown retrieval, a limit under 1, or a store without vectors where they are needed.
    """
    if retrieval not in get_args(Retrieval):
        raise UsageError(f"`retrieval` must be one of {', '.join(get_args(Retrieval))}, got {retrieval!r}; choose one")
    if limit < 1:
        raise UsageError(f"`candidates` must be at least 1, got {limit}; read 1 or more passages")
    if retrieval != "bm25":
        store.require_vectors()
    found = _by_words(store, question, max(limit, _BACKGROUND if retrieval == "bm25" else _WORDS_DEPTH))
    evidence_of = _standard_score([hit.score for hit in found[:_BACKGROUND]])
    scores = {hit.row_id: hit.score for hit in found}
    rankings = []
    if retrieval != "dense":
        rankings.append([hit.row_id for hit in found[:limit]])
    if retrieval != "bm25":
        rankings.append([hit.row_id for hit in store.nearest(embed(question), limit)])
    if not any(rankings):
        rankings = [store.first(limit)]
    return [Candidate(row, evidence_of(scores.get(row, 0.0))) for row in fuse(rankings)[:limit]]


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


def _by_words(store: Store, question: str, limit: int) -> list[Hit]:
    has_words = any(letter.isalnum() for letter in question)
    return store.search(question, limit) if has_words else []


def _standard_score(best: Sequence[float]) -> Callable[[float], float]:
    """Gives standard deviations above the mean of the best scores; 0 where they are all equal."""
    padded = np.zeros(_BACKGROUND)
    padded[: len(best)] = best
    mean, spread = float(padded.mean()), float(padded.std())
    return lambda score: (score - mean) / spread if spread else 0.0
