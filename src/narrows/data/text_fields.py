"""Raw text out of JSON Lines."""

from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path

from narrows.data.files import field, lines, parse_json

__all__ = ["read_text_fields"]


def read_text_fields(path: str | PathLike[str], fields: Sequence[str]) -> Iterator[str]:
    """The texts of some keys, in the order of the lines and of the keys.

    Args:
        path: JSON Lines, plain or ending in `.gz`; blank lines are passed over.
        fields: keys that every record has, each a string. A text that the record before has under the same key is left
            out: files of questions repeat what they ask about.

    Raises:
        UsageError: the file cannot be read, or a line is no such record; the sentence names the file and the line.

    Example:
        `read_text_fields("boolq/dev.jsonl.gz", ["question", "passage"])`
    """
    path, last = Path(path), {}
    for number, line in enumerate(lines(path), start=1):
        if not line.strip():
            continue
        where = f"{path}: line {number}"
        record = parse_json(line, where)
        for key in fields:
            text = field(record, key, str, where)
            if text != last.get(key):
                last[key] = text
                yield text
