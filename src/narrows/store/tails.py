"""The tail of a file of Lance's: what says how its rows lie, from the schema to the footer.

Lance believes it. A wrong number of buffers, or a length among those of the columns, makes it ask for tens of GB, which
ends the process; what comes before the tail makes it raise an error at worst. So the tail has a checksum of its own
that is compared before Lance opens the file: a few kB at the end of up to 64 MB.

Source: `FileWriter.finish` and `Footer` of Lance's file format 2, the same in 2.0 to 2.2: global buffers (the first
is the schema), metadata of the columns, where each of these lies, where each global buffer lies, footer.
"""

import struct
import zlib
from pathlib import Path
from typing import BinaryIO, NamedTuple

__all__ = ["Tail", "is_suspect", "tail_of"]

# Starts of the columns' metadata, of their table and of the buffers' table; buffers, columns, version, magic.
_FOOTER = struct.Struct("<QQQIIHH4s")
_MAGIC = b"LANC"
# Where something lies, and how many bytes it has.
_PLACE = struct.Struct("<QQ")


class Tail(NamedTuple):
    """Where a file's tail starts, and the crc32 of what is there up to the file's end."""

    start: int
    checksum: int


def tail_of(path: Path) -> Tail | None:
    """The tail of a file as it is now; None where its footer does not fit it, or it is not there.

    Raises:
        OSError: it may not be read.
    """
    try:
        with path.open("rb") as file:
            start = _start(file)
            return None if start is None else Tail(start, _checksum_from(file, start))
    except FileNotFoundError:
        return None


def is_suspect(path: Path, noted: Tail | None) -> bool:
    """Whether a file may end the process inside Lance: its tail is not the noted one.

    Of a file without a note only the footer is looked at, and what it leads to: whether all of it lies in the file.
    What cannot be opened is not suspected: Lance says so itself.
    """
    try:
        with path.open("rb") as file:
            return _start(file) is None if noted is None else _checksum_from(file, noted.start) != noted.checksum
    except OSError:
        return False


def _checksum_from(file: BinaryIO, start: int) -> int:
    file.seek(start)
    return zlib.crc32(file.read())


def _start(file: BinaryIO) -> int | None:
    """Where the tail starts; None where the footer, or a table that it leads to, does not fit the file."""
    end = file.seek(0, 2) - _FOOTER.size
    if end < 0:
        return None
    file.seek(end)
    metadata, columns, buffers, buffer_count, column_count, _, _, magic = _FOOTER.unpack(file.read())
    fits = metadata <= columns <= columns + column_count * _PLACE.size <= buffers
    if magic != _MAGIC or not fits or buffers + buffer_count * _PLACE.size > end:
        return None
    of_columns = _places(file, columns, column_count)
    of_buffers = _places(file, buffers, buffer_count)
    if any(place < metadata or place + size > columns for place, size in of_columns):
        return None
    if any(place + size > metadata for place, size in of_buffers):
        return None
    return min([metadata, *(place for place, _ in of_buffers)])


def _places(file: BinaryIO, start: int, count: int) -> list[tuple[int, int]]:
    file.seek(start)
    return list(_PLACE.iter_unpack(file.read(count * _PLACE.size)))
