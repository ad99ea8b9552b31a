"""Records to Arrow tables and back, with a checksum over every row.

One row is one passage. Each row carries the sha256 and the number of passages of its document, so that a
list of documents needs no second table and a missing row is noticed.
"""

import dataclasses
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from narrows import _plural
from narrows.errors import StoreDamagedError, UsageError
from narrows.store.codecs import Buffer, Codec
from narrows.store.records import StoredDocument, StoredPassage

TEXT_COLUMN = "text"
VECTOR_COLUMN = "vector"
_HEADER_COLUMNS = [
    "passage_id",
    "document_id",
    "document_sha256",
    "passage_index",
    "passage_count",
    "title",
    "start",
    "end",
    TEXT_COLUMN,
]
CHECKED_COLUMNS = [*_HEADER_COLUMNS, "token_ids", "states", "checksum"]


def schema(vector_width: int) -> pa.Schema:
    """The columns of a store; the vector columns are left out when `vector_width` is 0."""
    fields = [
        pa.field("passage_id", pa.string(), nullable=False),
        pa.field("document_id", pa.string(), nullable=False),
        pa.field("document_sha256", pa.string(), nullable=False),
        pa.field("passage_index", pa.int32(), nullable=False),
        pa.field("passage_count", pa.int32(), nullable=False),
        pa.field("title", pa.string(), nullable=False),
        pa.field("start", pa.int64(), nullable=False),
        pa.field("end", pa.int64(), nullable=False),
        pa.field(TEXT_COLUMN, pa.string(), nullable=False),
        pa.field("text_bytes", pa.int32(), nullable=False),
        pa.field("tokens", pa.int32(), nullable=False),
        pa.field("token_ids", pa.list_(pa.int32()), nullable=False),
        # A plain large_binary holds each passage at its true length. States are close to noise: compressing
        # them saves little and makes every read slower.
        pa.field("states", pa.large_binary(), nullable=False, metadata={"lance-encoding:compression": "none"}),
        pa.field("checksum", pa.uint32(), nullable=False),
    ]
    if vector_width:
        fields.append(pa.field(VECTOR_COLUMN, pa.list_(pa.float16(), vector_width), nullable=False))
        fields.append(pa.field("vector_checksum", pa.uint32(), nullable=False))
    return pa.schema(fields)


def documents_to_table(documents: Sequence[StoredDocument], codec: Codec, width: int, vector_width: int) -> pa.Table:
    """Check documents and turn them into rows.

    Raises:
        UsageError: a document or passage is not what the store can keep.
    """
    columns: dict[str, list] = {name: [] for name in schema(vector_width).names}
    seen: set[str] = set()
    for document in documents:
        if document.document_id in seen:
            raise UsageError(
                f"a document can be written once at a time, but {document.document_id!r} comes twice; drop one of them"
            )
        seen.add(document.document_id)
        _check_document(document)
        count = len(document.passages)
        for index, passage in enumerate(document.passages):
            _check_passage(document, index, passage, codec.bytes_per_token(width), vector_width)
            _append_row(columns, document, index, count, passage)
    return _table(columns, vector_width)


def passages_to_batches(
    document: StoredDocument,
    count: int,
    groups: Iterable[Sequence[StoredPassage]],
    codec: Codec,
    width: int,
    vector_width: int,
) -> Iterator[pa.RecordBatch]:
    """Check the passages of one document, which come in groups, and turn them into rows a group at a time.

    Raises:
        UsageError: a passage is not what the store can keep, or there are not `count` of them.
    """
    index = 0
    for group in groups:
        columns: dict[str, list] = {name: [] for name in schema(vector_width).names}
        _check_document(dataclasses.replace(document, passages=list(group)))
        for passage in group:
            _check_passage(document, index, passage, codec.bytes_per_token(width), vector_width)
            _append_row(columns, document, index, count, passage)
            index += 1
        yield from _table(columns, vector_width).to_batches()
    if index != count:
        raise UsageError(
            f"document {document.document_id!r} was to have {_plural.count(count, 'passage')}, but {index} came; "
            "count them before they are written"
        )


def _table(columns: dict[str, list], vector_width: int) -> pa.Table:
    if vector_width:
        flat = np.stack(columns[VECTOR_COLUMN]).reshape(-1)
        columns[VECTOR_COLUMN] = pa.FixedSizeListArray.from_arrays(pa.array(flat), vector_width)
    return pa.table(columns, schema=schema(vector_width))


def _append_row(
    columns: dict[str, list], document: StoredDocument, index: int, count: int, passage: StoredPassage
) -> None:
    row = {
        "passage_id": passage.passage_id,
        "document_id": document.document_id,
        "document_sha256": document.sha256,
        "passage_index": index,
        "passage_count": count,
        "title": passage.title,
        "start": passage.start,
        "end": passage.end,
        TEXT_COLUMN: passage.text,
        "text_bytes": len(passage.text.encode()),
        "tokens": len(passage.token_ids),
        "token_ids": passage.token_ids,
        "states": passage.states,
    }
    row["checksum"] = row_checksum(row)
    if passage.vector is not None:
        vector = passage.vector.astype(np.float16)
        row[VECTOR_COLUMN] = vector
        row["vector_checksum"] = zlib.crc32(vector.tobytes())
    for name, value in row.items():
        columns[name].append(value)


def row_checksum(row: dict) -> int:
    """crc32 over all that a row says but its vector, which has its own; cheap enough for every answer."""
    header = json.dumps([row[name] for name in _HEADER_COLUMNS], ensure_ascii=False)
    checksum = zlib.crc32(header.encode("utf-8", "surrogatepass"))
    checksum = zlib.crc32(row["token_ids"].astype("<i4").tobytes(), checksum)
    return zlib.crc32(row["states"], checksum)


