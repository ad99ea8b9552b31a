"""BM25 over the parts of one text, by token ids: which of them share rare words with a query."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

__all__ = ["bm25_scores"]


def bm25_scores(
    parts: Sequence[Sequence[int]], query: Sequence[int], *, k1: float = 1.5, b: float = 0.75
) -> np.ndarray:
    """Scores parts for a query, with the inverse document frequency of Lucene, which is never negative.

    A library's index is made for a corpus that is asked often; here each text is asked once and has some hundred
    parts, so that counting is all there is to do.

    Args:
        parts: token ids of each part.
        query: token ids; one that comes twice counts twice.
        k1: how fast a token that comes again stops counting.
        b: how much long parts are held back, from 0 to 1.

    Returns:
        A score a part, float64, at least 0; 0 where nothing is shared.

    Source: Robertson and Zaragoza 2009, "The Probabilistic Relevance Framework: BM25 and Beyond", §3; the idf of
    Kamphuis et al. 2020, table 1, "Lucene (accurate)".

    Example:
        >>> bm25_scores([[1, 2], [3, 4]], [3]).argmax()
        np.int64(1)
    """
    counts = [Counter(part) for part in parts]
    lengths = np.array([len(part) for part in parts], dtype=np.float64)
    scores = np.zeros(len(parts))
    if not lengths.any():
        return scores
    held_back = k1 * (1 - b + b * lengths / lengths.mean())
    for token, times in Counter(query).items():
        found = np.array([count[token] for count in counts], dtype=np.float64)
        holding = found > 0
        number = np.count_nonzero(holding)
        rarity = np.log1p((len(parts) - number + 0.5) / (number + 0.5))
        # Only where it is found: an empty part has nothing to divide by when b is 1.
        scores[holding] += times * rarity * found[holding] / (found[holding] + held_back[holding])
    return scores
