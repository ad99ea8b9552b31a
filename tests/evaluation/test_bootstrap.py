import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrows.errors import UsageError
from narrows.evaluation.bootstrap import Interval, MeanInterval, bootstrap, paired_bootstrap

scores = st.lists(st.floats(0, 1), min_size=1, max_size=30)


@given(scores, st.integers(0, 9))
def test_the_interval_lies_in_the_range_and_repeats(values, seed):
    result = bootstrap(values, samples=50, seed=seed)
    assert min(values) - 1e-9 <= result.low <= result.high <= max(values) + 1e-9
    assert result == bootstrap(values, samples=50, seed=seed)
    assert result.mean == pytest.approx(float(np.mean(values)))


@given(scores, st.integers(0, 9))
def test_a_system_does_not_differ_from_itself(values, seed):
    assert paired_bootstrap(values, values, samples=20, seed=seed) == Interval(0, 0, 0)


def test_pairs_stay_together():
    generator = np.random.default_rng(0)
    hard = generator.random(400)
    difference = paired_bootstrap(hard + 0.01, hard)
    # The questions vary by 0.3, yet the difference of each pair is the same.
    assert difference == pytest.approx((0.01, 0.01, 0.01))
    assert paired_bootstrap(hard, hard + 0.01) == pytest.approx((-0.01, -0.01, -0.01))


def test_width_is_that_of_the_standard_error():
    values = np.random.default_rng(1).normal(size=900)
    result = bootstrap(values)
    half = 1.96 * values.std() / 30
    assert result.high - result.mean == pytest.approx(half, rel=0.1)
    assert result.mean - result.low == pytest.approx(half, rel=0.1)
    assert isinstance(result, MeanInterval)


def test_a_lower_level_is_narrower():
    values = np.random.default_rng(2).random(100)
    wide, narrow = bootstrap(values, level=0.99), bootstrap(values, level=0.5)
    assert wide.low < narrow.low < narrow.high < wide.high


@pytest.mark.parametrize(
    ("values", "options", "pattern"),
    [
        ([], {}, r"expected one score a question, got an array of shape \(0,\); pass a flat list"),
        ([[1.0]], {}, r"got an array of shape \(1, 1\)"),
        ([1.0, float("nan")], {}, "expected finite scores, got nan at place 1; remove or correct it"),
        ([1.0], {"samples": 0}, "expected at least 1 resample, got 0; pass a larger number of samples"),
        ([1.0], {"level": 1.0}, "expected a level over 0 and under 1, got 1.0; pass a fraction such as 0.95"),
    ],
)
def test_impossible_calls(values, options, pattern):
    with pytest.raises(UsageError, match=pattern):
        bootstrap(values, **options)


def test_unequal_lengths():
    with pytest.raises(UsageError, match="expected scores of the same questions, got 2 and 1; pass one score a"):
        paired_bootstrap([1.0, 0.0], [1.0])
