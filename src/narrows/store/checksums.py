"""Checksums of the files that Lance writes, which have none of their own.

A row carries the checksum of what it says, see `rows`. It does not cover how Lance lays rows out, nor the files that
say which rows a version has, which of them were deleted and which words they hold: a flipped byte there brings deleted
passages back, hides others from the search, or ends the process inside Lance. `Writer.finish` notes the checksums of
all files; `verify` compares them, and a store that is opened those few that are small.

The tails of data and index files have checksums of their own, see `tails`, that are compared before Lance opens the
files. Those of data files are noted before a commit names the files: a killed writer leaves none without.

The note is there before the first commit, and the manifest says so: that it is lost is noticed.
"""

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import lance

from narrows.errors import StoreDamagedError
from narrows.store import layout
from narrows.store.tails import Tail, is_suspect, tail_of

__all__ = [
    "changed_files",
    "is_of_data",
    "is_of_index",
    "note_birth",
    "note_checksums",
    "note_tails",
    "noted_names",
    "require_unchanged",
    "suspects",
]

_READ_AT_ONCE = 1 << 20
_COVERED = ("manifest", "deletion file", "index file", "data file")


class _Note(NamedTuple):
    """What `checksums.json` says: the checksums by file, and whether `source.json`, which has its own, is there.

    And where the tails of Lance's files start, with their checksums; older notes lack them.
    """

    files: dict[str, int | None]
    source: bool = False
    tails: Mapping[str, Sequence[int]] = {}


def note_birth(path: Path) -> None:
    """Note the manifest, before the first commit."""
    _write(path, _Note({layout.MANIFEST: _checksum(path / layout.MANIFEST)}))


def note_checksums(path: Path, dataset: lance.LanceDataset, *, forget_lost: bool = False) -> None:
    """Note the checksums of the newest version's files, before older versions are cleaned up.

    In this order a writer that is killed between the two leaves no note of a file that is gone. A file that was noted
    before keeps its checksum: none is written twice, so bytes that differ now are damage.

    Args:
        path: the store.
        dataset: its passages.
        forget_lost: no longer expect a `source.json` that is gone or damaged.
    """
    try:
        known = _noted(path)
    except StoreDamagedError:
        known = _Note({})
    tracked = dataset.tracked_files(min_version=dataset.latest_version).read_all().to_pylist()
    names = [f"{layout.PASSAGES}/{file['path']}" for file in tracked if file["type"] in _COVERED]
    names.append(layout.MANIFEST)
    files = {name: known.files[name] if name in known.files else _checksum(path / name) for name in sorted(names)}
    source = layout.read_source(path)
    if source is not None and not known.source and not layout.has_whole_source(path):
        # Of an older narrows.
        layout.write_source(path, source)
    _write(
        path,
        _Note(files, layout.has_whole_source(path) or (known.source and not forget_lost), _tails(path, files, known)),
    )


def note_tails(path: Path, names: Iterable[str]) -> None:
    """Note the tails of new files, before the commit that names them.

    A note that is lost or damaged stays so, for `verify` to report.
    """
    try:
        known = _noted(path)
    except StoreDamagedError:
        return
    if known.files:
        new = {name: tail for name in names if (tail := tail_of(path / name)) is not None}
        _write(path, known._replace(tails={**known.tails, **new}))


def _tails(path: Path, files: Mapping[str, int | None], known: _Note) -> dict[str, Sequence[int]]:
    """The tails of the data and index files among these, noted before or as they are now.

    Of a file whose checksum is older than its tail, the tail is that of the file that was written only while the
    checksum is.
    """
    tails: dict[str, Sequence[int]] = {}
    for name in files:
        if name in known.tails:
            tails[name] = known.tails[name]
        elif is_of_data(name) or is_of_index(name):
            is_as_written = name not in known.files or _checksum(path / name) == known.files[name]
            tail = tail_of(path / name) if is_as_written else None
            if tail is not None:
                tails[name] = tail
    return tails


def changed_files(path: Path, *, small_only: bool = False) -> list[str]:
    """Names of the noted files that are gone or hold other bytes; `small_only` leaves out the data and the index.

    Raises:
        StoreDamagedError: the note itself is not what was written.
        StoreError: a file may not be read.
    """
    files, source, _ = _noted(path)
    if small_only:
        files = {name: files[name] for name in files if not is_of_data(name) and not is_of_index(name)}
    try:
        changed = [name for name, checksum in files.items() if _checksum(path / name) != checksum]
    except OSError as error:
        raise layout.unreadable(path, error) from error
    if source and not small_only and not layout.has_whole_source(path):
        changed.append(layout.SOURCE)
    return changed


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


def suspects(path: Path, names: Iterable[str]) -> list[str]:
    """Those of some data or index files that may end the process inside Lance, see `tails`; a few reads a file.

    Raises:
        StoreError: the note may not be read.
    """
    try:
        noted = _noted(path).tails
    except StoreDamagedError:
        noted = {}
    return [name for name in names if is_suspect(path / name, Tail(*noted[name]) if name in noted else None)]


def noted_names(path: Path) -> set[str]:
    """Names of the files of which a checksum is noted, be it that of the tail; none where the note is damaged."""
    try:
        known = _noted(path)
    except StoreDamagedError:
        return set()
    return {*known.files, *known.tails}


def is_of_data(name: str) -> bool:
    """Whether a file holds rows."""
    return name.startswith(f"{layout.PASSAGES}/data/")


def is_of_index(name: str) -> bool:
    """Whether a file is one of the full-text index, which can be made anew from the rows."""
    return name.startswith(f"{layout.PASSAGES}/_indices/")


def _noted(path: Path) -> _Note:
    """What is noted; nothing before the first note."""
    try:
        content: Any = json.loads((path / layout.CHECKSUMS).read_bytes())
        checksum = content.pop("checksum")
        # Older notes are of files alone.
        if checksum == _of_note(content["files"] if content.keys() == {"files"} else content):
            return _Note(**content)
    except FileNotFoundError:
        return _Note({})
    except OSError as error:
        raise layout.unreadable(path, error) from error
    except layout.NOT_AS_WRITTEN:
        pass
    raise StoreDamagedError(
        f"{path / layout.CHECKSUMS} is not what was written; run `narrows store verify --repair` on the store"
    )


def _write(path: Path, note: _Note) -> None:
    layout.write_whole(path, layout.CHECKSUMS, {"checksum": _of_note(note._asdict()), **note._asdict()})


def _of_note(content: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


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
