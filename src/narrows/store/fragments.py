"""Reading a data file that may be damaged: as many rows at once as it allows, and first of all in another process."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import lance
import pyarrow as pa

from narrows.errors import StoreDamagedError
from narrows.store import attempt, layout, rows

__all__ = ["ReadRows", "names_alone", "readable_rows", "survives_search", "that_end_lance"]

_ROWS_AT_ONCE = 256


class ReadRows(NamedTuple):
    """Rows that could be read, as Lance gives them and as `rows.table_to_rows` does."""

    table: pa.Table
    rows: list[dict]


def readable_rows(fragment: lance.LanceFragment, number: int, path: Path) -> Iterator[tuple[int, ReadRows | None]]:
    """The first `number` rows of a file that may be damaged, in as few reads as it allows.

    Yields:
        Where some rows begin, and the rows; None for a single one that cannot be read.
    """
    for start in range(0, number, _ROWS_AT_ONCE):
        pending = [range(start, min(start + _ROWS_AT_ONCE, number))]
        while pending:
            places = pending.pop()
            try:
                with layout.lance_errors(path, "reading"):
                    table = fragment.take(list(places))
                    read = ReadRows(table, rows.table_to_rows(table))
            except StoreDamagedError:
                middle = len(places) // 2
                if middle:
                    pending += [places[middle:], places[:middle]]
                else:
                    yield places.start, None
            else:
                yield places.start, read


def names_alone(fragment: lance.LanceFragment, path: Path) -> set[str] | None:
    """The documents of a file of whose rows nothing else can be read; None where that is damaged too."""
    try:
        with layout.lance_errors(path, "reading"):
            names = set(fragment.to_table(columns=["document_id"])["document_id"].to_pylist())
    except StoreDamagedError:
        return None
    # No checksum tells a name from what was written over it.
    return names if all(name and name.isprintable() for name in names) else None


def that_end_lance(path: Path, version: int, fragment_ids: Sequence[int]) -> set[int]:
    """Those of some files of a version that end the process which reads them.

    Of some lengths, read from a damaged file, Lance asks for all memory and aborts: so another process tries, all
    files at once and, if it ends, half of them each time.
    """
    if not fragment_ids or _survives(path, version, "files", *fragment_ids):
        return set()
    if len(fragment_ids) == 1:
        return set(fragment_ids)
    middle = len(fragment_ids) // 2
    halves = fragment_ids[:middle], fragment_ids[middle:]
    return set().union(*(that_end_lance(path, version, half) for half in halves))


def survives_search(path: Path, version: int, word: str) -> bool:
    """Whether a process that searches for a word goes on: a damaged index can end it as a data file can."""
    return _survives(path, version, "search", rows.TEXT_COLUMN, given=word)


def _survives(path: Path, version: int, *arguments: object, given: str = "") -> bool:
    command = [sys.executable, "-P", attempt.__file__, layout.dataset_uri(path), str(version), *map(str, arguments)]
    # Killed by a signal; whatever else may go wrong there is found here again.
    return subprocess.run(command, input=given.encode(), capture_output=True, check=False).returncode >= 0
