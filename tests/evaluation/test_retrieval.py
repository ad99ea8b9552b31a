"""Retrieval scores beside scikit-learn's and their formulas, and what they refuse."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrows.errors import UsageError
from narrows.evaluation.retrieval import judged_ranks, ndcg, recall, reciprocal_rank

_GAINS = st.lists(st.integers(0, 3), min_size=2, max_size=30).filter(any)


@given(gains=_GAINS, k=st.integers(1, 40), seed=st.integers(0, 99))
def test_ndcg_is_that_of_scikit_learn(gains, k, seed) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    scores = np.random.default_rng(seed).permutation(len(gains)).astype(float)
    ranks = judged_ranks(scores, {number: float(gain) for number, gain in enumerate(gains)})
    got = ndcg([ranks[number] for number in range(len(gains))], gains, k=k)
    assert got == pytest.approx(metrics.ndcg_score([gains], [scores], k=k))


@given(gains=_GAINS, k=st.integers(1, 40), seed=st.integers(0, 99))
def test_what_was_not_judged_is_a_gain_of_0(gains, k, seed) -> None:
    scores = np.random.default_rng(seed).normal(size=len(gains))
    whole = judged_ranks(scores, dict(enumerate(map(float, gains))))
    judged = {number: float(gain) for number, gain in enumerate(gains) if gain}
    ranks = judged_ranks(scores, judged)
    assert ranks == {number: whole[number] for number in judged}
    assert ndcg(list(ranks.values()), list(judged.values()), k=k) == pytest.approx(
        ndcg([whole[number] for number in range(len(gains))], gains, k=k)
    )


def test_scores_by_hand() -> None:
    assert reciprocal_rank([4, 2, 9], k=10) == 0.5
    assert reciprocal_rank([4, 2, 9], k=1) == 0.0
    assert recall([4, 2, 11, 12], k=10) == 0.5
    # Gains 2 and 1 at ranks 1 and 3, where ranks 1 and 2 were best.
    assert ndcg([1, 3], [2, 1], k=10) == pytest.approx((2 + 1 / 2) / (2 + 1 / np.log2(3)))


def test_a_perfect_order_scores_1_and_one_beyond_k_scores_0() -> None:
    assert ndcg([1, 2, 3], [3, 2, 1], k=10) == 1
    assert ndcg([11, 12], [1, 1], k=10) == recall([11, 12], k=10) == reciprocal_rank([11, 12], k=10) == 0


def test_among_equal_scores_right_candidates_come_last() -> None:
    assert judged_ranks(np.zeros(6), {1: 1.0, 2: 2.0, 3: 0.0}) == {1: 5, 2: 6, 3: 2 + 1 - 1}
    assert judged_ranks(np.array([1.0, 3.0, 3.0, 2.0]), {1: 1.0}) == {1: 2}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: judged_ranks(np.array([0.0, np.nan]), {0: 1}),
            r"expected one finite score a candidate, got .* with 1",
        ),
        (lambda: judged_ranks(np.zeros(3), {3: 1}), "expected judgements of candidates 0 to 2, got one of 3; pass"),
        (lambda: recall([1], k=0), "expected a k of at least 1, got 0; pass how many"),
        (lambda: recall([], k=5), r"expected ranks from 1 on of at least one candidate, got \[\]; leave out queries"),
        (lambda: reciprocal_rank([0], k=5), r"expected ranks from 1 on of at least one candidate, got \[0\]"),
        (lambda: ndcg([1, 2], [0, 0], k=5), r"expected a gain of at least 0 for each of 2 ranks .* got \[0, 0\]"),
        (lambda: ndcg([1, 2], [1], k=5), r"expected a gain of at least 0 for each of 2 ranks .* got \[1\]"),
    ],
)
def test_what_is_refused(call, message) -> None:
    with pytest.raises(UsageError, match=message):
        call()
