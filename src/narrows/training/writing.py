"""What a command makes, on disk: whole or not at all, and one sentence where the disk will not take it."""

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from narrows.errors import OutputError, UsageError

__all__ = ["fresh_folder", "require_place", "room_for", "written_whole"]

# A name has at most 255 bytes, of which a character may take 4.
_LONGEST_PREFIX = 40
# No room on the disk, none in the quota, no larger file allowed.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# torch.save gives no reason, only that its own writer failed, in Python's words or in those of C++.
_OF_TORCH = ("PytorchStreamWriter failed writing", "iostream error")


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
    """Gives a place beside `path` to write a file or a folder to; when that is done, it takes the place of `path`.

    Raises:
        OutputError: the disk is full or cannot be written; nothing of it is left.
    """
    with fresh_folder(path.parent, path) as folder:
        partial = folder / path.name
        yield partial
        os.replace(partial, path)


@contextmanager
def fresh_folder(parent: Path, target: Path) -> Iterator[Path]:
    """A folder of our own in `parent`, under a name that nobody else has, to make `target` in; gone at the end.

    A killed process may leave one: its name begins with a dot and that of the target.

    Args:
        parent: on the disk of the target, so that what is made can be moved to it in one step.
        target: what is made, for the folder's name and the error.

    Raises:
        OutputError: the disk is full or cannot be written.
    """
    folder = None
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{target.name[:_LONGEST_PREFIX]}-", dir=parent))
        yield folder
    except BaseException as error:
        if not _is_of_the_disk(error):
            raise
        raise OutputError(
            f"expected room and permission to write {target}, got {_reason(error)}; make room or choose another place"
        ) from error
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def room_for(run: Path) -> Iterator[None]:
    """One sentence where the disk gets full while a run writes into its folder, and what goes on after it.

    Raises:
        OutputError: there was no room; what was written whole before is still there.
    """
    try:
        yield
    except BaseException as error:
        if not _is_of_a_full_disk(error):
            raise
        raise OutputError(
            f"expected room to write to {run}, got {_reason(error)}; make room, and the same command goes on from the "
            "last checkpoint"
        ) from error


def _is_of_a_full_disk(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in _FULL
    # safetensors says it in Rust's words.
    told = re.search(r"\(os error (\d+)\)", str(error))
    return int(told[1]) in _FULL if told else any(words in str(error) for words in _OF_TORCH)


def _is_of_the_disk(error: BaseException) -> bool:
    # safetensors and tokenizers write in Rust, and have no error of their own kind for it.
    return isinstance(error, OSError) or "(os error " in str(error)


def _reason(error: BaseException) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or " ".join(str(error).split())
