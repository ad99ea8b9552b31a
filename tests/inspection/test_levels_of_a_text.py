"""The levels of a text: numbers by hand, the text behind each slot, and the tokenizer that cuts it."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrows.errors import ConversionError, DocumentError, UsageError
from narrows.inspection.levels import describe_levels, load_tokenizer, shorten, token_places
from narrows.mulla import Pyramid


def _letters(length: int) -> tuple[str, list[tuple[int, int]]]:
    """A text of single letters with a space between."""
    text = " ".join("abcdefghijklmnopqrstuvwxyz"[index % 26] for index in range(length))
    return text, [(2 * index, 2 * index + 1) for index in range(length)]


def test_levels_by_hand() -> None:
    found = describe_levels(*_letters(10), Pyramid(radius=2, pooling_rate=3), slots=2)
    assert found.tokens == 10 and found.sees_whole_text and found.least_seen == 1.0
    assert [level[:6] for level in found.levels] == [
        (1, 10, 1, 5, 0.3, pytest.approx(0.44)),
        (2, 4, 3, 10, 0.7, pytest.approx(0.94)),
        (3, 2, 9, 10, 1.0, 1.0),
    ]
    assert [[slot.text for slot in level.samples] for level in found.levels] == [
        ["a", "j"],
        ["a b c", "j"],
        ["a b c d e f g h i", "j"],
    ]
    assert found.levels[2].samples[0][:3] == (0, (0, 9), (0, 17))


def test_a_fixed_pyramid_may_miss_a_part() -> None:
    found = describe_levels(*_letters(30), Pyramid(radius=1, pooling_rate=2, num_levels=2))
    assert not found.sees_whole_text and found.least_seen == 4 / 30


@given(st.integers(1, 80), st.integers(1, 6), st.integers(2, 5), st.integers(0, 6))
def test_samples_are_spread_and_say_where_they_are(length, radius, rate, wanted) -> None:
    text, places = _letters(length)
    found = describe_levels(text, places, Pyramid(radius, rate), slots=wanted)
    assert found.sees_whole_text
    for level in found.levels:
        numbers = [slot.slot for slot in level.samples]
        assert len(numbers) == min(wanted, level.slots) and numbers == sorted(set(numbers))
        if wanted > 1:
            assert numbers[0] == 0 and numbers[-1] == level.slots - 1
        for slot in level.samples:
            first, end = slot.tokens
            assert first == slot.slot * level.tokens_per_slot and 1 <= end - first <= level.tokens_per_slot
            assert slot.characters == (places[first][0], places[end - 1][1])
            assert slot.text == shorten(text[slice(*slot.characters)])


def test_a_text_is_shortened_in_its_middle() -> None:
    assert shorten("a\n b\tc") == "a b c"
    assert shorten("x" * 61) == "x" * 29 + " … " + "x" * 28
    assert shorten("begin " + "middle " * 100_000 + "end", 20) == "begin mid … ddle end"


def test_negative_slots_are_refused() -> None:
    with pytest.raises(UsageError, match="`slots` must be at least 0, got -1; say how many slots of each level"):
        describe_levels(*_letters(3), Pyramid(1, 2), slots=-1)


def test_tokens_lie_where_they_are_said_to(tiny_bert) -> None:
    text = "The boat\n\nwent down [SEP] the river. " * 30
    places = token_places(load_tokenizer(str(tiny_bert)), text, name="a text")
    assert len(places) > 128 and text[slice(*places[0])] == "The"
    assert places == sorted(places) and "".join(text[slice(*place)] for place in places) == "".join(text.split())


def test_a_text_without_a_token_is_refused(tiny_bert) -> None:
    with pytest.raises(DocumentError, match="expected text in a.txt, but the tokenizer finds no token in it; name"):
        token_places(load_tokenizer(str(tiny_bert)), "\u200b\u200b", name="a.txt")


def test_checkpoints_without_a_tokenizer_are_refused(tiny_bert, tmp_path, monkeypatch) -> None:
    with pytest.raises(ConversionError, match=re.escape(f"in the checkpoint {tmp_path}, got none")):
        load_tokenizer(str(tmp_path))
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    monkeypatch.setattr(type(tokenizer), "is_fast", property(lambda self: False))
    with pytest.raises(ConversionError, match="expected a fast tokenizer, which says where its tokens lie, got"):
        load_tokenizer(str(tiny_bert))
