"""Files of JSON lines that an evaluation writes as it goes, and goes on with after a stop."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from narrows._text import UNREADABLE_JSON
from narrows.errors import UsageError

__all__ = ["append_lines", "claim", "read_lines", "require_unique"]


def require_unique(ids: Iterable[str]) -> None:
    """Refuse data in which an id stands twice: what a model says is kept by id, and one would get the other's.

    Raises:
        UsageError: an id that stands twice.
    """
    seen: set[str] = set()
    for name in ids:
        if name in seen:
            raise UsageError(f"expected every id once, got {name!r} twice; give each record its own")
        seen.add(name)


def claim(path: Path, identity: str) -> None:
    """Check that a file is this evaluation's or new, and cut off the half line of a killed process.

    Args:
        path: the file; what it belongs to is noted beside it.
        identity: a digest of all that its lines depend on.

    Raises:
        UsageError: the file is of another evaluation, or cannot be written.
    """
    if path.is_dir():
        raise UsageError(f"expected a file to write to at {path}, got a folder; choose another one")
    note = path.with_name(path.name + ".model")
    if path.is_file() and path.stat().st_size:
        former = note.read_text(encoding="utf-8").strip() if note.is_file() else "none"
        if former != identity:
            raise UsageError(
                f"expected predictions of the same model and questions in {path}, got others; choose another file"
            )
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(path, whole)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(identity + "\n", encoding="utf-8")
        path.touch()
    except OSError as error:
        raise UsageError(f"expected a file to write to at {path}, got {error.strerror}; choose another one") from error


def append_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write records at the end of a file, a line each."""
    with path.open("a", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")


def read_lines(path: Path, keys: Sequence[str]) -> list[dict[str, Any]]:
    """The records of a file; none when there is no file. A last line cut short is left out.

    Args:
        path: JSON lines.
        keys: that each record must have.

    Raises:
        UsageError: a line that is no such record.
    """
    if not path.is_file():
        return []
    found = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
        try:
            record = json.loads(line)
            found.append({**record, **{key: record[key] for key in keys}})
        except (*UNREADABLE_JSON, KeyError, TypeError) as error:
            names = ", ".join(f"`{key}`" for key in keys[:-1])
            raise UsageError(
                f"expected {names} and `{keys[-1]}` in line {number} of {path}, got {line[:60]!r}; "
                "pass a file that `narrows evaluate` wrote"
            ) from error
    return found
