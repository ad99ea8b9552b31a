"""The area under the ROC curve is the share of pairs in the right order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrows.evaluation.detection import area_under_curve


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30))
def test_it_is_the_share_of_pairs_in_the_right_order(drawn) -> None:
    scores, positive = np.array([score for score, _ in drawn], dtype=float), np.array([kind for _, kind in drawn])
    pairs = [(one > other) + 0.5 * (one == other) for one in scores[positive] for other in scores[~positive]]
    expected = np.mean(pairs) if pairs else 0.5
    assert area_under_curve(scores, positive) == pytest.approx(expected)
    assert area_under_curve(-scores, positive) == pytest.approx(1 - expected)


def test_without_one_of_the_kinds_it_is_chance() -> None:
    assert area_under_curve(np.arange(3.0), np.ones(3, dtype=bool)) == 0.5
    assert area_under_curve(np.arange(3.0), np.zeros(3, dtype=bool)) == 0.5
