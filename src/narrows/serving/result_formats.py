"""How rows lie in a file: JSON Lines, .npy and .safetensors, each appended to row by row."""

import io
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from narrows._text import surrogate_in
from narrows.errors import UsageError
from narrows.serving.batching import Row

__all__ = [
    "EMBEDDING_SUFFIXES",
    "JsonLines",
    "NpyRows",
    "RowFormat",
    "SafetensorsRows",
    "embedding_format",
    "json_line",
    "numbers",
    "vector_lines",
]

EMBEDDING_SUFFIXES = (".npy", ".jsonl", ".safetensors")
"""What `narrows embed` writes."""

# More rows than any disk holds; the header has room for the number.
_MOST_ROWS = 10**15
_FLOAT_BYTES = 4


class RowFormat(Protocol):
    """Bytes of a file: a header of one length whatever the count, then the rows.

    `ids_apart` says whether the ids need a file of their own.
    """

    ids_apart: bool

    def header(self, count: int) -> bytes:
        """What stands before `count` rows."""
        ...

    def encode(self, rows: Iterable[Row]) -> bytes:
        """The rows themselves."""
        ...


class JsonLines:
    """One JSON object a row.

    Args:
        record: the fields of a row beside `id` and, where something was cut off, `tokens_not_read`.
    """

    ids_apart = False

    def __init__(self, record: Callable[[Row], Mapping[str, Any]]):
        self._record = record

    def header(self, count: int) -> bytes:
        return b""

    def encode(self, rows: Iterable[Row]) -> bytes:
        return b"".join(json_line(self.record(row)) for row in rows)

    def record(self, row: Row) -> dict[str, Any]:
        """What a row says, as a mapping that JSON can hold."""
        cut = {"tokens_not_read": row.tokens_not_read} if row.tokens_not_read else {}
        return {"id": row.text.id, **self._record(row), **cut}


class NpyRows:
    """An array `[rows, width]` of fp32 that `numpy.load` reads."""

    ids_apart = True

    def __init__(self, width: int):
        self._width = width

    def header(self, count: int) -> bytes:
        # numpy leaves room for the number to grow.
        file = io.BytesIO()
        described = {"descr": "<f4", "fortran_order": False, "shape": (count, self._width)}
        np.lib.format.write_array_header_1_0(file, described)
        return file.getvalue()

    def encode(self, rows: Iterable[Row]) -> bytes:
        return _floats(rows)


class SafetensorsRows:
    """A tensor `embeddings`, `[rows, width]` in fp32.

    Args:
        width: of a row.
        metadata: what the file says of itself.
    """

    ids_apart = True

    def __init__(self, width: int, metadata: Mapping[str, str]):
        self._width, self._metadata = width, dict(metadata)

    def header(self, count: int) -> bytes:
        longest = len(self._described(_MOST_ROWS))
        # Spaces may stand after the JSON, and the data begin at a multiple of 8.
        room = -(-longest // 8) * 8
        return room.to_bytes(8, "little") + self._described(count).ljust(room)

    def encode(self, rows: Iterable[Row]) -> bytes:
        return _floats(rows)

    def _described(self, count: int) -> bytes:
        offsets = [0, count * self._width * _FLOAT_BYTES]
        tensor = {"dtype": "F32", "shape": [count, self._width], "data_offsets": offsets}
        return json.dumps({"__metadata__": self._metadata, "embeddings": tensor}).encode()


def embedding_format(path: Path, width: int, metadata: Mapping[str, str]) -> RowFormat:
    """The format that a file's suffix names.

    Raises:
        UsageError: another suffix.
    """
    if path.suffix == ".npy":
        return NpyRows(width)
    if path.suffix == ".safetensors":
        return SafetensorsRows(width, metadata)
    if path.suffix == ".jsonl":
        return vector_lines()
    raise UsageError(
        f"expected an output of {', '.join(EMBEDDING_SUFFIXES)} or - for stdout, got {path.name}; give it one of these "
        "suffixes"
    )


def json_line(record: Mapping[str, Any]) -> bytes:
    """A line of JSON Lines in UTF-8.

    Characters that are not ASCII are written by number where one has no UTF-8, as of a path that is none.

    Example:
        >>> json_line({"id": 7}) == b'{"id": 7}' + bytes([10])
        True
    """
    text = json.dumps(record, ensure_ascii=False)
    return f"{text if surrogate_in(text) is None else json.dumps(record)}\n".encode()


def vector_lines() -> JsonLines:
    """A line `{"id", "embedding"}` a row."""
    return JsonLines(lambda row: {"embedding": numbers(row.value)})


def numbers(values: np.ndarray) -> list[float]:
    """fp32 numbers as short decimals that give the same fp32 numbers back.

    Example:
        >>> numbers(np.array([0.1, 2.0], dtype=np.float32))
        [0.1, 2.0]
    """
    # The shortest text of each, which numpy knows for fp32; Python's would be that of its fp64 neighbour.
    return [float(text) for text in values.astype(np.float32, copy=False).astype(str)]


def _floats(rows: Iterable[Row]) -> bytes:
    return b"".join(row.value.astype("<f4", copy=False).tobytes() for row in rows)
