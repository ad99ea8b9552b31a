"""A file of results that grows text by text, survives its process, and goes on where that stopped."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, NamedTuple

from narrows._lock import hold
from narrows._text import shown
from narrows.documents.texts import Text
from narrows.errors import OutputError, UsageError
from narrows.serving.batching import Row
from narrows.serving.result_formats import RowFormat, json_line

__all__ = ["ResultFile", "Totals", "ids_path", "require_free"]


class Totals(NamedTuple):
    """What a file holds.

    Attributes:
        texts: rows.
        tokens: that were read for them.
        texts_cut: texts of which something was not read.
        tokens_not_read: of these.
    """

    texts: int = 0
    tokens: int = 0
    texts_cut: int = 0
    tokens_not_read: int = 0

    def plus(self, rows: Iterable[tuple[int, int]]) -> "Totals":
        """With more rows, each by its tokens read and not read."""
        texts, tokens, cut, lost = self
        for read, not_read in rows:
            texts, tokens, cut, lost = texts + 1, tokens + read, cut + bool(not_read), lost + not_read
        return Totals(texts, tokens, cut, lost)


def ids_path(path: Path) -> Path:
    """Where the ids of a file of bare vectors lie: `out.npy` has `out.ids.jsonl`."""
    return path.with_name(f"{path.stem}.ids.jsonl")


def require_free(path: Path, *, force: bool) -> None:
    """Refuse to write over a finished file unless that is asked for.

    Raises:
        UsageError: it is there, or it is a folder.
    """
    if path.is_dir():
        raise UsageError(f"expected a file to write to, got the folder {path}; name a file in it")
    if path.exists() and not force:
        raise UsageError(f"expected a new file to write to, got {path}, which is there; name another, or pass --force")


class ResultFile:
    """Rows for `path`, kept in `path` + `.partial` until all are there.

    Beside them lies `.partial.texts`: the settings, then a line a text with its digest, which is how a later run with
    the same settings knows the texts that are done. A window of rows counts as done when its last line is written. That
    file is locked, so that two processes never write the same rows.

    Args:
        path: of the finished file.
        rows: how rows are written.
        settings: all that a row depends on beside its text.
        force: whether another run's rest is given up where it does not fit.

    Raises:
        UsageError: the rest of a run with other settings, another process that writes it, or a finished file where
            `force` is not set, or the file of another one's ids where this one's would be.
        OutputError: the disk is full or cannot be written.

    Example:
        with ResultFile(Path("out.npy"), NpyRows(384), settings=embedder.settings()) as file:
            for window in embedder.windows(file.remaining(texts)):
                file.append(window)
            file.finish()
    """

    def __init__(self, path: Path, rows: RowFormat, *, settings: Mapping[str, Any], force: bool = False):
        self.path, self._rows, self._force = path, rows, force
        self._settings = {**settings, "format": path.suffix}
        self._partial = path.with_name(path.name + ".partial")
        self._journal = path.with_name(path.name + ".partial.texts")
        self.totals = Totals()
        self.resumed = 0
        try:
            self._open()
        except OSError as error:
            raise self._unwritable(error) from error

    def __enter__(self) -> "ResultFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._data.close()
        if not self._notes.closed and os.fstat(self._notes.fileno()).st_size <= len(self._first_line()):
            # A run that was refused at its first text leaves nothing to go on from; by what is on disk, for what a run
            # before has done may not have been compared yet.
            self._partial.unlink(missing_ok=True)
            self._journal.unlink(missing_ok=True)
        self._notes.close()

    def remaining(self, texts: Iterable[Text]) -> Iterator[Text]:
        """The texts that are not done, after the done ones have been compared with those of the run before.

        Raises:
            UsageError: another text stands where one is done, and `force` is not set; with it, the window of that text
                and all behind it are done again.
        """
        texts, held = iter(texts), []
        for window in self._done():
            held = list(islice(texts, len(window.entries)))
            changed = _first_change(window.entries, held)
            if changed is not None:
                if not self._force:
                    got = shown(held[changed].id) if changed < len(held) else "no more texts"
                    raise UsageError(
                        f"expected text {shown(window.entries[changed]['id'])} as in the run that left "
                        f"{self._partial.name}, got {got} with another text; pass --force to go on from there, or name "
                        "another output"
                    )
                break
            held = []
            self.totals = self.totals.plus((entry["tokens"], entry["not_read"]) for entry in window.entries)
            self._ends = (window.data_end, window.notes_end)
        for file, end in zip((self._data, self._notes), self._ends, strict=True):
            file.truncate(end)
            file.seek(end)
        self.resumed = self.totals.texts
        return chain(held, texts)

    def append(self, rows: Sequence[Row]) -> None:
        """Write a window of rows; once this returns they are done.

        Raises:
            OutputError: the disk is full or cannot be written.
        """
        try:
            self._data.write(self._rows.encode(rows))
            self._data.flush()
            lines = [
                {"id": row.text.id, "text": _digest(row.text), "tokens": row.tokens, "not_read": row.tokens_not_read}
                for row in rows
            ]
            lines[-1]["end"] = self._data.tell()
            self._notes.write(b"".join(f"{json.dumps(line)}\n".encode() for line in lines))
            self._notes.flush()
        except OSError as error:
            raise self._unwritable(error) from error
        self.totals = self.totals.plus((row.tokens, row.tokens_not_read) for row in rows)

    def finish(self) -> Totals:
        """Put the whole file in its place, and beside bare vectors the file of their ids.

        Raises:
            OutputError: the disk is full or cannot be written.
        """
        try:
            self._data.seek(0)
            self._data.write(self._rows.header(self.totals.texts))
            self._data.close()
            if self._rows.ids_apart:
                self._write_ids()
            os.replace(self._partial, self.path)
            # While it is locked, so that it is nobody else's yet.
            self._journal.unlink()
            self._notes.close()
        except OSError as error:
            raise self._unwritable(error) from error
        return self.totals

    def _open(self) -> None:
        self._notes = self._held_journal()
        try:
            require_free(self.path, force=self._force)
            former = self._former_settings()
            if former is not None and former != self._settings and not self._force:
                changed = sorted(name for name in self._settings if former.get(name) != self._settings[name])
                raise UsageError(
                    f"expected the settings of the run that left {self._partial.name}, got another "
                    f"{', '.join(changed) or 'version'}; give the same, pass --force to begin anew, or name another "
                    "output"
                )
            if self._rows.ids_apart and not (former == self._settings and self._has_own_ids()):
                # `out.npy` and `out.safetensors` would share them.
                require_free(ids_path(self.path), force=self._force)
            header = self._rows.header(0)
            if former != self._settings:
                self._partial.write_bytes(header)
                self._notes.seek(0)
                self._notes.truncate()
                self._notes.write(self._first_line())
                self._notes.flush()
            self._data = self._partial.open("r+b")
        except BaseException:
            if not os.fstat(self._notes.fileno()).st_size:
                self._journal.unlink(missing_ok=True)
            self._notes.close()
            raise
        self._ends = (len(header), len(self._first_line()))

    def _held_journal(self) -> IO[bytes]:
        """The journal, locked; made where there is none."""
        while True:
            file = os.fdopen(os.open(self._journal, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
            if not hold(file.fileno()):
                file.close()
                raise UsageError(
                    f"expected {self.path} for this run alone, got another process that writes it; wait for its end, "
                    "or name another output"
                )
            if self._journal.exists() and os.path.samestat(os.fstat(file.fileno()), self._journal.stat()):
                return file
            # The run that held it came to its end, and took it away, between our opening and our locking.
            file.close()

    def _first_line(self) -> bytes:
        return f"{json.dumps(self._settings)}\n".encode()

    def _former_settings(self) -> dict[str, Any] | None:
        """The settings of a run that was stopped; None: there is none, or it had not begun."""
        if not self._partial.is_file():
            return None
        self._notes.seek(0)
        line = self._notes.readline()
        try:
            return json.loads(line) if line.endswith(b"\n") else None
        except ValueError:
            return None

    def _done(self) -> Iterator["_Window"]:
        """Windows of which all was written; a torn last line, or rows that never reached the disk, are not."""
        written = os.fstat(self._data.fileno()).st_size
        self._notes.seek(self._ends[1])
        entries: list[dict[str, Any]] = []
        place = self._ends[1]
        while (line := self._notes.readline()).endswith(b"\n"):
            place += len(line)
            entries.append(json.loads(line))
            end = entries[-1].get("end")
            if end is not None:
                if end > written:
                    return
                yield _Window(entries, end, place)
                entries = []

    def _write_ids(self) -> None:
        target = ids_path(self.path)
        partial = target.with_name(target.name + ".partial")
        with partial.open("wb") as file:
            file.writelines(self._id_lines())
        os.replace(partial, target)

    def _id_lines(self) -> Iterator[bytes]:
        self._notes.seek(len(self._first_line()))
        while (line := self._notes.readline()).endswith(b"\n"):
            entry = json.loads(line)
            cut = {"tokens_not_read": entry["not_read"]} if entry["not_read"] else {}
            yield json_line({"id": entry["id"], **cut})

    def _has_own_ids(self) -> bool:
        """Whether the file of ids is there from this run, which was killed before its last step."""
        there = ids_path(self.path)
        return there.is_file() and there.read_bytes() == b"".join(self._id_lines())

    def _unwritable(self, error: OSError) -> OutputError:
        return OutputError(
            f"expected room and permission to write {self.path}, got {error.strerror}; make room or choose another "
            "place"
        )


class _Window(NamedTuple):
    entries: list[dict[str, Any]]
    data_end: int
    notes_end: int


def _first_change(entries: Sequence[Mapping[str, Any]], texts: Sequence[Text]) -> int | None:
    """Where the first text stands that is not the one that was done; None: they are the same."""
    for index, entry in enumerate(entries):
        if index >= len(texts) or _digest(texts[index]) != entry["text"]:
            return index
    return None


def _digest(text: Text) -> str:
    return hashlib.sha256(json.dumps([text.id, text.text, text.pair]).encode()).hexdigest()[:32]
