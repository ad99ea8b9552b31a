"""A small sentence splitter: linear in the text, exact in its offsets, aware of Markdown lines and CJK."""

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Sentence", "sentences"]


class Sentence(NamedTuple):
    """Characters [start, end) of a text, no white space around; does it open a paragraph, is it a heading."""

    start: int
    end: int
    opens_paragraph: bool
    is_heading: bool


_LINE_END = re.compile(r"\r\n?|[\n\f\u2028\u2029]")
_BLANK = re.compile(r"\s*")
_SPACE = re.compile(r"\s*")
_FENCE = re.compile(r" {0,3}(```|~~~)")
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+\S")
_RULE = re.compile(r" {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,}|={3,}[ \t]*)")
_ITEM = re.compile(r"[ \t]*(?:[-*+•‣◦]|\d{1,3}[.)])[ \t]+\S")
_ROW = re.compile(r"[ \t]*\|")
_LONGEST_ROW = 2000

# The marks and closers match as a whole and what follows is looked at in code: a look-ahead here would make
# a run of dots quadratic.
_END = re.compile(r"""[.!?…。！？｡]+["'”’»›)\]」』）】》〉*_]*""")
_CJK_MARKS = frozenset("。！？｡")
_CLOSERS = "\"'”’»›)]」』）】》〉*_"
_OPENERS = "\"'“‘«‹([{「『（【《〈*_"

_NEVER_LAST = frozenset({
    "mr", "mrs", "ms", "mx", "dr", "prof", "st", "rev", "hon", "fr", "gen", "col", "maj", "capt", "cmdr",
    "lt", "sgt", "sen", "rep", "gov", "pres", "messrs", "mme", "mlle", "vs", "e.g", "i.e", "eg", "ie",
    "cf", "viz", "al", "ca", "approx", "esp", "incl", "resp", "z.b", "d.h", "u.a", "bzw", "hr",
})  # fmt: skip
_BEFORE_NUMBERS = frozenset({
    "no", "nos", "nr", "p", "pp", "fig", "figs", "tab", "vol", "sec", "sect", "ch", "chap", "art", "eq",
    "eqs", "ed", "par", "§", "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov",
    "dec",
})  # fmt: skip
_INITIALS = re.compile(r"(?:[^\W\d_]\.-?)*[^\W\d_]")
_LONGEST_WORD = 24


def sentences(text: str) -> Iterator[Sentence]:
    """Split a text into sentences, in order and without overlap.

    A blank line, a heading or a ruled line ends a paragraph. Markdown headings and table rows are sentences
    of their own, a list item begins one. Elsewhere a sentence ends at `.`, `!`, `?` or `…` (and closing
    quotes) when white space and no small letter follows and the word before is no abbreviation or initial,
    and at the full-width marks of Chinese and Japanese.

    Args:
        text: any text; line ends of all systems.

    Returns:
        The sentences. White space and ruled lines between them belong to none.

    Example:
        >>> [(s.start, s.end) for s in sentences("Dr. No came. He left.")]
        [(0, 12), (13, 21)]
    """
    block: tuple[int, int] | None = None
    opens, fence = True, None
    for start, end in _lines(text):
        kind, fence = _kind_of_line(text, start, end, fence)
        if kind == "plain" and block is not None:
            block = (block[0], end)
            continue
        if block is not None:
            yield from _split_block(text, block, opens)
            block, opens = None, False
        if kind in ("blank", "rule"):
            opens = True
        elif kind in ("heading", "row"):
            is_heading = kind == "heading"
            first, last = _strip(text, start, end)
            yield Sentence(first, last, opens or is_heading, is_heading)
            opens = is_heading
        else:
            block = (start, end)
    if block is not None:
        yield from _split_block(text, block, opens)


def _lines(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    for match in _LINE_END.finditer(text):
        yield start, match.start()
        start = match.end()
    yield start, len(text)


def _kind_of_line(text: str, start: int, end: int, fence: str | None) -> tuple[str, str | None]:
    """The kind of a line, and the code fence that is open after it (in code, `# ` is a comment)."""
    if _BLANK.fullmatch(text, start, end):
        return "blank", fence
    mark = _FENCE.match(text, start, end)
    if mark:
        if fence is None:
            return "plain", mark.group(1)
        return "plain", None if mark.group(1) == fence else fence
    if fence is not None:
        return "plain", fence
    if _HEADING.match(text, start, end):
        return "heading", None
    if _RULE.fullmatch(text, start, end):
        return "rule", None
    if _ITEM.match(text, start, end):
        return "item", None
    is_row = _ROW.match(text, start, end) or " | " in text[start : min(end, start + _LONGEST_ROW)]
    # A line of many thousand characters is prose that happens to hold a bar.
    return ("row" if is_row and end - start <= _LONGEST_ROW else "plain"), None


def _split_block(text: str, block: tuple[int, int], opens: bool) -> Iterator[Sentence]:
    start, stop = _strip(text, *block)
    begin = start
    for match in _END.finditer(text, start, stop):
        space = _SPACE.match(text, match.end(), stop)
        following = space.end() if space else match.end()
        if following < stop and _is_border(text, begin, match, following):
            yield Sentence(start, match.end(), opens, False)
            start, opens = following, False
    yield Sentence(start, stop, opens, False)


def _is_border(text: str, begin: int, match: re.Match[str], following: int) -> bool:
    marks = match.group().rstrip(_CLOSERS)
    if marks[-1] in _CJK_MARKS:
        return True
    if following == match.end() or text[following].islower():
        return False
    if marks != ".":
        return True
    window = text[max(begin, match.start() - _LONGEST_WORD) : match.start()]
    words = window.split()
    if not words or window[-1].isspace():
        return True
    word = words[-1].lstrip(_OPENERS)
    if word.isdecimal() and match.start() - len(word) == begin:
        return False
    if word.lower() in _BEFORE_NUMBERS:
        return not text[following].isdecimal()
    if word.lower() in _NEVER_LAST:
        return False
    is_initials = word.isupper() and _INITIALS.fullmatch(word) is not None
    return not is_initials


def _strip(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end
