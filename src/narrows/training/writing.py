"""What a command makes, on disk: whole or not at all, and one sentence where the disk will not take it."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from narrows.errors import OutputError, UsageError

__all__ = ["require_place", "written_whole"]


def require_place(path: Path) -> None:
    """Refuse a place that nothing can be written to, before the work that makes what is to be written.

    Raises:
        UsageError: the folder above cannot be made or written to.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"expected a folder to write to, got {path.parent} ({error.strerror}); choose another"
        ) from error
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"expected a folder to write to, got {path.parent} without permission; choose another")


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Gives a name beside `path` to write a file or a folder under; when that is done, it gets its own name.

    Raises:
        OutputError: the disk is full or cannot be written; nothing of it is left.
    """
    partial = path.with_name(path.name + ".partial")
    _remove(partial)
    try:
        yield partial
        os.replace(partial, path)
    except BaseException as error:
        _remove(partial)
        if not _is_of_the_disk(error):
            raise
        raise OutputError(
            f"expected room and permission to write {path}, got {_reason(error)}; make room or choose another place"
        ) from error


def _is_of_the_disk(error: BaseException) -> bool:
    # safetensors and tokenizers write in Rust, and have no error of their own kind for it.
    return isinstance(error, OSError) or "(os error " in str(error)


def _reason(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or " ".join(str(error).split())


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
