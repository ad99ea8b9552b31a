"""`top_spans` beside a search through every span."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from narrows.deformer.spans import best_spans, top_spans

SCORES = st.one_of(st.floats(-9, 9, width=32), st.just(float("-inf")))


@st.composite
def logits(draw):
    tokens = draw(st.integers(1, 9))
    rows = st.lists(SCORES, min_size=tokens, max_size=tokens)
    batch = draw(st.integers(1, 3))
    return [torch.tensor([draw(rows) for _ in range(batch)], dtype=torch.float64) for _ in range(2)]


def _brute_force(start: list[float], end: list[float], max_tokens: int) -> list[tuple[float, int, int]]:
    spans = [
        (start[i] + end[j], i, j)
        for i in range(len(start))
        for j in range(i, min(len(start), i + max_tokens))
        if start[i] + end[j] > float("-inf")
    ]
    return sorted(spans, reverse=True)


@given(logits(), st.integers(1, 11), st.integers(1, 60))
def test_top_spans_are_those_of_a_full_search(pair, max_tokens, count):
    start, end = pair
    spans = top_spans(start, end, max_tokens=max_tokens, count=count)
    for row in range(start.shape[0]):
        expected = _brute_force(start[row].tolist(), end[row].tolist(), max_tokens)
        found = list(zip(*(part[row].tolist() for part in spans), strict=True))
        valid = [span for span in found if span[0] > float("-inf")]
        # Spans of one score may come in any order, so scores are compared in order and spans as members.
        assert [span[0] for span in valid] == [span[0] for span in expected[:count]]
        assert set(valid) <= set(expected) and len(set(valid)) == len(valid)
        assert found[: len(valid)] == valid


@given(logits(), st.integers(1, 11))
def test_the_best_span_is_one_of_the_largest(pair, max_tokens):
    start, end = pair
    scores, firsts, lasts = best_spans(start, end, max_tokens=max_tokens)
    for row, (score, first, last) in enumerate(zip(scores.tolist(), firsts.tolist(), lasts.tolist(), strict=True)):
        expected = _brute_force(start[row].tolist(), end[row].tolist(), max_tokens)
        assert score == (expected[0][0] if expected else float("-inf"))
        assert not expected or (score, first, last) in expected


def test_a_span_is_never_longer_than_asked_nor_backwards():
    start, end = torch.tensor([[0.0, 0.0, 0.0, 9.0, 0.0]]), torch.tensor([[9.0, 0.0, 0.0, 0.0, 8.0]])
    score, first, last = (int(x) for x in best_spans(start, end, max_tokens=5))
    assert (score, first, last) == (17, 3, 4)
    score, first, last = (int(x) for x in best_spans(start, end, max_tokens=1))
    assert (score, first, last) == (9, 0, 0)


def test_a_row_without_any_span_scores_minus_infinity():
    nothing = torch.full((1, 3), float("-inf"))
    assert best_spans(nothing, nothing, max_tokens=2)[0].tolist() == [float("-inf")]