def _check_document(document: StoredDocument) -> None:
    if not document.document_id or not document.passages:
        raise UsageError(
            f"a document to store needs an id and at least one passage, but {document.document_id!r} has "
            f"{_plural.count(len(document.passages), 'passage')}; leave it out, or remove it with writer.remove()"
        )
    try:
        for text in (document.document_id, document.sha256, document.title):
            text.encode()
        for passage in document.passages:
            (passage.title + passage.text).encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"text to store has to be valid Unicode, but document {document.document_id!r} contains "
            f"{error.object[error.start]!r}; decode its source with errors='replace'"
        ) from error


def _check_passage(
    document: StoredDocument, index: int, passage: StoredPassage, bytes_per_token: int, vector_width: int
) -> None:
    expected = f"{document.document_id}:{index}"
    if passage.passage_id != expected or passage.document_id != document.document_id:
        raise UsageError(
            f"passage {index} of document {document.document_id!r} has to have the id {expected!r}, but it "
            "is "
            f"{passage.passage_id!r} of document {passage.document_id!r}; number the passages from 0 in order"
        )
    token_ids = passage.token_ids
    if (
        not isinstance(token_ids, np.ndarray)
        or token_ids.dtype != np.int32
        or token_ids.ndim != 1
        or not token_ids.size
    ):
        raise UsageError(
            f"token ids are a non-empty int32 array [tokens], but passage {expected!r} has "
            f"{_describe(token_ids)}; "
            "convert them with numpy.asarray(ids, dtype=numpy.int32)"
        )
    size = len(token_ids) * bytes_per_token
    if len(passage.states) != size:
        raise UsageError(
            f"the states of passage {expected!r} have to take {_plural.count(size, 'byte')} for "
            f"{_plural.count(len(token_ids), 'token')}, but take {len(passage.states):,}; "
            "encode them with the store's codec"
        )
    if not 0 <= passage.start <= passage.end:
        raise UsageError(
            f"the offsets of passage {expected!r} have to satisfy 0 <= start <= end, but are "
            f"{passage.start} and {passage.end}; give character offsets into the document"
        )
    vector = passage.vector
    if vector_width == 0 and vector is not None:
        raise UsageError(
            f"the store has no vectors, but passage {expected!r} has one; create the store with vector_width="
            f"{len(vector)} or leave the vector out"
        )
    if vector_width and (vector is None or vector.shape != (vector_width,) or not _fits_float16(vector)):
        raise UsageError(
            f"the store needs a vector of {vector_width} finite float16 numbers for every passage, but "
            "passage "
            f"{expected!r} has {_describe(vector)}; compute one for every passage"
        )


def _fits_float16(vector: np.ndarray) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.isfinite(vector.astype(np.float16)).all())


def _describe(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    return "none" if value is None else f"a {type(value).__name__}"


def binary_views(column: pa.LargeBinaryArray) -> list[memoryview]:
    """The values of a binary column as views into its buffer, without a copy."""
    if len(column) == 0:
        return []
    _, offsets, data = column.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int64)[column.offset : column.offset + len(column) + 1]
    view = memoryview(data) if data is not None else memoryview(b"")
    return [view[start:end] for start, end in zip(bounds[:-1], bounds[1:], strict=True)]


def table_to_rows(table: pa.Table) -> list[dict]:
    """The rows of a table as dictionaries whose token ids are arrays and whose states are views."""
    columns: dict[str, list] = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
        if name == "states":
            columns[name] = binary_views(column)
        elif name == "token_ids":
            values = column.values.to_numpy(zero_copy_only=False)
            bounds = column.offsets.to_numpy()
            columns[name] = [values[start:end] for start, end in zip(bounds[:-1], bounds[1:], strict=True)]
        elif name == VECTOR_COLUMN:
            width = column.type.list_size
            columns[name] = list(column.flatten().to_numpy(zero_copy_only=False).reshape(-1, width))
        else:
            columns[name] = column.to_pylist()
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def row_damage(row: dict, bytes_per_token: int) -> str | None:
    """Say what is wrong with a row that was read, or None."""
    if row_checksum(row) != row["checksum"]:
        return "its checksum differs from the one that was written"
    states: Buffer = row["states"]
    if len(states) != len(row["token_ids"]) * bytes_per_token:
        many = _plural.count(len(row["token_ids"]), "token")
        return f"its states have {_plural.count(len(states), 'byte')} for {many}"
    # Read by `verify`, and not for an answer.
    counts = row.get("tokens"), row.get("text_bytes")
    if "tokens" in row and counts != (len(row["token_ids"]), len(row[TEXT_COLUMN].encode())):
        return "its counts of tokens and bytes differ from what it holds"
    if VECTOR_COLUMN in row and zlib.crc32(row[VECTOR_COLUMN].tobytes()) != row["vector_checksum"]:
        return "the checksum of its vector differs from the one that was written"
    return None


def check_rows(rows: Sequence[dict], bytes_per_token: int, path: object) -> None:
    """Raise for the first damaged row.

    Raises:
        StoreDamagedError: names the passage and what to do.
    """
    for row in rows:
        damage = row_damage(row, bytes_per_token)
        if damage is not None:
            raise StoreDamagedError(
                f"passage {row['passage_id']!r} in the store {path} is damaged: {damage}; "
                "run `narrows store verify --repair` on the store and then `narrows index` again to write its "
                "document anew"
            )


def sql_in(column: str, values: Sequence[str]) -> str:
    """The filter `column IN (...)` with the values quoted."""
    quoted = ", ".join("'" + value.replace("'", "''") + "'" for value in values)
    return f"{column} IN ({quoted})"
