"""What labelled data is read into, whatever its layout."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from narrows.data.files import require_unicode
from narrows.errors import UsageError

__all__ = ["ChoiceExample", "ClassExample", "Layout", "TextExample", "WordsExample", "require_text"]


class TextExample(NamedTuple):
    """A text or a pair with the name of its class, or with a number written out.

    Attributes:
        id: names the example.
        text: the text, or the first of a pair.
        pair: the second; None of a text alone.
        label: as the data writes it.
    """

    id: str
    text: str
    pair: str | None
    label: str


class ChoiceExample(NamedTuple):
    """A text, and several texts of which one goes with it: `label`, from 0."""

    id: str
    text: str
    choices: tuple[str, ...]
    label: int


class WordsExample(NamedTuple):
    """A sentence in words, each with a tag."""

    id: str
    words: tuple[str, ...]
    tags: tuple[str, ...]


ClassExample = TextExample | ChoiceExample | WordsExample


class Layout(NamedTuple):
    """How a layout is read, and what it is for.

    Attributes:
        read: examples of a path. The mapping renames fields (columns, keys); the flag leaves out lines that are too
            short instead of refusing them.
        kind: of the examples.
        fields: that the mapping may name.
    """

    read: Callable[[Path, Mapping[str, str], bool], Iterator[ClassExample]]
    kind: type
    fields: tuple[str, ...] = ()


def require_text(text: str, name: str, where: str) -> str:
    """The text without spaces around it.

    Args:
        text: what was read.
        name: what it is, such as "text".
        where: the file and the place in it.

    Raises:
        UsageError: it is blank or not Unicode.
    """
    require_unicode(text, f"{where}: expected a {name} in Unicode")
    stripped = text.strip()
    if not stripped:
        raise UsageError(f"{where}: expected words in the {name}, got none; fill it or remove the record.")
    return stripped
