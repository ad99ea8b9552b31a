"""`verify`: everything in a store compared with what was written."""

import os
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

import lance

from narrows._plural import count
from narrows.errors import StoreDamagedError
from narrows.store import layout, rows
from narrows.store.attempt import search
from narrows.store.checksums import changed_files, is_of_data, is_of_index, noted_names, suspects
from narrows.store.codecs import get_codec
from narrows.store.fragments import names_alone, readable_rows, survives_search, that_end_lance
from narrows.store.records import Damage, VerifyReport
from narrows.store.tidying import index_files


def verify(path: str | os.PathLike) -> VerifyReport:
    """Read every row of the newest version, and the files beside the rows, and compare them with what was written.

    A folder in which a store was about to be created verifies as an empty store. A file that cannot be read
    is reported, and the rows of the others are still verified.

    Raises:
        StoreError: there is no store at `path`, or it may not be read.
        StoreMismatchError: the store has a newer format.
        StoreDamagedError: the manifest is not what was written.
        UsageError: Lance takes no such path.
    """
    path = Path(path)
    layout.dataset_uri(path)
    if layout.is_unborn(path):
        return VerifyReport(path=str(path))
    manifest = layout.read_manifest(path)
    reading = layout.lock_for_reading(path)
    try:
        return _Verification(path, manifest).run()
    except StoreDamagedError as error:
        damage = Damage(None, None, layout.without_remedy(path, error))
        return VerifyReport(path=str(path), damages=[damage], beyond_repair=True)
    finally:
        os.close(reading)


