"""`Writer`: the one that changes a store, a commit at a time."""

import os
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from types import TracebackType

import lance
import pyarrow as pa
from lance.fragment import write_fragments

from narrows.errors import UsageError
from narrows.store import layout, rows
from narrows.store.allocator import give_memory_back
from narrows.store.checksums import note_birth, note_checksums, note_tails
from narrows.store.fragments import readable_rows
from narrows.store.reader import Store
from narrows.store.records import StoredDocument, StoredPassage, VerifyReport
from narrows.store.tidying import INDEX_NAME, create_index, forget_deleted_rows, index_files, index_new_rows, join_files

# What Lance remembers of files; of a large store it would be hundreds of megabytes.
_BYTES_REMEMBERED = 16_000_000
# A large document waits in memory until it fills a fragment of that size.
_BYTES_PER_FRAGMENT = 32_000_000


class Writer:
    """Writes to a store; get it from `Store.writer()` and enter it with `with`.

    Every call of `put` or `remove` is one commit: when it has returned, a killed process loses nothing of
    it; when it has not, nothing of it is seen.

    Example:
        >>> with store.writer() as writer:
        ...     writer.put(documents)
        ...     writer.finish()
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._writing: int | None = None
        self._dataset: lance.LanceDataset | None = None
        self._known_ids: set[str] | None = None

    def __enter__(self) -> "Writer":
        self._writing = layout.lock_for_writing(self._store.path)
        try:
            self._store.refresh()
            with layout.lance_errors(self._store.path, "writing to"):
                self._dataset = self._open_or_create()
            self._store.refresh()
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()
        if error is None:
            self._store.refresh()

    def put(self, documents: Sequence[StoredDocument]) -> None:
        """Write documents, each in place of the passages it had before, in one commit.

        Raises:
            UsageError: a document is not what the store can keep, or the writer is not entered.
            StoreError: the disk is full or cannot be written; nothing of this call is stored.
        """
        dataset = self._require_entered()
        if not documents:
            return
        store = self._store
        table = rows.documents_to_table(documents, store.codec, store.fingerprint.width, store.vector_width)
        self._commit(dataset, self._write(dataset, table), [document.document_id for document in documents])

    def put_large(self, document: StoredDocument, count: int, groups: Iterable[Sequence[StoredPassage]]) -> None:
        """Write one document whose passages do not fit in memory together, in one commit.

        Args:
            document: its id, sha256 and title; its own passages are not looked at.
            count: the number of passages that are going to come.
            groups: the passages in order, some at a time; they wait until they fill a file of 32 MB, and the
                next is not asked for before that is written.

        Raises:
            UsageError: a passage is not what the store can keep, there are not `count` of them, or the writer
                is not entered.
            StoreError: the disk is full or cannot be written; nothing of this call is stored.
        """
        dataset = self._require_entered()
        store = self._store
        batches = rows.passages_to_batches(
            document, count, groups, store.codec, store.fingerprint.width, store.vector_width
        )
        # No commit names these files before the last of them is written: until then the document is what it
        # was, and what a killed writer leaves of them goes with the next `finish()`.
        written: list[lance.FragmentMetadata] = []
        waiting: list[pa.RecordBatch] = []
        for batch in batches:
            waiting.append(batch)
            if sum(batch.nbytes for batch in waiting) >= _BYTES_PER_FRAGMENT:
                written += self._write(dataset, pa.Table.from_batches(waiting))
                waiting = []
        if waiting:
            written += self._write(dataset, pa.Table.from_batches(waiting))
        self._commit(dataset, written, [document.document_id])

    def _write(self, dataset: lance.LanceDataset, table: pa.Table) -> list[lance.FragmentMetadata]:
        """Write rows to files that no version of the dataset names yet."""
        with layout.lance_errors(self._store.path, "writing to"):
            fragments = write_fragments(table, dataset, data_storage_version=dataset.data_storage_version)
        assert isinstance(fragments, list)
        return fragments

    def _commit(self, dataset: lance.LanceDataset, written: list[lance.FragmentMetadata], ids: list[str]) -> None:
        """Put what was written in place of all rows that these documents have, in one version."""
        known = [document_id for document_id in ids if document_id in self._known]
        # Forgotten first and set last: after a write that failed, what is there has to be looked up again.
        there, self._known_ids = self._known, None
        with layout.lance_errors(self._store.path, "writing to"):
            changed, removed = _without(dataset, known) if known else ([], [])
            # merge_insert would do the same, but holds all new rows in memory.
            self._note_tails(written)
            change = lance.LanceOperation.Update(
                removed_fragment_ids=removed, updated_fragments=changed, new_fragments=written
            )
            self._dataset = lance.LanceDataset.commit(dataset, change, read_version=dataset.version)
        self._known_ids = there.union(ids)

    def remove(self, document_ids: Sequence[str]) -> None:
        """Remove documents in one commit.

        Their bytes leave the disk when `finish()` finds enough to clean up.

        Raises:
            UsageError: a document is not in the store.
            StoreError: the store cannot be written.
        """
        dataset = self._require_entered()
        for document_id in document_ids:
            if document_id not in self._known:
                raise UsageError(
                    f"document {document_id!r} is not in the store {self._store.path}; see the ids in documents()"
                )
        if not document_ids:
            return
        there, self._known_ids = self._known, None
        with layout.lance_errors(self._store.path, "writing to"):
            dataset.delete(rows.sql_in("document_id", document_ids))
        self._known_ids = there.difference(document_ids)

    def repair(self, report: VerifyReport) -> list[str]:
        """Drop the documents that `verify` found damaged, so that the next indexing writes them anew.

        What is whole in a damaged file is copied into a new one, and a damaged full-text index is made anew.

        Args:
            report: what `verify` has just said about this store.

        Returns:
            the ids of the documents dropped, sorted; those of which not even the id could be read
            (`report.nameless_passages`) are simply no longer in the store.

        Raises:
            StoreError: the store cannot be written.
        """
        dataset = self._require_entered()
        with layout.lance_errors(self._store.path, "writing to"):
            if report.unreadable_fragments:
                drop = lance.LanceOperation.Delete([], report.unreadable_fragments, "unreadable")
                lance.LanceDataset.commit(dataset, drop, read_version=dataset.version)
                self._dataset = dataset = lance.dataset(dataset.uri)
            if report.changed_fragments:
                self._dataset = dataset = self._copy_whole_documents(dataset, report)
            if report.damaged_documents:
                dataset.delete(rows.sql_in("document_id", report.damaged_documents))
            if report.damaged_index:
                dataset.drop_index(INDEX_NAME)
                self._dataset = dataset = self._open_or_create()
            note_checksums(self._store.path, dataset, forget_lost=True)
        self._store.refresh()
        self._known_ids = None
        return sorted({*report.damaged_documents, *report.lost_documents})

    def _copy_whole_documents(self, dataset: lance.LanceDataset, report: VerifyReport) -> lance.LanceDataset:
        """Put copies of what is whole in changed files in their place, in one commit.

        Rows are read as `verify` has read them: another read, say of one column, might fail.
        """
        written: list[lance.FragmentMetadata] = []
        for fragment_id in report.changed_fragments:
            fragment = dataset.get_fragment(fragment_id)
            assert fragment is not None
            for _, read in readable_rows(fragment, fragment.count_rows(), self._store.path):
                if read is None:
                    continue
                whole = [row["document_id"] not in report.damaged_documents for row in read.rows]
                if any(whole):
                    written += self._write(dataset, read.table.filter(pa.array(whole)))
        self._note_tails(written)
        change = lance.LanceOperation.Update(
            removed_fragment_ids=report.changed_fragments, updated_fragments=[], new_fragments=written
        )
        return lance.LanceDataset.commit(dataset, change, read_version=dataset.version)

    def _note_tails(self, written: Sequence[lance.FragmentMetadata]) -> None:
        note_tails(self._store.path, [f"{layout.PASSAGES}/data/{file.path}" for one in written for file in one.files])

    def tidy(self) -> None:
        """Do what `finish` does now and then in a long run, but for what has to be done once only.

        Raises:
            StoreError: the store cannot be written; everything put before stays.
        """
        self._tidy(exact=False)

    def finish(self) -> None:
        """Bring the full-text index up to date, join small fragments, and drop versions that nobody reads.

        A search then weighs words as it would in a new store of the same documents. What this costs grows with the
        text of those segments of the index, of 32,768 passages each, from which something was removed.

        Raises:
            StoreError: the store cannot be written; everything put before stays.
        """
        self._tidy(exact=True)

    def _tidy(self, *, exact: bool) -> None:
        dataset = self._require_entered()
        store = self._store
        with layout.lance_errors(store.path, "writing to"):
            store._guard.require_all(dataset)
            # In this order: a file that is joined before its rows are indexed needs no change of the index, and a
            # segment that is made anew may have room for new rows.
            join_files(dataset)
            if exact:
                forget_deleted_rows(dataset, Path(layout.dataset_uri(store.path)))
            index_new_rows(dataset)
            note_checksums(store.path, dataset)
            store.refresh()
            if layout.try_alone(store._reading):
                try:
                    # Nobody else reads or writes, so files that no version names are leftovers of killed
                    # writers.
                    dataset.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
                finally:
                    layout.share_again(store._reading)
        give_memory_back()

    def _require_entered(self) -> lance.LanceDataset:
        if self._writing is None or self._dataset is None:
            raise UsageError("a writer works inside its with block only; use `with store.writer() as writer:`")
        return self._dataset

    @property
    def _known(self) -> set[str]:
        # Read when first needed: a store with an unreadable file can still be entered, and repaired.
        if self._known_ids is None:
            self._store.refresh()
            # All rows, not documents(): one that lost its first passage still has others to be replaced.
            table = self._store._scan(columns=["document_id"])
            self._known_ids = set() if table is None else set(table["document_id"].unique().to_pylist())
        return self._known_ids

    def _open_or_create(self) -> lance.LanceDataset:
        uri = layout.dataset_uri(self._store.path)
        if not layout.has_dataset(self._store.path):
            note_birth(self._store.path)
            lance.write_dataset(rows.schema(self._store.vector_width).empty_table(), uri)
        dataset = lance.dataset(
            uri, metadata_cache_size_bytes=_BYTES_REMEMBERED, index_cache_size_bytes=_BYTES_REMEMBERED
        )
        if not any(index.name == INDEX_NAME for index in dataset.describe_indices()):
            # Made empty so that rows are cut into words alike before and after finish() has indexed them.
            create_index(dataset, train=dataset.count_rows() > 0)
            note_tails(self._store.path, index_files(dataset, self._store.path))
        return dataset

    def _release(self) -> None:
        if self._writing is not None:
            os.close(self._writing)
        self._writing = self._dataset = self._known_ids = None


def _without(
    dataset: lance.LanceDataset, document_ids: Sequence[str]
) -> tuple[list[lance.FragmentMetadata], list[int]]:
    """The fragments that lose some rows when these documents go, and the ids of those that lose all."""
    found = dataset.to_table(columns=[], filter=rows.sql_in("document_id", document_ids), with_row_id=True)
    # A row id is the number of its fragment and its place there, 32 bits each.
    row_ids = found["_rowid"].to_numpy()
    changed: list[lance.FragmentMetadata] = []
    removed: list[int] = []
    for fragment in dataset.get_fragments():
        places = row_ids[row_ids >> 32 == fragment.fragment_id] & 0xFFFFFFFF
        if not len(places):
            continue
        left = fragment.delete_rows(places.tolist())
        if left is None:
            removed.append(fragment.fragment_id)
        else:
            changed.append(left)
    return changed, removed
