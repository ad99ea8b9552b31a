"""The bytes of files as one array that lies in a file: text for models that read bytes, whatever its size.

As in a `TokenCache`, the file is named by a sha256 of what it is made from, so it is never out of date, and the folder
can be deleted, shared and written to by several programs at once. A file that is not what was written is made again.
A killed program may leave a `.partial` file, which nothing reads.
"""

import bz2
import gzip
import hashlib
import lzma
import math
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np

from narrows._plural import count
from narrows.data.files import UNREADABLE, unreadable
from narrows.errors import OutputError, UsageError

__all__ = ["byte_split", "read_byte_text"]

_FORMAT = 1
_AT_ONCE = 1 << 20
# A sha256 of all bytes stands behind them in the file.
_DIGEST_BYTES = hashlib.sha256().digest_size
_OPEN: Mapping[str, Callable[[Path], Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_OTHER_PACKINGS = (".zip", ".zst", ".7z", ".rar", ".lz4", ".tar", ".tgz")
_ENWIK8 = (0.9, 0.05, 0.05)


def read_byte_text(
    paths: str | PathLike[str] | Sequence[str | PathLike[str]], *, folder: str | PathLike[str]
) -> np.memmap:
    """The bytes of files, one file after another, mapped from a file of `folder`.

    Args:
        paths: a file or several, plain or packed as their names say (`.gz`, `.bz2`, `.xz`).
        folder: where the unpacked bytes are kept; made when it is not there.

    Returns:
        uint8 `[bytes]`, read-only, read from disk as it is looked at. What is sent to another process is a copy of it
        all: send its `filename` and `shape`, and map it there.

    Raises:
        UsageError: no file, one that is not there, empty, damaged, or packed in another way.
        OutputError: the folder cannot be written to.

    Example:
        `read_byte_text("enwik8.gz", folder="cache")[:4].tobytes()`
    """
    files = [Path(path) for path in ([paths] if isinstance(paths, str | PathLike) else paths)]
    if not files:
        raise UsageError("expected at least one file of text, got none; name one.")
    for path in files:
        if path.suffix in _OTHER_PACKINGS:
            raise UsageError(
                f"{path}: expected a file that is plain or packed as {', '.join(_OPEN)}, got {path.suffix}; unpack it."
            )
    key = _key(files)
    _make_folder(Path(folder))
    place = Path(folder) / f"{key}.bytes"
    if not _is_whole(place, key):
        _make(place, key, files)
    return np.memmap(place, dtype=np.uint8, mode="r", shape=(place.stat().st_size - _DIGEST_BYTES,))


def byte_split(length: int, shares: Sequence[float] = _ENWIK8) -> tuple[slice, slice, slice]:
    """Three stretches of a text, one after another: to train on, to tune by, and to test on.

    Args:
        length: of the text, in bytes.
        shares: of each part, 1 together; those of enwik8 unless given.

    Raises:
        UsageError: other shares, or a text too short for a byte in each part.

    Example:
        >>> byte_split(100_000_000)
        (slice(0, 90000000, None), slice(90000000, 95000000, None), slice(95000000, 100000000, None))
    """
    # A NaN is no share either.
    if len(shares) != 3 or not all(share > 0 for share in shares) or not math.isclose(math.fsum(shares), 1):
        raise UsageError(f"expected three shares above 0 that are 1 together, got {list(shares)}; correct them.")
    ends = [0, round(length * shares[0]), round(length * math.fsum(shares[:2])), length]
    parts = [slice(start, end) for start, end in pairwise(ends)]
    if not all(part.start < part.stop for part in parts):
        raise UsageError(
            f"expected text for the shares {', '.join(map(str, shares))}, got {count(length, 'byte')}; name more text."
        )
    return parts[0], parts[1], parts[2]


def _key(files: Sequence[Path]) -> str:
    """sha256 of how the files are unpacked and of what they hold as they lie there, which is read sooner."""
    digest = hashlib.sha256(f"byte text {_FORMAT}".encode())
    for path in files:
        each = hashlib.sha256()
        try:
            with path.open("rb") as file:
                for block in _blocks(file):
                    each.update(block)
        except OSError as error:
            raise unreadable(path, error) from error
        digest.update(f" {path.suffix if path.suffix in _OPEN else ''} {each.hexdigest()}".encode())
    return digest.hexdigest()


def _make(place: Path, key: str, files: Sequence[Path]) -> None:
    # A name of its own: another process may be making the same file.
    partial = place.with_name(f"{place.name}.{os.getpid()}-{secrets.token_hex(4)}.partial")
    digest = hashlib.sha256(key.encode())
    try:
        with partial.open("wb") as out:
            for path in files:
                for block in _unpacked(path):
                    digest.update(block)
                    out.write(block)
            out.write(digest.digest())
        os.replace(partial, place)
    except OSError as error:
        raise OutputError(
            f"expected room and permission to write {place}, got {error.strerror}; make room or choose another folder."
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"expected a folder for bytes, got {folder} ({error.strerror}); choose another.") from error


def _unpacked(path: Path) -> Iterator[bytes]:
    empty = True
    try:
        with _OPEN.get(path.suffix, _open_plain)(path) as file:
            for block in _blocks(file):
                empty = False
                yield block
    except (*UNREADABLE, lzma.LZMAError) as error:
        # The system's own words have a number: those are of the disk, and not of what was packed.
        if isinstance(error, OSError) and error.errno is not None:
            raise unreadable(path, error) from error
        raise UsageError(
            f"{path}: expected a file packed as {path.suffix}, got {error}; fetch it again or rename it."
        ) from error
    if empty:
        raise UsageError(f"{path}: expected text, got an empty file; fetch it again or leave it out.")


def _open_plain(path: Path) -> IO[bytes]:
    return path.open("rb")


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    while block := file.read(_AT_ONCE):
        yield block


def _is_whole(place: Path, key: str) -> bool:
    """Whether the file is there and holds what was written for this key."""
    digest = hashlib.sha256(key.encode())
    try:
        left = place.stat().st_size - _DIGEST_BYTES
        with place.open("rb") as file:
            while left > 0 and (block := file.read(min(left, _AT_ONCE))):
                digest.update(block)
                left -= len(block)
            return left == 0 and file.read() == digest.digest()
    except OSError:
        return False
