"""JSON lines: `text` (or `text_a` and `text_b`) and `label`, or keys of other names."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from narrows.data.class_layouts.record import ClassExample, Layout, TextExample, require_text
from narrows.data.files import field, lines, parse_json
from narrows.errors import UsageError

__all__ = ["JSON_LINES"]


def _read(path: Path, fields: Mapping[str, str], skip: bool) -> Iterator[ClassExample]:
    for number, line in enumerate(lines(path), start=1):
        if line.isspace():
            continue
        where = f"{path}: line {number}"
        record = parse_json(line, where)
        if not isinstance(record, Mapping):
            raise UsageError(f"{where}: expected an object, got {type(record).__name__}; write a record a line.")
        first = fields.get("text", "text" if "text" in record else "text_a")
        second = fields.get("pair", "text_b")
        pair = None
        if "pair" in fields or second in record:
            pair = require_text(field(record, second, str, where), second, where)
        text = require_text(field(record, first, str, where), first, where)
        yield TextExample(str(number), text, pair, _label(record, fields.get("label", "label"), where))


def _label(record: Mapping[str, Any], key: str, where: str) -> str:
    value = record.get(key)
    # As JSON writes them; `true` is a class of BoolQ.
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    return require_text(field(record, key, str, where), key, where)


JSON_LINES = Layout(_read, TextExample, ("text", "pair", "label"))
"""A record a line."""
