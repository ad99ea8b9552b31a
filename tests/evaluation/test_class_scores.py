"""Scores of classes, numbers and tags against scikit-learn and scipy, in every resample."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrows.errors import UsageError
from narrows.evaluation.bootstrap import bootstrap_score
from narrows.evaluation.class_scores import accuracy, f1, matthews, pearson, score_functions, spearman, tag_spans

metrics = pytest.importorskip("sklearn.metrics")
stats = pytest.importorskip("scipy.stats")


@pytest.mark.filterwarnings("ignore:A single label")
@given(
    st.integers(2, 4).flatmap(lambda n: st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), min_size=1))
)
def test_classes_equal_scikit_learn(pairs) -> None:
    said, gold = (np.array(values) for values in zip(*pairs, strict=True))
    assert accuracy(said, gold) == pytest.approx(100 * metrics.accuracy_score(gold, said))
    assert matthews(said, gold, classes=4) == pytest.approx(100 * metrics.matthews_corrcoef(gold, said), abs=1e-9)
    macro = metrics.f1_score(gold, said, average="macro", zero_division=0)
    assert f1(said, gold, classes=4) == pytest.approx(100 * macro)
    if max(*said, *gold) < 2:
        expected = metrics.f1_score(gold, said, zero_division=0, labels=[0, 1])
        assert f1(said, gold, classes=2) == pytest.approx(100 * expected)


@given(st.lists(st.tuples(st.integers(-5, 5), st.floats(-9, 9, allow_subnormal=False)), min_size=3, max_size=30))
def test_correlations_equal_scipy(pairs) -> None:
    said, gold = (np.array(values, dtype=float) for values in zip(*pairs, strict=True))
    if np.std(said) < 1e-6 or np.std(gold) < 1e-6:
        return
    assert pearson(said, gold) == pytest.approx(100 * stats.pearsonr(said, gold).statistic, abs=1e-6)
    assert spearman(said, gold) == pytest.approx(100 * stats.spearmanr(said, gold).statistic, abs=1e-6)


def test_constant_predictions_have_no_correlation() -> None:
    gold = np.array([0.1, 0.2, 0.3])
    assert pearson(np.full(3, 0.1 + 0.2), gold) == spearman(np.full(3, 2.0), gold) == 0.0
    assert matthews(np.array([1, 1]), np.array([0, 1]), classes=2) == 0.0


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("O O", set()),
        ("B-A B-A I-A", {(0, 1, "A"), (1, 3, "A")}),
        ("I-A I-A O I-B", {(0, 2, "A"), (3, 4, "B")}),
        ("B-A I-B", {(0, 1, "A"), (1, 2, "B")}),
        ("NN VB", set()),
    ],
)
def test_spans_of_tags(tags, spans) -> None:
    assert tag_spans(tags.split()) == spans


def test_scores_of_tags_count_words_that_were_not_read_as_wrong() -> None:
    labels = ["O", "B-A", "I-A"]
    gold, said = [(1, 2, 0), (1,)], [[1, 2, -1], [0]]
    scores = score_functions("tags", said, gold, labels=labels)
    everything = np.arange(2)
    assert scores["accuracy"](everything) == pytest.approx(50)
    # One of two spans is found, and no other is said.
    assert scores["f1"](everything) == pytest.approx(100 * 2 / 3)
    assert set(score_functions("tags", [[0]], [(0,)], labels=["NN", "VB"])) == {"accuracy"}


def test_an_interval_of_any_score() -> None:
    values = np.arange(100.0)
    found = bootstrap_score(lambda chosen: float(np.median(values[chosen])), 100, samples=300)
    assert found.low < found.mean < found.high and found.mean == 49.5
    assert found == bootstrap_score(lambda chosen: float(np.median(values[chosen])), 100, samples=300)
    with pytest.raises(UsageError, match="expected at least 1 item to score, got 0; pass some"):
        bootstrap_score(lambda chosen: 0.0, 0)
    with pytest.raises(UsageError, match="expected at least 1 resample, got 0"):
        bootstrap_score(lambda chosen: 0.0, 1, samples=0)