class _Verification:
    """What has been seen of a store while its fragments are read one after another."""

    def __init__(self, path: Path, manifest: layout.Manifest) -> None:
        self._path, self._manifest = path, manifest
        fingerprint = manifest.fingerprint
        self._bytes_per_token = get_codec(fingerprint.codec).bytes_per_token(fingerprint.width)
        self._passages = 0
        self._damages: list[Damage] = []
        self._damaged_notes: list[Damage] = []
        self._remarks: list[str] = []
        self._unreadable: list[int] = []
        self._nameless = 0
        self._to_copy: list[int] = []
        self._changed_data: set[str] = set()
        self._to_rewrite: set[str] = set()
        self._lost: set[str] = set()
        self._damaged_index = self._beyond_repair = False
        self._last_text = ""
        self._indices: dict[str, list[int]] = defaultdict(list)
        self._sources: dict[str, set[tuple[str, int]]] = defaultdict(set)

    def run(self) -> VerifyReport:
        """Look at everything.

        Raises:
            StoreDamagedError: so much is damaged that no row can be looked at.
        """
        layout.require_versions(self._path)
        # First: what says which rows there are may end the process inside Lance when it is damaged.
        self._compare_files()
        if not self._beyond_repair and layout.has_dataset(self._path):
            dataset = self._open()
            fragments = dataset.get_fragments()
            names = {layout.data_file(fragment): fragment.fragment_id for fragment in fragments}
            untrusted = [names[name] for name in self._untrusted(names)]
            end_lance = that_end_lance(self._path, dataset.version, untrusted)
            for fragment in fragments:
                self._check_fragment(fragment, fragment.fragment_id in end_lance)
            self._check_documents()
            self._check_index(dataset)
        return self._report()

    def _open(self) -> lance.LanceDataset:
        with layout.lance_errors(self._path, "reading"):
            dataset = lance.dataset(layout.dataset_uri(self._path))
        columns = [(field.name, field.type) for field in rows.schema(self._manifest.vector_width)]
        if [(field.name, field.type) for field in dataset.schema] != columns:
            raise StoreDamagedError(
                f"the columns of the store {self._path} are not those that were written; {layout.ANEW}"
            )
        return dataset

    def _compare_files(self) -> None:
        """Compare all files with their checksums; of the data it is only noted, the rows tell more."""
        self._look_for_note()
        try:
            changed = changed_files(self._path)
        except StoreDamagedError:
            changed = [layout.CHECKSUMS]
        for name in changed:
            if is_of_data(name):
                self._changed_data.add(name)
                continue
            damage = Damage(None, None, f"the file {name} is not what was written")
            if name in (layout.CHECKSUMS, layout.SOURCE):
                self._damaged_notes.append(damage)
            else:
                self._damages.append(damage)
                self._damaged_index |= is_of_index(name)
                self._beyond_repair |= not is_of_index(name)

    def _look_for_note(self) -> None:
        """Miss the checksums where a store is sure to have had them: from its first commit on."""
        if (self._path / layout.CHECKSUMS).exists() or not layout.has_dataset(self._path):
            return
        if self._manifest.is_noted:
            reason = f"the file {layout.CHECKSUMS} is gone, which held the checksums of all others"
            self._damaged_notes.append(Damage(None, None, reason))
        else:
            self._remarks.append(
                f"there is no {layout.CHECKSUMS} to compare the files with, only the passages were compared; the next "
                "`narrows index` writes one"
            )

    def _check_index(self, dataset: lance.LanceDataset) -> None:
        """Search for a word that is there: a store that was never finished has no checksum of its index."""
        word = max(self._last_text.split(), key=len, default="")
        # Rows that are not in the index yet are searched too: a damaged one is no fault of the index.
        if not word or self._damages:
            return
        untrusted = self._untrusted(index_files(dataset, self._path))
        if untrusted and not survives_search(self._path, dataset.version, word):
            self._damages.append(Damage(None, None, "searching the full-text index ends the process"))
            self._damaged_index = True
            return
        try:
            with layout.lance_errors(self._path, "searching"):
                search(dataset, rows.TEXT_COLUMN, word)
        except StoreDamagedError as error:
            self._damages.append(Damage(None, None, layout.without_remedy(self._path, error)))
            self._damaged_index = True

    def _untrusted(self, names: Collection[str]) -> list[str]:
        """Those files that are not sure to be what was written, or of which that is not noted."""
        untrusted = self._changed_data.union(suspects(self._path, names), set(names) - noted_names(self._path))
        return [name for name in names if name in untrusted]

    def _check_fragment(self, fragment: lance.LanceFragment, ends_lance: bool) -> None:
        documents: set[str] = set()
        before = len(self._damages)
        name = layout.data_file(fragment)
        changed = name in self._changed_data
        unread = None if ends_lance else self._read_fragment(fragment, documents)
        if unread != 0:
            many = "passages" if unread is None else count(unread, "passage")
            self._damages.append(Damage(None, None, f"{many} in the file {name} cannot be read"))
            self._unreadable.append(fragment.fragment_id)
            self._to_rewrite |= documents
            names = None if ends_lance else names_alone(fragment, self._path)
            self._lost |= names or set()
            if names is None:
                self._nameless += _rows_of(fragment) if unread is None else unread
        elif changed or len(self._damages) > before:
            self._to_copy.append(fragment.fragment_id)
            if len(self._damages) == before:
                reason = f"the file {name} is not what was written, though each of its passages is"
                self._damages.append(Damage(None, None, reason))

    def _read_fragment(self, fragment: lance.LanceFragment, documents: set[str]) -> int | None:
        """Read one file: many rows at once where that works, row by row where it does not.

        Returns:
            How many rows tell not even their id; None: all, of an unknown number.
        """
        try:
            with layout.lance_errors(self._path, "reading"):
                number = fragment.count_rows()
        except StoreDamagedError:
            return None
        nameless = 0
        for place, read in readable_rows(fragment, number, self._path):
            if read is None:
                nameless += self._read_identity(fragment, place, documents)
            else:
                self._check_rows(read.rows, documents)
        return nameless

    def _check_rows(self, found: list[dict], documents: set[str]) -> None:
        self._last_text = found[-1][rows.TEXT_COLUMN]
        for row in found:
            self._see(row, documents)
            damage = rows.row_damage(row, self._bytes_per_token)
            if damage is not None:
                self._blame(row, damage)

    def _read_identity(self, fragment: lance.LanceFragment, offset: int, documents: set[str]) -> int:
        columns = ["passage_id", "document_id", "document_sha256", "passage_index", "passage_count"]
        try:
            with layout.lance_errors(self._path, "reading"):
                row = fragment.take([offset], columns=columns).to_pylist()[0]
        except StoreDamagedError:
            return 1
        self._see(row, documents)
        self._blame(row, "its columns cannot be read")
        return 0

    def _see(self, row: dict, documents: set[str]) -> None:
        self._passages += 1
        documents.add(row["document_id"])
        self._indices[row["document_id"]].append(row["passage_index"])
        self._sources[row["document_id"]].add((row["document_sha256"], row["passage_count"]))

    def _blame(self, row: dict, damage: str) -> None:
        reason = f"passage {row['passage_id']!r} is damaged: {damage}"
        self._damages.append(Damage(row["passage_id"], row["document_id"], reason))

    def _check_documents(self) -> None:
        """Compare the passages seen of each document with the number that each of them names."""
        for document_id, indices in self._indices.items():
            sources = self._sources[document_id]
            whole = max(number for _, number in sources)
            # Compared first: a damaged number may be larger than any list.
            if len(sources) > 1 or len(indices) != whole or sorted(indices) != list(range(whole)):
                there = len(set(indices))
                reason = f"document {document_id!r} is not whole: {there} of its {count(whole, 'passage')} are there"
                self._damages.append(Damage(None, document_id, reason))

    def _report(self) -> VerifyReport:
        blamed = {damage.document_id for damage in self._damages if damage.document_id is not None}
        return VerifyReport(
            path=str(self._path),
            documents=len(self._indices),
            passages=self._passages,
            damages=[*self._damages, *self._damaged_notes],
            remarks=self._remarks,
            damaged_documents=sorted(blamed | self._to_rewrite),
            lost_documents=sorted(self._lost - blamed - self._to_rewrite),
            nameless_passages=self._nameless,
            unreadable_fragments=self._unreadable,
            changed_fragments=self._to_copy,
            damaged_index=self._damaged_index,
            beyond_repair=self._beyond_repair,
        )


def _rows_of(fragment: lance.LanceFragment) -> int:
    """Number of a file's rows as the version says it, without looking into the file."""
    return fragment.metadata.num_rows
