"""Text that others wrote, in sentences of ours: on one line, and with what no encoding can write spelled out."""

import re

__all__ = ["json_problem", "one_line", "shown", "surrogate_in", "UNREADABLE_JSON"]

_SURROGATE = re.compile("[\ud800-\udfff]")


def one_line(text: str) -> str:
    """A text without line ends and without the control characters that a terminal would obey.

    Half surrogate pairs, which stand for bytes of a file name that are no UTF-8, are spelled out.

    Example:
        >>> one_line("a\\nb.txt"), one_line("caf\\udce9.txt")
        ('a b.txt', 'caf\\\\udce9.txt')
    """
    return "".join(letter if letter.isprintable() else _spelled(letter) for letter in text)


def _spelled(letter: str) -> str:
    return f"\\u{ord(letter):04x}" if _SURROGATE.match(letter) else " "


def surrogate_in(text: str) -> int | None:
    """Where the first half of a surrogate pair stands in a text; None in Unicode text.

    Example:
        >>> surrogate_in("caf\\udce9"), surrogate_in("café")
        (3, None)
    """
    if text.isascii():
        return None
    found = _SURROGATE.search(text)
    return None if found is None else found.start()


def json_problem(error: Exception) -> str:
    """Why a text is no JSON, in words for people who have no Python at hand.

    Args:
        error: one of `UNREADABLE_JSON`, from `json.loads`.

    Example:
        >>> json_problem(RecursionError())
        'it is nested too deep'
    """
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    # JSONDecodeError has a `msg`, UnicodeDecodeError a `reason`; the number of digits is all else that is refused.
    return getattr(error, "msg", None) or getattr(error, "reason", None) or "a number has too many digits"


UNREADABLE_JSON = (ValueError, RecursionError)
"""What `json.loads` raises: not only JSONDecodeError, but also for bytes, long numbers and deep nesting."""


def shown(value: object, *, most: int = 80) -> str:
    """A value in a sentence: its `repr`, cut when it is long, or its kind where it has none.

    Example:
        >>> shown("gold"), shown(16**9999)
        ("'gold'", 'a number of too many digits')
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError) as error:
        return "a number of too many digits" if isinstance(error, ValueError) else "a value that is nested too deep"
    return text if len(text) <= most else f"{text[:most]}…"
