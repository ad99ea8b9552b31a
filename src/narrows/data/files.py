"""JSON and lines of text, plain or gzip, with errors that name the file and the place in it."""

import gzip
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from narrows._text import UNREADABLE_JSON, json_problem, surrogate_in
from narrows.errors import UsageError

__all__ = [
    "UNREADABLE",
    "archived_texts",
    "field",
    "lines",
    "load_json",
    "open_text",
    "parse_json",
    "require_unicode",
    "unreadable",
]

_KIND_NAMES = {str: "a string", int: "an integer", list: "a list", dict: "an object", bool: "true or false"}
_CORRECT = "correct the place, or pass a file in the layout that was asked for"

UNREADABLE = (OSError, EOFError, UnicodeDecodeError, zlib.error)
"""What reading text raises, plain or packed, for `unreadable`."""


def field(record: Any, key: str, kind: type, where: str) -> Any:
    """The value of a key that must be there and of a kind.

    Args:
        record: what was read from JSON.
        key: the key.
        kind: `str`, `int`, `list`, `dict` or `bool`.
        where: the file and the place in it, for the error.

    Raises:
        UsageError: the record is no object, lacks the key, or has another kind of value there, or text that is not
            Unicode.

    Example:
        >>> field({"title": "A"}, "title", str, "a.json: line 1")
        'A'
    """
    if not isinstance(record, Mapping):
        raise UsageError(f"{where}: expected an object with {key!r}, got {type(record).__name__}; {_CORRECT}.")
    if key not in record:
        raise UsageError(f"{where}: expected a key {key!r}, got only {sorted(record)}; {_CORRECT}.")
    value = record[key]
    # bool is an int to isinstance, and an offset of `true` is no offset.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise UsageError(
            f"{where}: expected {key!r} to be {_KIND_NAMES[kind]}, got {type(value).__name__}; {_CORRECT}."
        )
    if isinstance(value, str):
        require_unicode(value, f"{where}: expected {key!r} in Unicode")
    return value


def require_unicode(text: str, expected: str) -> None:
    """Refuse text that no tokenizer takes and no file holds.

    Args:
        text: what was read from JSON, where `\\ud800` is half of a character.
        expected: the beginning of the error: where, and what was expected.

    Raises:
        UsageError: half of a surrogate pair.
    """
    place = surrogate_in(text)
    if place is not None:
        raise UsageError(f"{expected}, got half of a surrogate pair at character {place}; {_CORRECT}.")


def open_text(path: Path) -> IO[str]:
    """Opens UTF-8 text to read, unpacked where the name ends in `.gz`; a byte order mark at its front is no text."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig")
    return path.open(encoding="utf-8-sig")


def load_json(path: Path, wanted: str) -> Any:
    """A whole JSON file; `wanted` says in the error what to pass instead.

    Raises:
        UsageError: the file cannot be read or is not JSON.
    """
    try:
        with open_text(path) as file:
            text = file.read()
    except UNREADABLE as error:
        raise unreadable(path, error) from error
    try:
        return json.loads(text)
    except UNREADABLE_JSON as error:
        raise UsageError(f"{path}: expected JSON, got other text ({_problem(error)}); pass {wanted}.") from error


def parse_json(line: str, where: str) -> Any:
    """One record of JSON lines.

    Raises:
        UsageError: the line is not JSON.
    """
    try:
        return json.loads(line)
    except UNREADABLE_JSON as error:
        raise UsageError(
            f"{where}: expected one JSON record, got other text ({_problem(error)}); correct or remove it."
        ) from error


def _problem(error: Exception) -> str:
    # With its line and column, which a large file needs.
    return str(error) if isinstance(error, json.JSONDecodeError) else json_problem(error)


def lines(path: Path) -> Iterator[str]:
    """The lines of a file, one at a time, with their ends.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        with open_text(path) as file:
            yield from file
    except UNREADABLE as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: Exception) -> UsageError:
    """The sentence for a file that cannot be read as text."""
    if isinstance(error, FileNotFoundError):
        return UsageError(f"{path}: expected a file, got nothing at this path; check the path.")
    if isinstance(error, OSError) and error.strerror:
        return UsageError(
            f"{path}: expected a readable file, got {error.strerror}; check the path and its permissions."
        )
    return UsageError(
        f"{path}: expected UTF-8 text, plain or gzip as its name says, got {error}; fetch it again or rename it."
    )


def archived_texts(path: Path) -> Iterator[tuple[str, str]]:
    """Name and text of each `.txt` file in a folder of a `.zip` archive, in the order of the names.

    Raises:
        UsageError: the archive cannot be read, or a file in it is damaged, encrypted, or no UTF-8.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            for name in sorted(name for name in archive.namelist() if name.endswith(".txt") and "/" in name):
                yield name, archive.read(name).decode("utf-8")
    # An encrypted file is a RuntimeError, and so is a packing that is not known here.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise UsageError(f"{path}: expected a .zip archive, got {error}; fetch it again.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error
