"""Text of others in sentences of ours."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrows._text import UNREADABLE_JSON, json_problem, one_line, shown, surrogate_in

# With half surrogate pairs, which `text` leaves out unless asked.
ANY_TEXT = st.text(st.characters())


@given(ANY_TEXT)
def test_one_line_is_one_line_that_can_be_written(text: str) -> None:
    line = one_line(text)
    assert line.isprintable() and surrogate_in(line) is None
    assert line == text or not text.isprintable()


@given(ANY_TEXT)
def test_a_surrogate_is_what_cannot_be_encoded(text: str) -> None:
    try:
        text.encode()
        found = None
    except UnicodeEncodeError as error:
        found = error.start
    assert surrogate_in(text) == found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "Expecting property name enclosed in double quotes"),
        ("1" * 5000, "a number has too many digits"),
        ("[" * 100_000, "it is nested too deep"),
        (b'"\xff"', "invalid start byte"),
    ],
    ids=["half", "digits", "deep", "bytes"],
)
def test_why_a_text_is_no_json(text, reason) -> None:
    with pytest.raises(UNREADABLE_JSON) as caught:
        json.loads(text)
    assert json_problem(caught.value) == reason


def test_values_in_a_sentence() -> None:
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    assert shown("gold") == "'gold'" and shown("a" * 99, most=5) == "'aaaa…"
    assert shown(16**9999) == "a number of too many digits"
    assert shown(deep) == "a value that is nested too deep"
    # Taken apart here: freeing it in one go would be as deep.
    while deep:
        deep = deep[0]
