"""Planted facts: the asked fact stands where it should, and nothing else tells the answer."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrows.data.planted import PlantedFacts, words_of
from narrows.errors import UsageError

_WORDS = words_of("It rained on the old mill. A child found the code! ") * 100
_TASK = PlantedFacts(_WORDS, vocabulary=12, names=8, values=5, facts=3)
_NAMES, _VALUES = range(2, 10), range(10, 15)


@given(st.data())
def test_the_asked_name_stands_before_its_value_at_the_distance(data) -> None:
    length = data.draw(st.integers(2 * _TASK.shortest, 300))
    distance = data.draw(st.none() | st.integers(_TASK.nearest, _TASK.farthest(length)))
    text = _TASK.sample(length, Random(data.draw(st.integers(0, 2**32))), distance=distance)
    assert len(text.ids) == length and 0 < max(text.ids) < _TASK.vocabulary_size and min(text.ids) > 0
    assert distance is None or text.distance == distance
    place = length - 1 - text.distance
    assert text.ids[place] == _VALUES[text.answer]
    assert text.ids[place - 2] == text.ids[-2] and text.ids[-2] in _NAMES
    names = [token for token in text.ids if token in _NAMES]
    # Three facts of three names, and the question's.
    assert len(names) == 4 and len(set(names)) == 3
    assert sum(token in _VALUES for token in text.ids) == 3


def test_a_number_names_a_text_for_ever() -> None:
    first, second = (_TASK.sample(120, Random("7-3")) for _ in range(2))
    assert first == second != _TASK.sample(120, Random("7-4"))


def test_all_distances_and_answers_are_drawn() -> None:
    random = Random(0)
    texts = [_TASK.sample(100, random) for _ in range(2000)]
    assert {text.answer for text in texts} == set(range(5))
    assert min(text.distance for text in texts) <= 9 and max(text.distance for text in texts) >= 90


def test_another_text_shares_the_tokens() -> None:
    other = _TASK.over(["unseen", "rained"] * 500)
    text = other.sample(2 * other.shortest, Random(1))
    assert other.vocabulary_size == _TASK.vocabulary_size
    assert {token for token in text.ids if token == 1} == {1}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"facts": 0}, "expected facts of at least 1, got 0; raise it"),
        ({"values": -1}, "expected values of at least 1, got -1; raise it"),
        ({"facts": 9}, "expected at most as many facts as names, got 9 and 8; raise names"),
        ({"words": ["a"] * 999}, "expected at least 1,000 words of running text, got 999; give more text"),
    ],
)
def test_numbers_that_make_no_task(change, text) -> None:
    with pytest.raises(UsageError, match=text):
        PlantedFacts(**{"words": _WORDS, "vocabulary": 12, "names": 8, "values": 5, "facts": 3, **change})


def test_texts_that_hold_no_facts() -> None:
    with pytest.raises(UsageError, match="expected texts of at least 56 tokens, got 55; lengthen them"):
        _TASK.sample(55, Random(0))
    for distance in (7, 95):
        with pytest.raises(UsageError, match=f"expected a distance from 8 to 94, got {distance}; choose one of these"):
            _TASK.sample(100, Random(0), distance=distance)
    with pytest.raises(UsageError, match="expected at least 1,000 words of running text, got 1"):
        _TASK.over(["a"])
