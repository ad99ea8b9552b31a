"""One line of JSON Lines as a record: its texts and its id, with errors that name the line."""

import json
from typing import Any

from narrows._text import UNREADABLE_JSON, json_problem
from narrows.errors import DocumentError

__all__ = ["TEXT_FIELDS", "parse_record", "record_id", "string_field", "text_field"]

TEXT_FIELDS = ("text", "contents", "body", "document")
"""Where a record's text is looked for, in this order."""

_ID_FIELDS = ("id", "_id")


def parse_record(line: str, where: str) -> dict[str, Any]:
    """The object on a line.

    Args:
        line: JSON.
        where: the line and its file, for the error.

    Raises:
        DocumentError: it is no JSON, or no object.

    Example:
        >>> parse_record('{"text": "A boat."}', "line 1 of a.jsonl")
        {'text': 'A boat.'}
    """
    try:
        record = json.loads(line)
    except UNREADABLE_JSON as error:
        reason = json_problem(error)
        message = f"expected a JSON object on {where}, but it is not JSON ({reason}); correct or remove the line"
        raise DocumentError(message) from error
    if not isinstance(record, dict):
        raise DocumentError(
            f"expected a JSON object on {where}, but got a {type(record).__name__}; correct or remove the line"
        )
    return record


def text_field(record: dict[str, Any], field: str, where: str) -> str:
    """A text that is there and has more than spaces.

    Raises:
        DocumentError: as `string_field`, or it is empty.
    """
    text = string_field(record, field, where)
    if not text or text.isspace():
        raise DocumentError(f"expected text in {field!r} on {where}, but it is empty; fill it or remove the line")
    return text


def string_field(record: dict[str, Any], field: str, where: str) -> str:
    """The Unicode string of a field that the record has.

    Raises:
        DocumentError: another kind of value, or half of a surrogate pair.
    """
    value = record[field]
    if not isinstance(value, str):
        raise DocumentError(
            f"expected a string in {field!r} on {where}, but got a {type(value).__name__}; correct or remove the line"
        )
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DocumentError(
            f"expected Unicode text in {field!r} on {where}, but character {error.start} is half of a "
            "surrogate pair; correct or remove the line"
        ) from error
    return value


def record_id(record: dict[str, Any], where: str) -> str | int | None:
    """The value of `id` or `_id` as it stands there; None where a record has neither.

    Raises:
        DocumentError: neither a number nor a name.
    """
    field = next((name for name in _ID_FIELDS if record.get(name) is not None), None)
    if field is None:
        return None
    value = record[field]
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str) or not value.strip():
        raise DocumentError(
            f"expected a number or a name in {field!r} on {where}, but got {value!r:.40}; correct it or leave it out"
        )
    return string_field(record, field, where)
