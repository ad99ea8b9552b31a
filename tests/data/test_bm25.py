import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from narrows.data.bm25 import bm25_scores

ids = st.lists(st.integers(0, 6), max_size=8)


def plainly(parts, query, k1, b):
    """The formula, a part and a token at a time."""
    mean = sum(map(len, parts)) / len(parts)
    scores = []
    for part in parts:
        score = 0.0
        for token in query:
            found, holding = part.count(token), sum(token in other for other in parts)
            if found:
                rarity = math.log(1 + (len(parts) - holding + 0.5) / (holding + 0.5))
                score += rarity * found / (found + k1 * (1 - b + b * len(part) / mean))
        scores.append(score)
    return scores


@example([[], [1]], [1], 1.5, 1.0)
@given(st.lists(ids, min_size=1, max_size=5), ids, st.floats(0.1, 3), st.floats(0, 1))
def test_scores_equal_the_formula(parts, query, k1, b):
    np.testing.assert_allclose(bm25_scores(parts, query, k1=k1, b=b), plainly(parts, query, k1, b), rtol=1e-12)


@pytest.mark.parametrize("parts", [[], [[]], [[], []]])
def test_nothing_to_find(parts):
    assert bm25_scores(parts, [1]).tolist() == [0.0] * len(parts)


def test_what_is_rare_counts_more_and_a_long_part_less():
    scores = bm25_scores([[1, 2], [1, 3], [1, 3, 4, 4]], [2, 3])
    assert scores[0] > scores[1] > scores[2] > 0
