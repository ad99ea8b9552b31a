"""Texts as one line of byte values, in a file: the byte tokenizer's part of the data.

All that the task knows of bytes is here, so that it can be exchanged for the library's own reader and tokenizer.
"""

import bz2
import gzip
import lzma
import math
import os
import secrets
import zlib
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import IO

import numpy as np

from narrows.errors import UsageError

__all__ = ["BYTES", "BYTE_VOCABULARY", "ByteLine", "byte_line", "save_tokenizer", "split_line"]

BYTES = "bytes"
"""What a recipe calls the tokenizer of bytes."""

BYTE_VOCABULARY = 260
"""The values of a byte, and four ids that no text has."""

# Read at once.
_BLOCK = 1 << 20
_OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError)


class ByteLine:
    """Bytes one after another; each is a token, its id the byte's value.

    Args:
        values: uint8 `[bytes]`, which may lie in a file.
    """

    def __init__(self, values: np.ndarray):
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    @property
    def scored_bytes(self) -> int:
        """All but the first, which nothing foretells."""
        return len(self._values) - 1

    def read(self, start: int, stop: int) -> np.ndarray:
        """The bytes from `start` up to `stop`, int64."""
        return self._values[start:stop].astype(np.int64)

    def head(self, share: float) -> "ByteLine":
        """The first part of the line."""
        return ByteLine(self._values[: math.ceil(share * len(self._values))])

    def counts(self) -> np.ndarray:
        """How often each id stands in the line, int64 `[256]`."""
        found = np.zeros(256, dtype=np.int64)
        for start in range(0, len(self._values), _BLOCK):
            found += np.bincount(self._values[start : start + _BLOCK], minlength=len(found))
        return found

    def part(self, start: int, stop: int) -> "ByteLine":
        """The bytes from `start` up to `stop`."""
        return ByteLine(self._values[start:stop])


def byte_line(paths: Sequence[Path], file: Path) -> ByteLine:
    """The bytes of files, one after another, unpacked where a name ends in .gz, .bz2 or .xz.

    Args:
        paths: of the files.
        file: that the bytes are kept in; one of that name is replaced.

    Raises:
        UsageError: a file that cannot be read, or no bytes at all.
        OSError: the disk is full.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    # A name of its own: another process of the run may be doing the same.
    partial = file.with_name(f"{file.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    try:
        with partial.open("wb") as target:
            for path in paths:
                _append(path, target)
        empty = partial.stat().st_size == 0
        if not empty:
            os.replace(partial, file)
    finally:
        partial.unlink(missing_ok=True)
    if empty:
        raise UsageError(f"expected text in {', '.join(map(str, paths))}, got none; mend the recipe")
    return ByteLine(np.memmap(file, dtype=np.uint8, mode="r"))


def split_line(line: ByteLine, shares: Sequence[float]) -> list[ByteLine]:
    """A line cut into parts of these shares, in its order; the last has the rest.

    Example:
        >>> [len(part) for part in split_line(ByteLine(np.zeros(10, dtype=np.uint8)), [0.5, 0.3, 0.2])]
        [5, 3, 2]
    """
    ends = [round(end * len(line)) for end in accumulate(shares)]
    ends[-1] = len(line)
    return [line.part(start, stop) for start, stop in zip([0, *ends[:-1]], ends, strict=True)]


def save_tokenizer(folder: Path) -> None:
    """Where the tokenizer of bytes is to be written beside a model; its config says so far that it reads bytes.

    There is no tokenizer of bytes in this library yet; once there is, it is saved in `folder` here.
    """


def _append(path: Path, target: IO[bytes]) -> None:
    try:
        source = _OPENERS.get(path.suffix, open)(path, "rb")
    except OSError as error:
        raise _unreadable(path, error) from error
    with source:
        while True:
            # Only what reading raises is of the file: a full disk has a sentence of its own.
            try:
                block = source.read(_BLOCK)
            except _UNREADABLE as error:
                raise _unreadable(path, error) from error
            if not block:
                return
            target.write(block)


def _unreadable(path: Path, error: Exception) -> UsageError:
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return UsageError(
        f"expected a file to read at {path}, packed as its name says, got {reason}; check the path, or fetch it again"
    )
