"""Columns of CoNLL: a word a line with its tag, sentences with a blank line between them."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from narrows.data.class_layouts.record import ClassExample, Layout, WordsExample
from narrows.data.files import lines
from narrows.errors import UsageError

__all__ = ["CONLL"]

_DOCUMENT = "-DOCSTART-"


def _read(path: Path, fields: Mapping[str, str], skip: bool) -> Iterator[ClassExample]:
    word, tag = (_place(fields, name, path) for name in ("word", "tag"))
    words: list[str] = []
    tags: list[str] = []
    first = 1
    for number, line in enumerate(lines(path), start=1):
        cells = line.split()
        if not cells or cells[0] == _DOCUMENT:
            if words:
                yield WordsExample(str(first), tuple(words), tuple(tags))
            words, tags, first = [], [], number + 1
            continue
        if len(cells) < max(2, word, tag):
            raise UsageError(
                f"{path}: line {number}: expected at least {max(2, word, tag)} columns, got {len(cells)}; correct the "
                "line."
            )
        words.append(cells[word - 1] if word else cells[0])
        tags.append(cells[tag - 1] if tag else cells[-1])
    if words:
        yield WordsExample(str(first), tuple(words), tuple(tags))


def _place(fields: Mapping[str, str], name: str, path: Path) -> int:
    """The column, from 1; 0: the first of words, the last of tags."""
    value = fields.get(name)
    if value is None:
        return 0
    if not value.isdecimal() or int(value) < 1:
        raise UsageError(f"{path}: expected a column's number, from 1, as fields.{name}, got {value!r}; correct it.")
    return int(value)


CONLL = Layout(_read, WordsExample, ("word", "tag"))
"""The first column is the word and the last one its tag, unless `fields` give their numbers."""
