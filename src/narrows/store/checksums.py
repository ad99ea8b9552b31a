"""Checksums of the files that Lance writes, which have none of their own.

A row carries the checksum of what it says, see `rows`. It does not cover how Lance lays rows out, nor the files that
say which rows a version has, which of them were deleted and which words they hold: a flipped byte there brings deleted
passages back, hides others from the search, or ends the process inside Lance. `Writer.finish` notes the checksums of
all files; `verify` compares them, and a store that is opened those few that are small.
"""

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lance

from narrows.errors import StoreDamagedError
from narrows.store import layout

__all__ = ["changed_files", "is_of_data", "is_of_index", "note_checksums", "require_unchanged"]

_READ_AT_ONCE = 1 << 20
_COVERED = ("manifest", "deletion file", "index file", "data file")


def note_checksums(path: Path, dataset: lance.LanceDataset) -> None:
    """Note the checksums of the newest version's files, before older versions are cleaned up.

    In this order a writer that is killed between the two leaves no note of a file that is gone. A file that was noted
    before keeps its checksum: none is written twice, so bytes that differ now are damage.
    """
    try:
        known = _noted(path)
    except StoreDamagedError:
        known = {}
    tracked = dataset.tracked_files(min_version=dataset.latest_version).read_all().to_pylist()
    names = [f"{layout.PASSAGES}/{file['path']}" for file in tracked if file["type"] in _COVERED]
    names.append(layout.MANIFEST)
    files = {name: known[name] if name in known else _checksum(path / name) for name in sorted(names)}
    layout.write_whole(path, layout.CHECKSUMS, {"checksum": _of_note(files), "files": files})


def changed_files(path: Path, *, small_only: bool = False) -> list[str]:
    """Names of the noted files that are gone or hold other bytes; `small_only` leaves out the data and the index.

    Raises:
        StoreDamagedError: the note itself is not what was written.
        StoreError: a file may not be read.
    """
    noted = _noted(path)
    if small_only:
        noted = {name: noted[name] for name in noted if not is_of_data(name) and not is_of_index(name)}
    try:
        return [name for name, checksum in noted.items() if _checksum(path / name) != checksum]
    except OSError as error:
        raise layout.unreadable(path, error) from error


def require_unchanged(path: Path) -> None:
    """Refuse files that would say wrongly what the store holds, or end the process inside Lance.

    A note that is damaged itself is for `verify` to report: it says nothing of the passages.

    Raises:
        StoreDamagedError: names a file.
    """
    try:
        changed = changed_files(path, small_only=True)
    except StoreDamagedError:
        return
    if changed:
        raise StoreDamagedError(
            f"{changed[0]} in the store {path} is not what was written; run `narrows store verify` on the store"
        )


def is_of_data(name: str) -> bool:
    """Whether a file holds rows."""
    return name.startswith(f"{layout.PASSAGES}/data/")


def is_of_index(name: str) -> bool:
    """Whether a file is one of the full-text index, which can be made anew from the rows."""
    return name.startswith(f"{layout.PASSAGES}/_indices/")


def _noted(path: Path) -> dict[str, int]:
    """The checksums by file; none before the first note."""
    try:
        content: Any = json.loads((path / layout.CHECKSUMS).read_bytes())
        if content["checksum"] == _of_note(content["files"]):
            return content["files"]
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise layout.unreadable(path, error) from error
    except (ValueError, KeyError, TypeError):
        pass
    raise StoreDamagedError(
        f"{path / layout.CHECKSUMS} is not what was written; run `narrows store verify --repair` on the store"
    )


def _of_note(files: Mapping[str, int | None]) -> int:
    return zlib.crc32(json.dumps(files, sort_keys=True).encode())


def _checksum(path: Path) -> int | None:
    """crc32 of a file; None when it is not there."""
    checksum = 0
    try:
        with path.open("rb") as file:
            while block := file.read(_READ_AT_ONCE):
                checksum = zlib.crc32(block, checksum)
    except FileNotFoundError:
        return None
    return checksum
