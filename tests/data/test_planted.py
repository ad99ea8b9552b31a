"""Planted facts: the asked fact stands where it should, and nothing else tells the answer."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrows.data.planted import PlantedFacts, words_of
from narrows.errors import UsageError

_WORDS = words_of("It rained on the old mill. A child found the code! ") * 100
_TASK = PlantedFacts(_WORDS, vocabulary=12, names=8, values=5, facts=3, questions=4)
_NAMES, _VALUES = range(2, 10), range(10, 15)
_MARK = _TASK._ids["?"]


@given(st.data())
def test_every_question_asks_for_the_fact_at_its_distance(data) -> None:
    length = data.draw(st.integers(_TASK.shortest, 300))
    text = _TASK.sample(length, Random(data.draw(st.integers(0, 2**32))))
    ids = text.ids
    assert len(ids) == length and 0 < max(ids) < _TASK.vocabulary_size and min(ids) > 0
    facts = {ids[place - 2]: place for place, token in enumerate(ids) if token in _VALUES}
    assert len(facts) == 3 and set(facts) <= set(_NAMES)
    assert 1 <= len(text.questions) <= max(1, min(4, length // 32))
    for asked in text.questions:
        place = facts[ids[asked.place - 1]]
        assert ids[asked.place] == _MARK and ids[place] == _VALUES[asked.answer]
        assert asked.distance == abs(asked.place - place)
    # A name stands in its fact and in its questions, and nowhere else.
    assert sum(token in _NAMES for token in ids) == 3 + len(text.questions)


def test_a_long_text_has_all_its_questions_and_a_short_one_one() -> None:
    assert len(_TASK.sample(128, Random(0)).questions) == 4
    assert len(_TASK.sample(127, Random(0)).questions) == 3
    assert len(_TASK.sample(_TASK.shortest, Random(0)).questions) == 1


def test_a_number_names_a_text_for_ever() -> None:
    first, second = (_TASK.sample(120, Random("7-3")) for _ in range(2))
    assert first == second != _TASK.sample(120, Random("7-4"))


def test_all_distances_and_answers_are_drawn_on_both_sides() -> None:
    random = Random(0)
    texts = [_TASK.sample(100, random) for _ in range(2000)]
    asked = [question for text in texts for question in text.questions]
    assert {question.answer for question in asked} == set(range(5))
    assert min(question.distance for question in asked) == 6
    assert max(question.distance for question in asked) >= 90
    assert {question.place < 50 for question in asked if question.distance > 50} == {True, False}


def test_distances_are_log_uniform() -> None:
    task = PlantedFacts(_WORDS, vocabulary=12, names=8, values=5, facts=1, questions=1)
    random = Random(0)
    distances = [task.sample(1024, random).questions[0].distance for _ in range(2000)]
    shares = [sum(low <= distance < 2 * low for distance in distances) / 2000 for low in (16, 32, 64, 128)]
    assert max(shares) < 1.4 * min(shares)


def test_another_text_shares_the_tokens() -> None:
    other = _TASK.over(["unseen", "rained"] * 500)
    text = other.sample(2 * other.shortest, Random(1))
    assert other.vocabulary_size == _TASK.vocabulary_size
    assert {token for token in text.ids if token == 1} == {1}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"facts": 0}, "expected facts of at least 1, got 0; raise it"),
        ({"questions": 0}, "expected questions of at least 1, got 0; raise it"),
        ({"values": -1}, "expected values of at least 1, got -1; raise it"),
        ({"facts": 9}, "expected at most as many facts as names, got 9 and 8; raise names"),
        ({"words": ["a"] * 999}, "expected at least 1,000 words of running text, got 999; give more text"),
    ],
)
def test_numbers_that_make_no_task(change, text) -> None:
    with pytest.raises(UsageError, match=text):
        PlantedFacts(**{"words": _WORDS, "vocabulary": 12, "names": 8, "values": 5, "facts": 3, **change})


def test_texts_that_hold_no_facts() -> None:
    with pytest.raises(UsageError, match="expected texts of at least 46 tokens, got 45; lengthen them"):
        _TASK.sample(45, Random(0))
    with pytest.raises(UsageError, match="expected at least 1,000 words of running text, got 1"):
        _TASK.over(["a"])
