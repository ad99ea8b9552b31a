"""MRR, nDCG and recall of rankings, as trec_eval counts them: linear gains, what was not judged gains nothing."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from narrows.errors import UsageError

__all__ = ["judged_ranks", "ndcg", "recall", "reciprocal_rank"]


def judged_ranks(scores: np.ndarray, gains: Mapping[int, float]) -> dict[int, int]:
    """Where the judged candidates of one query stand when all are ordered by their scores, the highest first.

    Among equal scores those that gain less come first, so that a model which tells nothing apart gains nothing by the
    order of a file.

    Args:
        scores: one a candidate, finite, `[candidates]`.
        gains: by candidate, at least 0; candidates that are not named gain 0.

    Returns:
        The rank, from 1, of each candidate named in `gains`.

    Raises:
        UsageError: a score is not finite, or a gain names no candidate.

    Example:
        >>> judged_ranks(np.array([0.1, 0.9, 0.9]), {1: 1.0})
        {1: 2}
    """
    if scores.ndim != 1 or not np.isfinite(scores).all():
        raise UsageError(
            f"expected one finite score a candidate, got scores of shape {scores.shape} with "
            f"{int((~np.isfinite(scores)).sum())} that are not finite; check the embeddings."
        )
    worth = np.zeros(len(scores))
    for candidate, gain in gains.items():
        if not 0 <= candidate < len(scores):
            raise UsageError(
                f"expected judgements of candidates 0 to {len(scores) - 1}, got one of {candidate}; "
                "pass scores of all candidates."
            )
        worth[candidate] = gain
    ranks = np.empty(len(scores), dtype=np.int64)
    ranks[np.lexsort((worth, -scores))] = np.arange(1, len(scores) + 1)
    return {candidate: int(ranks[candidate]) for candidate in gains}


def reciprocal_rank(ranks: Sequence[int], *, k: int) -> float:
    """1 over the rank of the first right candidate, or 0 where none is among the first `k`.

    Args:
        ranks: of the right candidates, from 1, in any order.
        k: how many of the ranking are looked at.

    Raises:
        UsageError: no ranks, one below 1, or a `k` below 1.

    Example:
        >>> reciprocal_rank([7, 2], k=10)
        0.5
    """
    _check(ranks, k)
    return 1 / min(ranks) if min(ranks) <= k else 0.0


def recall(ranks: Sequence[int], *, k: int) -> float:
    """The share of the right candidates that are among the first `k`; arguments as of `reciprocal_rank`.

    Raises:
        UsageError: as `reciprocal_rank`.

    Example:
        >>> recall([7, 2, 30, 4], k=10)
        0.75
    """
    _check(ranks, k)
    return sum(rank <= k for rank in ranks) / len(ranks)


def ndcg(ranks: Sequence[int], gains: Sequence[float], *, k: int) -> float:
    """Discounted gain of the first `k`, over that of the best order there is.

    Args:
        ranks: of the judged candidates, from 1.
        gains: of the same candidates, at least 0 and one above 0.
        k: how many of the ranking are looked at.

    Raises:
        UsageError: as `reciprocal_rank`; unlike numbers of ranks and gains, a negative gain, or none above 0.

    Source: Järvelin and Kekäläinen 2002, with log2(rank + 1) as in trec_eval.

    Example:
        >>> ndcg([2], [1.0], k=10)  # 1 / log2(3)
        0.6309297535714575
    """
    _check(ranks, k)
    if len(gains) != len(ranks) or min(gains) < 0 or max(gains) <= 0:
        raise UsageError(
            f"expected a gain of at least 0 for each of {len(ranks)} ranks and one above 0, got {list(gains)[:8]}; "
            "leave out queries without a right candidate."
        )
    found = sum(gain / math.log2(rank + 1) for rank, gain in zip(ranks, gains, strict=True) if rank <= k)
    best = sorted(gains, reverse=True)[:k]
    return found / sum(gain / math.log2(place + 2) for place, gain in enumerate(best))


def _check(ranks: Sequence[int], k: int) -> None:
    if k < 1:
        raise UsageError(f"expected a k of at least 1, got {k}; pass how many of the ranking to look at.")
    if not ranks or min(ranks) < 1:
        raise UsageError(
            f"expected ranks from 1 on of at least one candidate, got {list(ranks)[:8]}; "
            "leave out queries without a right candidate."
        )
