"""What every layout is read into, and what every layout's file reads it with."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from narrows.data.files import UNREADABLE, field, lines, load_json, open_text, parse_json, unreadable
from narrows.errors import UsageError

__all__ = ["Layout", "Raw", "SummaryExample", "filled", "json_records", "record_id", "string_or_strings", "strings"]

_NAMES = (".jsonl", ".jsonl.gz", ".json", ".json.gz")


@dataclass(frozen=True, slots=True)
class SummaryExample:
    """Documents and what people wrote of them.

    Attributes:
        id: names the example.
        documents: one text or more, in the order of the data.
        references: different people's summaries, the first one being the one to train on.
        query: what the summary is to answer; None when it is of the whole.
    """

    id: str
    documents: tuple[str, ...]
    references: tuple[str, ...]
    query: str | None = None

    @property
    def summary(self) -> str:
        """The reference to train on."""
        return self.references[0]


class Raw(NamedTuple):
    """A record before it is looked at: the place to name in errors, and a call that parses it."""

    where: str
    parse: Callable[[], Any]


class Layout(NamedTuple):
    """How a layout's files are taken apart into records, and a record (with its place and number) into examples."""

    records: Callable[[Path], Iterator[Raw]]
    examples: Callable[[Any, str, int], Iterator[SummaryExample]]


def json_records(path: Path) -> Iterator[Raw]:
    """The records of JSON lines, of a JSON list, of one JSON object, or of such files in a folder by their names.

    Lines are read one at a time; a list is read whole.

    Raises:
        UsageError: a file cannot be read, a list is no JSON, or a folder has no such file.
    """
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.name.endswith(_NAMES))
        if not files:
            raise UsageError(f"{path}: expected files that end in {', '.join(_NAMES)}, got none; pass another folder.")
        for file in files:
            yield from json_records(file)
    elif _is_lines(path):
        for number, line in enumerate(lines(path), start=1):
            if not line.isspace():
                where = f"{path}: line {number}"
                yield Raw(where, partial(parse_json, line, where))
    else:
        document = load_json(path, "JSON lines, a list of records or one record")
        several = isinstance(document, list)
        for number, record in enumerate(document if several else [document], start=1):
            yield Raw(f"{path}: record {number}" if several else str(path), partial(_same, record))


def strings(record: Any, key: str, where: str) -> list[str]:
    """The value of a key, as a list of strings.

    Raises:
        UsageError: it is missing or anything else.
    """
    values = field(record, key, list, where)
    for number, value in enumerate(values):
        if not isinstance(value, str):
            raise UsageError(
                f"{where}: expected {key!r} to hold strings, got {type(value).__name__} at place {number}; "
                "correct or remove the record."
            )
    return values


def string_or_strings(record: Any, key: str, where: str) -> list[str]:
    """The value of a key that is a string or a list of them.

    Raises:
        UsageError: it is missing or anything else.
    """
    if isinstance(record, Mapping) and key in record and not isinstance(record[key], list):
        return [field(record, key, str, where)]
    return strings(record, key, where)


def filled(texts: list[str], name: str, where: str) -> tuple[str, ...]:
    """The texts, none of them blank.

    Args:
        texts: what was read.
        name: what they are, such as "document".
        where: the file and the place in it.

    Raises:
        UsageError: there is none, one is blank, or one cannot be written as UTF-8.
    """
    if not texts:
        raise UsageError(f"{where}: expected at least one {name}, got none; add one or remove the record.")
    for number, text in enumerate(texts, start=1):
        place = name if len(texts) == 1 else f"{name} {number}"
        if not text or text.isspace():
            raise UsageError(f"{where}: expected text in the {place}, got none; fill it or remove the record.")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"{where}: expected Unicode text in the {place}, got half of a surrogate pair at character "
                f"{error.start}; correct or remove the record."
            ) from error
    return tuple(texts)


def record_id(record: Any, key: str, number: int, where: str) -> str:
    """The id of a record, or its number where it has none.

    Raises:
        UsageError: the id is no name and no number.
    """
    value = record.get(key) if isinstance(record, Mapping) else None
    if value is None:
        return str(number)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise UsageError(f"{where}: expected {key!r} to be a name or a number, got {value!r:.40}; correct it.")
    return str(value)


def _same(record: Any) -> Any:
    return record


def _is_lines(path: Path) -> bool:
    """Whether records stand a line each: told by the name, or by the first line where the name is `.json`."""
    if path.name.removesuffix(".gz").endswith(".jsonl"):
        return True
    try:
        with open_text(path) as file:
            first = next((line for line in file if not line.isspace()), "")
    except UNREADABLE as error:
        raise unreadable(path, error) from error
    try:
        return not first.lstrip().startswith("[") and isinstance(parse_json(first, ""), dict)
    except UsageError:
        return False
