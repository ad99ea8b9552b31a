"""Where words begin and end, so that no answer cuts one, and whether there is one."""

import unicodedata

from narrows._text import shown, surrogate_in
from narrows.errors import UsageError

__all__ = ["is_inside_word", "require_unicode", "require_word"]

# Scripts that put no space between words: every character may begin or end an answer.
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x3400, 0x4DBF),  # CJK extension A
    (0x4E00, 0x9FFF),  # CJK
    (0xF900, 0xFAFF),  # CJK compatibility
    (0xFF66, 0xFF9F),  # half-width Katakana
    (0x20000, 0x3FFFF),  # CJK extensions B and on
)


def is_inside_word(text: str, place: int) -> bool:
    """Whether a word runs on over the border between `text[place - 1]` and `text[place]`.

    Words are runs of letters, digits and the marks on them; a number keeps its points, commas and colons
    (`1,250.75`, `10:30`). Both ends of the text are borders.

    Example:
        >>> [is_inside_word("no 1,5", place) for place in (1, 2, 4, 5)]
        [True, False, True, True]
    """
    if not 0 < place < len(text):
        return False
    before, after = text[place - 1], text[place]
    if unicodedata.combining(after):
        return True
    if _is_word(before) and _is_word(after):
        return True
    if after in ".,:" and before.isdigit():
        return place + 1 < len(text) and text[place + 1].isdigit()
    return before in ".,:" and after.isdigit() and place > 1 and text[place - 2].isdigit()


def require_word(question: str) -> None:
    """Make sure that a question has a letter or digit of any script: signs alone ask nothing.

    Raises:
        UsageError: it has none.

    Example:
        >>> require_word("水深？")
        >>> require_word("?!")
        Traceback (most recent call last):
        narrows.errors.UsageError: expected a question with a letter or digit in it, got '?!'; ask in at least one word
    """
    if not any(letter.isalnum() for letter in question):
        raise UsageError(
            f"expected a question with a letter or digit in it, got {shown(question.strip(), most=40)}; "
            "ask in at least one word"
        )


def require_unicode(text: str, what: str) -> None:
    """Make sure that a tokenizer can read a text.

    Args:
        text: any text.
        what: its name in the error, such as "a context".

    Raises:
        UsageError: it has half of a surrogate pair, as Python puts for a byte that is not UTF-8.

    Example:
        >>> require_unicode("café", "a context")
    """
    place = surrogate_in(text)
    if place is not None:
        raise UsageError(
            f"expected {what} in Unicode, but its character {place} is a byte that is not UTF-8 or half of a surrogate "
            "pair; decode it anew, or as UTF-8 with errors='replace'"
        )


def _is_word(letter: str) -> bool:
    if not (letter.isalnum() or unicodedata.combining(letter)):
        return False
    code = ord(letter)
    return code < 0x0E00 or not any(low <= code <= high for low, high in _UNSPACED)
