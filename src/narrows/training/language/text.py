"""Texts as one line of byte values, in a file: the byte tokenizer's part of the data."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from narrows.data import byte_split, read_byte_text

__all__ = ["ByteLine", "byte_line", "split_line"]

# Counted at once.
_BLOCK = 1 << 20


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


def byte_line(paths: Sequence[Path], folder: Path) -> ByteLine:
    """The bytes of files, one after another, kept in a file of `folder`; see `narrows.data.read_byte_text`."""
    return ByteLine(read_byte_text(paths, folder=folder))


def split_line(line: ByteLine, shares: Sequence[float]) -> list[ByteLine]:
    """A line cut into three parts of these shares, in its order; see `narrows.data.byte_split`.

    Example:
        >>> [len(part) for part in split_line(ByteLine(np.zeros(10, dtype=np.uint8)), [0.5, 0.3, 0.2])]
        [5, 3, 2]
    """
    return [line.part(part.start, part.stop) for part in byte_split(len(line), shares)]
