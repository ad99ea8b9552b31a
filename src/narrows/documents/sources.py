"""Which files of a folder can be read."""

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from narrows._plural import count
from narrows.errors import DocumentError

__all__ = [
    "EXPECTED_SUFFIXES",
    "SUFFIXES",
    "OnProblem",
    "Source",
    "UnsupportedSuffix",
    "format_of",
    "scan",
    "unreadable",
]

SUFFIXES = {
    ".txt": "text",
    ".text": "text",
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".jsonl": "jsonl",
    ".pdf": "pdf",
}
"""Format by file suffix; case does not matter."""

EXPECTED_SUFFIXES = ".txt, .md, .html, .jsonl or .pdf"
"""For error messages."""

_CONVERT = "name another folder or convert the files to one of these formats"

OnProblem = Callable[[str, DocumentError], None]


class UnsupportedSuffix(DocumentError):
    """A file is skipped because its suffix names no format that can be read."""


@dataclass(frozen=True)
class Source:
    """A file to read; `id` is its path below the folder with forward slashes, `size` is in bytes."""

    path: Path
    id: str
    size: int
    mtime_ns: int


def scan(folder: Path | str, *, on_problem: OnProblem | None = None) -> list[Source]:
    """List the readable files below a folder, sorted by id.

    Files and folders whose name begins with a dot are left out. Links to files are followed, links to folders
    are a problem of their own, since they may lead in circles. Nothing is opened.

    Args:
        folder: a folder, or one file (its id is then its name).
        on_problem: called with the id and an error for every file that is skipped (`UnsupportedSuffix`) or
            cannot be looked at. Without it, files with other suffixes are left out and anything else is
            raised.

    Returns:
        The sources; never an empty list.

    Raises:
        DocumentError: the path is missing, nothing below it can be read, or it is a file of unknown suffix.
    """
    root = Path(folder)
    if root.is_file():
        if format_of(root.name) is None:
            raise _unsupported(str(root))
        return [_source(root, root.name)]
    if not root.is_dir():
        found = "is neither" if root.exists() else "does not exist"
        raise DocumentError(f"expected a folder or a file, but {root} {found}; check the path")

    skipped = refused = 0

    def report(name: str, error: DocumentError) -> None:
        nonlocal skipped, refused
        skipped += 1
        refused += not isinstance(error, UnsupportedSuffix)
        if on_problem is not None:
            on_problem(name, error)
        elif not isinstance(error, UnsupportedSuffix):
            raise error

    sources = sorted(_walk(root, report), key=lambda source: source.id)
    if not sources:
        others = f" ({count(skipped, 'other')} skipped)" if skipped else ""
        raise DocumentError(
            f"expected a folder with {EXPECTED_SUFFIXES} files, but {root} holds none{others}; "
            + ("see why they were skipped" if refused else _CONVERT)
        )
    return sources


def _walk(root: Path, report: OnProblem) -> Iterator[Source]:
    folders = [root]
    while folders:
        folder = folders.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            report(_relative(folder, root), unreadable(_relative(folder, root), error))
            continue
        for entry in entries:
            if entry.name.startswith("."):
                continue
            path = Path(entry.path)
            name = _relative(path, root)
            try:
                # A link that leads to itself cannot be looked at.
                is_folder, is_own = entry.is_dir(), entry.is_dir(follow_symlinks=False)
            except OSError as error:
                report(name, unreadable(name, error))
                continue
            if is_own:
                folders.append(path)
            elif is_folder:
                message = f"expected files and folders, but {name} is a link to a folder; name that folder instead"
                report(name, DocumentError(message))
            elif format_of(name) is None:
                report(name, _unsupported(name))
            else:
                try:
                    yield _source(path, name)
                except DocumentError as error:
                    report(name, error)


def _source(path: Path, name: str) -> Source:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError as error:
        message = f"expected a file name in UTF-8, but got {name!a}; rename the file"
        raise DocumentError(message) from error
    try:
        status = path.stat()
    except OSError as error:
        raise unreadable(name, error) from error
    if not stat.S_ISREG(status.st_mode):
        raise DocumentError(f"expected a regular file, but {name} is a pipe, socket or device; leave it out")
    return Source(path=path, id=name, size=status.st_size, mtime_ns=status.st_mtime_ns)


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def format_of(name: str) -> str | None:
    """The format that a file's suffix stands for, or None."""
    return SUFFIXES.get(os.path.splitext(name)[1].lower())


def unreadable(name: object, error: OSError) -> DocumentError:
    """Put into one sentence why the operating system would not open `name`."""
    reason = error.strerror or type(error).__name__
    return DocumentError(
        f"expected a readable file or folder, but {name} could not be opened ({reason}); "
        "change its permissions or leave it out"
    )


def _unsupported(name: str) -> UnsupportedSuffix:
    suffix = os.path.splitext(name)[1] or "none"
    return UnsupportedSuffix(
        f"expected a {EXPECTED_SUFFIXES} file, but {name} has the suffix {suffix!r}; "
        "convert it to one of these formats or leave it out"
    )
