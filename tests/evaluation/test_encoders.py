"""Any function of texts is scored: finding texts, telling classes apart, and one encoder beside another."""

import numpy as np
import pytest

from narrows.data import LabelledTexts, RetrievalData
from narrows.errors import MissingExtraError, UsageError
from narrows.evaluation import probes
from narrows.evaluation.encoders import compare_encoders, evaluate_probe, evaluate_retrieval
from narrows.evaluation.probes import linear_probe

_WORDS = ("river", "mill", "king", "boat", "wall", "horse")


def _words(texts) -> np.ndarray:
    """How often each word stands in a text."""
    return np.array([[text.split().count(word) for word in _WORDS] for text in texts], dtype=np.float32)


def _data(queries=_WORDS) -> RetrievalData:
    candidates = tuple(f"the {word} and the {word}" for word in _WORDS)
    gains = tuple({candidates.index(f"the {query} and the {query}"): 1.0} for query in queries)
    return RetrievalData(tuple(queries), candidates, gains, left_out=1)


def test_an_encoder_that_knows_finds_everything() -> None:
    found = evaluate_retrieval(_words, _data())
    assert {name: score.mean for name, score in found.scores.items()} == dict.fromkeys(
        ("mrr@10", "ndcg@10", "recall@10", "recall@100"), 100.0
    )
    assert found.facts == {
        "queries": 6,
        "queries_without_a_right_candidate": 1,
        "candidates": 6,
        "width": 6,
    }


def test_an_encoder_that_tells_nothing_apart_gains_nothing_by_the_order() -> None:
    found = evaluate_retrieval(lambda texts: np.ones((len(texts), 3), np.float32), _data())
    assert found.scores["mrr@10"].mean == pytest.approx(100 / 6)
    zeros = evaluate_retrieval(lambda texts: np.zeros((len(texts), 3), np.float32), _data())
    assert zeros.scores["mrr@10"].mean == pytest.approx(100 / 6)


def test_queries_may_be_read_in_another_way() -> None:
    data = _data()
    swapped = evaluate_retrieval(_words, data, embed_queries=lambda texts: -_words(texts))
    assert swapped.scores["mrr@10"].mean < evaluate_retrieval(_words, data).scores["mrr@10"].mean


def test_lengths_of_vectors_do_not_count() -> None:
    rng = np.random.default_rng(0)
    vectors = {text: rng.normal(size=4).astype(np.float32) for text in (*_data().queries, *_data().candidates)}
    plain = evaluate_retrieval(lambda texts: np.stack([vectors[t] for t in texts]), _data())
    scaled = evaluate_retrieval(lambda texts: np.stack([len(t) ** 3 * vectors[t] for t in texts]), _data())
    assert plain.each == scaled.each


def test_one_encoder_beside_another() -> None:
    good = evaluate_retrieval(_words, _data())
    same = evaluate_retrieval(lambda texts: np.ones((len(texts), 3), np.float32), _data())
    difference = compare_encoders(good, same)["mrr@10"]
    assert difference.mean_difference == pytest.approx(100 - 100 / 6) and difference.low > 0
    with pytest.raises(UsageError, match="expected scores of the same questions, got 6 and 2"):
        compare_encoders(good, evaluate_retrieval(_words, _data(_WORDS[:2])))


def _two_clouds(texts: int, *, apart: float, seed: int = 0):
    rng = np.random.default_rng(seed)
    labels = np.arange(texts) % 2
    vectors = rng.normal(size=(texts, 5)).astype(np.float32)
    vectors[:, 1] += apart * (2 * labels - 1)
    return vectors, labels.tolist()


def test_a_probe_finds_classes_that_lie_apart_and_guesses_where_they_do_not() -> None:
    pytest.importorskip("sklearn")
    for apart, low, high in ((4.0, 0.98, 1.0), (0.0, 0.35, 0.65)):
        vectors, labels = _two_clouds(300, apart=apart)
        found = linear_probe(vectors, labels, [-1] * 200 + [0] * 100)
        assert low <= np.mean(found.right) <= high
        assert found.tested == list(range(200, 300)) and found.train_texts == 200 and len(found.strengths) == 1


def test_every_part_is_tested_with_what_lies_outside_of_it() -> None:
    pytest.importorskip("sklearn")
    vectors, labels = _two_clouds(60, apart=4.0)
    parts = [number // 20 for number in range(60)]
    found = linear_probe(vectors, labels, parts)
    assert sorted(found.tested) == list(range(60)) and found.train_texts == 40 and len(found.strengths) == 3
    # The labels of the tested part decide nothing.
    turned = [1 - label if part == 2 else label for label, part in zip(labels, parts, strict=True)]
    other = linear_probe(vectors, turned, parts)
    assert other.strengths[2] == found.strengths[2]
    assert [a != b for a, b in zip(found.right[40:], other.right[40:], strict=True)] == [True] * 20


def test_a_scale_of_the_vectors_does_not_count() -> None:
    pytest.importorskip("sklearn")
    vectors, labels = _two_clouds(120, apart=1.0)
    parts = [-1] * 80 + [0] * 40
    assert linear_probe(vectors, labels, parts).right == linear_probe(vectors * 1024, labels, parts).right


def test_a_probe_of_texts() -> None:
    pytest.importorskip("sklearn")
    texts = tuple(f"the {'river boat' if n % 2 else 'king horse'} {n}" for n in range(40))
    data = LabelledTexts(texts, tuple(n % 2 for n in range(40)), (-1,) * 30 + (0,) * 10, ("land", "water"))
    found = evaluate_probe(_words, data)
    assert found.scores["accuracy"] == (100.0, 100.0, 100.0)
    assert found.each["accuracy"] == [100.0] * 10
    assert found.facts["classes"] == ["land", "water"] and found.facts["train_texts"] == 30


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: evaluate_retrieval(lambda texts: np.full((len(texts), 2), np.nan, np.float32), _data()),
            r"expected a finite vector for each of 6 texts, got \(6, 2\) with 12 numbers that are not finite; check",
        ),
        (
            lambda: evaluate_retrieval(lambda texts: np.zeros((1, 2), np.float32), _data()),
            r"expected a finite vector for each of 6 texts, got \(1, 2\)",
        ),
        (
            lambda: linear_probe(np.zeros((3, 2)), [0, 1], [0, 0, 0]),
            "expected a vector, a label and a part for each text, got 3, 2 and 3; pass as many of each",
        ),
        (
            lambda: linear_probe(np.full((2, 2), np.inf), [0, 1], [-1, 0]),
            "expected finite vectors, got NaN or infinity",
        ),
        (lambda: linear_probe(np.zeros((2, 2)), [0, 1], [-1, -1]), "expected texts to test on, got none; give some"),
        (
            lambda: linear_probe(np.zeros((8, 2)), [0] * 7 + [1], [-1] * 7 + [0]),
            "expected texts of two classes or more to train on, and a fifth of them .*, got 7; pass more",
        ),
    ],
)
def test_what_is_refused(call, message) -> None:
    with pytest.raises(UsageError, match=message):
        call()


def test_without_scikit_learn_the_extra_is_named(monkeypatch) -> None:
    def missing(module, *, extra, purpose):
        raise MissingExtraError(f"`sklearn` is needed to {purpose}; install it with: pip install 'narrows[{extra}]'")

    monkeypatch.setattr(probes, "require", missing)
    vectors, labels = _two_clouds(20, apart=1.0)
    with pytest.raises(MissingExtraError, match=r"needed to fit linear probes; .*narrows\[eval\]"):
        linear_probe(vectors, labels, [-1] * 15 + [0] * 5)
