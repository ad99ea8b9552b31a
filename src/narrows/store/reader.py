"""`Store`: opening a store, and reading one fixed version of it."""

import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
from lance.query import MatchQuery

from narrows._plural import count
from narrows._text import surrogate_in
from narrows.errors import StoreError, StoreMismatchError, UsageError
from narrows.store import layout, rows
from narrows.store.checksums import require_unchanged
from narrows.store.codecs import Codec, get_codec
from narrows.store.fingerprint import FORMAT_VERSION, Fingerprint
from narrows.store.guard import Guard
from narrows.store.records import Hit, LoadedPassages, StoredPassage, StoreInfo

if TYPE_CHECKING:
    from narrows.store.writer import Writer


class Store:
    """A folder of passages with the states of their tokens.

    A store that is open reads one snapshot: what a writer commits meanwhile is seen after `refresh()`. Row
    ids belong to the snapshot that gave them. Use it as a context manager, or `close()` it, so that a writer
    may clean up versions that nobody reads any more.

    Example:
        >>> with Store.open("library.store", expect=fingerprint) as store:
        ...     hits = store.search("who built the clock?", 32)
        ...     passages = store.load([hit.row_id for hit in hits])
        ...     states = store.codec.decode_padded(passages.states, passages.lengths, store.fingerprint.width)
    """

    def __init__(self, path: Path, manifest: layout.Manifest) -> None:
        """Use `Store.create` or `Store.open`."""
        self.path = path
        self.fingerprint: Fingerprint = manifest.fingerprint
        self.vector_width: int = manifest.vector_width
        self.codec: Codec = get_codec(manifest.fingerprint.codec)
        self._reading = layout.lock_for_reading(path)
        self._close = weakref.finalize(self, os.close, self._reading)
        self._dataset: lance.LanceDataset | None = None
        self._guard = Guard(path)
        self._rows_of_fragment: dict[int, int] = {}
        try:
            layout.require_versions(path)
            require_unchanged(path)
            self.refresh()
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(cls, path: str | os.PathLike, fingerprint: Fingerprint, *, vector_width: int = 0) -> "Store":
        """Create an empty store and open it.

        Args:
            path: a folder that does not exist yet or is empty; its parents are created.
            fingerprint: the identity of the model whose states go in.
            vector_width: size of the one vector a passage, 0 for a store without vectors.

        Raises:
            StoreError: there is something at `path` already, or it cannot be written.
            UsageError: the codec is unknown, a width is not positive, or Lance takes no such path.
        """
        path = Path(path)
        layout.dataset_uri(path)
        get_codec(fingerprint.codec)
        if fingerprint.width < 1 or vector_width < 0:
            raise UsageError(
                "a store needs a width of at least 1 and a vector width of at least 0, but got "
                f"{fingerprint.width} and {vector_width}; take them from the model"
            )
        if fingerprint.format_version != FORMAT_VERSION:
            raise UsageError(
                f"this narrows writes stores of format version {FORMAT_VERSION}, but the fingerprint asks for "
                f"{fingerprint.format_version}; leave format_version at its default"
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"a store cannot be created at {path} ({error.strerror}); choose a folder that can be written to"
            ) from error
        layout.require_unborn(path)
        writing = layout.lock_for_writing(path)
        try:
            # Again, as another process may have made one there since.
            layout.require_unborn(path)
            layout.write_manifest(path, layout.Manifest(fingerprint, vector_width))
        except OSError as error:
            raise StoreError(
                f"a store cannot be created at {path} ({error.strerror}); make room or choose another folder"
            ) from error
        finally:
            os.close(writing)
        return cls.open(path, expect=fingerprint)

    @classmethod
    def open(cls, path: str | os.PathLike, *, expect: Fingerprint | None) -> "Store":
        """Open the store at `path` at its newest version.

        Args:
            path: the folder of the store.
            expect: the identity of the model that is going to use the states; None to only look at the store.

        Raises:
            StoreError: there is no store, or it may not be read.
            StoreMismatchError: the store was written by another model, or by a newer narrows.
            StoreDamagedError: the store cannot be read.
            UsageError: Lance takes no such path.
        """
        path = Path(path)
        layout.dataset_uri(path)
        manifest = layout.read_manifest(path)
        if expect is not None and expect != manifest.fingerprint:
            raise StoreMismatchError(
                f"the store {path} was written by another model: "
                f"{'; '.join(manifest.fingerprint.differences(expect))}; "
                "use the model that wrote it, or index the documents into a new store"
            )
        return cls(path, manifest)

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading, so that old versions may be cleaned up; closing twice is fine."""
        self._dataset = None
        self._close()

    def refresh(self) -> None:
        """Move to the newest version; of data files that are new to this store a few kB are read, see `guard`."""
        self._require_open()
        if layout.has_dataset(self.path):
            with layout.lance_errors(self.path, "reading"):
                dataset = lance.dataset(layout.dataset_uri(self.path))
                self._rows_of_fragment = self._guard.look_at(dataset)
                self._dataset = dataset

    def writer(self) -> "Writer":
        """Return the writer of this store, to be entered with `with`; there is one at a time.

        Entering raises StoreBusyError at once when another one is writing. On leaving, this store is
        refreshed.
        """
        from narrows.store.writer import Writer

        self._require_open()
        return Writer(self)

    @property
    def version(self) -> int:
        """The version of the snapshot; 0 before the first commit."""
        return 0 if self._dataset is None else self._dataset.version

    def documents(self) -> dict[str, str]:
        """The sha256 of every document by its id; reads two small columns only."""
        table = self._scan(columns=["document_id", "document_sha256"], filter="passage_index = 0")
        if table is None:
            return {}
        return dict(zip(table["document_id"].to_pylist(), table["document_sha256"].to_pylist(), strict=True))

    def search(self, query: str, limit: int) -> list[Hit]:
        """Find passages by their words (BM25 over English stems; Chinese and Japanese are cut into words).

        Args:
            query: free text; punctuation and operators have no meaning. Stop words are not looked for, so a
                query of nothing else finds nothing.
            limit: the most passages to return.

        Returns:
            the best passages first; rows that the full-text index does not cover yet are found as well.

        Raises:
            UsageError: the query has no letter or digit or is not Unicode, or the limit is not positive.
        """
        limit = _checked(limit)
        if not any(letter.isalnum() for letter in query):
            raise UsageError(f"a search needs at least one word, but the query is {query[:40]!r}; ask for something")
        if (place := surrogate_in(query)) is not None:
            raise UsageError(f"a search needs words in Unicode, but character {place} is no UTF-8; type the query anew")
        table = self._scan(
            doing="searching",
            columns=["_score"],
            full_text_query=MatchQuery(query, rows.TEXT_COLUMN),
            limit=limit,
            with_row_id=True,
            disable_scoring_autoprojection=True,
        )
        if table is None:
            return []
        return _best_first(table["_rowid"].to_pylist(), table["_score"].to_pylist())

    def nearest(self, vector: np.ndarray, limit: int) -> list[Hit]:
        """Find passages by the cosine of their vectors with `vector` [vector_width], by comparing them all.

        Raises:
            UsageError: the store has no vectors, the vector has another size or is zero or not finite, or the
                limit is not positive.
        """
        limit = _checked(limit)
        self.require_vectors()
        vector = np.asarray(vector, dtype=np.float32)
        if vector.shape != (self.vector_width,) or not np.isfinite(vector).all() or not vector.any():
            raise UsageError(
                f"the vector to compare with has to be {self.vector_width} finite numbers that are not all 0, but "
                f"has the shape {vector.shape}; use the model that indexed the store"
            )
        # In fp64, where no square of a float32 is 0 or infinite.
        exact = vector.astype(np.float64)
        unit = (exact / np.linalg.norm(exact)).astype(np.float16)
        table = self._scan(
            doing="searching",
            columns=["_distance"],
            nearest={"column": rows.VECTOR_COLUMN, "q": unit, "k": limit, "metric": "cosine", "use_index": False},
            with_row_id=True,
            disable_scoring_autoprojection=True,
        )
        if table is None:
            return []
        return _best_first(table["_rowid"].to_pylist(), [1.0 - far for far in table["_distance"].to_pylist()])

    def require_vectors(self) -> None:
        """Make sure that passages can be found by their vectors, before one is made of a question.

        Raises:
            UsageError: the store has none.
        """
        if not self.vector_width:
            raise UsageError(
                f"the store {self.path} has no vectors to compare with; search it by words (bm25), or make it anew "
                "with `narrows index --dense`"
            )

    def require_passages(self) -> None:
        """Make sure that there is something to look for an answer in.

        Raises:
            StoreError: the snapshot is empty.
        """
        self._require_open()
        with layout.lance_errors(self.path, "reading"):
            is_empty = self._dataset is None or not self._dataset.count_rows()
        if is_empty:
            raise layout.holds_nothing(self.path)

    def first(self, limit: int) -> list[int]:
        """Row ids of the first passages of the snapshot, for a query that says nothing about where to look."""
        limit = _checked(limit)
        table = self._scan(columns=[], limit=limit, with_row_id=True)
        return [] if table is None else table["_rowid"].to_pylist()

    def load(self, row_ids: Sequence[int]) -> LoadedPassages:
        """Read the passages of these rows, in this order, for an answer; every row's checksum is compared.

        Raises:
            UsageError: a row is not in this snapshot.
            StoreDamagedError: a row is not what was written; other rows can still be loaded.
        """
        found = self._take(row_ids, rows.CHECKED_COLUMNS)
        return LoadedPassages(
            ids=[row["passage_id"] for row in found],
            documents=[row["document_id"] for row in found],
            titles=[row["title"] for row in found],
            starts=[row["start"] for row in found],
            ends=[row["end"] for row in found],
            texts=[row["text"] for row in found],
            token_ids=[row["token_ids"] for row in found],
            states=[row["states"] for row in found],
            lengths=[len(row["token_ids"]) for row in found],
        )

    def take(self, which: Sequence[int] | Sequence[str]) -> list[StoredPassage]:
        """Read whole passages, vectors included, by row ids or by passage ids, in the given order.

        Raises:
            UsageError: a row or passage is not in this snapshot.
            StoreDamagedError: a row is not what was written.
        """
        names = [one for one in which if isinstance(one, str)]
        numbers = [one for one in which if not isinstance(one, str)]
        if names and numbers:
            raise UsageError(
                f"passages are taken by row ids or by passage ids, but got {names[0]!r} beside {numbers[0]}; "
                "use one kind at a time"
            )
        row_ids = self._row_ids(names) if names else numbers
        columns = list(rows.CHECKED_COLUMNS)
        if self.vector_width:
            columns += [rows.VECTOR_COLUMN, "vector_checksum"]
        return [
            StoredPassage(
                passage_id=row["passage_id"],
                document_id=row["document_id"],
                title=row["title"],
                start=row["start"],
                end=row["end"],
                text=row["text"],
                token_ids=row["token_ids"],
                states=bytes(row["states"]),
                vector=row.get(rows.VECTOR_COLUMN),
            )
            for row in self._take(row_ids, columns)
        ]

    def info(self) -> StoreInfo:
        """Count what the snapshot holds, and what the folder takes on disk (older versions included)."""
        table = self._scan(columns=["passage_index", "tokens", "text_bytes"])
        tokens = text_bytes = documents = passages = 0
        if table is not None and len(table):
            passages = len(table)
            tokens, text_bytes = (int(table[name].to_numpy().sum(dtype=np.int64)) for name in ("tokens", "text_bytes"))
            documents = int((table["passage_index"].to_numpy() == 0).sum())
        return StoreInfo(
            path=str(self.path),
            documents=documents,
            passages=passages,
            tokens=tokens,
            bytes_on_disk=layout.bytes_on_disk(self.path),
            bytes_states=tokens * self.codec.bytes_per_token(self.fingerprint.width),
            bytes_text=text_bytes,
            codec=self.codec.name,
            fingerprint=self.fingerprint,
            vector_width=self.vector_width,
            version=self.version,
            format_version=self.fingerprint.format_version,
        )

    def _require_open(self) -> None:
        if not self._close.alive:
            raise UsageError(f"the store {self.path} is closed; open it again with Store.open")

    def _scan(self, *, doing: str = "reading", **query: Any) -> pa.Table | None:
        """Run one query over the snapshot; None before the first commit."""
        self._require_open()
        if self._dataset is None:
            return None
        with layout.lance_errors(self.path, doing):
            self._guard.require_query(self._dataset, query)
            return self._dataset.to_table(**query)

    def _take(self, row_ids: Sequence[int], columns: list[str]) -> list[dict]:
        self._require_open()
        if len(row_ids) == 0:
            return []
        wanted = [int(row_id) for row_id in row_ids]
        self._guard.require_rows(wanted)
        # A row id is the number of its fragment and its place there, 32 bits each.
        inside = all((row & 0xFFFFFFFF) < self._rows_of_fragment.get(row >> 32, 0) for row in wanted)
        found: list[dict] = []
        if self._dataset is not None and inside:
            with layout.lance_errors(self.path, "reading"):
                # Lance's take() counts rows; a search answers with row ids, which only _take_rows() accepts.
                found = rows.table_to_rows(self._dataset._take_rows(wanted, columns=columns))
        if len(found) != len(row_ids):
            raise UsageError(
                f"expected {count(len(row_ids), 'row')}, but the snapshot of {self.path} has {len(found)} of them; "
                "use row ids from a search of the same open store"
            )
        rows.check_rows(found, self.codec.bytes_per_token(self.fingerprint.width), self.path)
        return found

    def _row_ids(self, passage_ids: Sequence[str]) -> list[int]:
        # One that is not Unicode is in no store, and Lance cannot be asked for it.
        asked = rows.sql_in("passage_id", [one for one in passage_ids if surrogate_in(one) is None] or [""])
        table = self._scan(columns=["passage_id"], filter=asked, with_row_id=True)
        by_id = {}
        if table is not None:
            by_id = dict(zip(table["passage_id"].to_pylist(), table["_rowid"].to_pylist(), strict=True))
        for passage_id in passage_ids:
            if passage_id not in by_id:
                raise UsageError(
                    f"passage {passage_id!r} is not in the store {self.path}; ids look like 'document:0', "
                    "see documents()"
                )
        return [by_id[passage_id] for passage_id in passage_ids]


def _best_first(row_ids: list[int], scores: list[float]) -> list[Hit]:
    return sorted(map(Hit, row_ids, scores), key=lambda hit: (-hit.score, hit.row_id))


def _checked(limit: int) -> int:
    """A limit that Lance can be told; no store has as many passages as the largest."""
    if limit < 1:
        raise UsageError(f"a search returns at least 1 passage, but the limit is {limit}; ask for 1 or more")
    return min(limit, 2**31 - 1)
