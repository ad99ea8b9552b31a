"""Looking after a store as a whole: verify, delete, and how large one is going to be."""

import os
import shutil
from collections import defaultdict
from pathlib import Path

import lance

from narrows.errors import StoreBusyError, StoreDamagedError, StoreError
from narrows.store import layout, rows
from narrows.store.codecs import get_codec
from narrows.store.records import Damage, VerifyReport

_ROWS_AT_ONCE = 256

# Measured on stores of 50 to 5,000 passages of English text; tests/store/test_store_estimate.py holds them
# to it.
_BYTES_PER_STORE = 24_000
_BYTES_PER_PASSAGE = 40
_BYTES_PER_TOKEN_ID = 2.0
_INDEX_BYTES_PER_TEXT_BYTE = 0.3


def estimate_bytes(passages: int, tokens: int, text_bytes: int, codec: str, width: int, vector_width: int = 0) -> int:
    """Say how large a finished store is going to be on disk.

    Args:
        passages: number of passages.
        tokens: number of tokens of all passages together.
        text_bytes: size of all passages' texts in UTF-8.
        codec: name of the codec.
        width: size of one token's state.
        vector_width: size of the one vector a passage, 0 without.

    Returns:
        bytes, within 5 % for stores of more than about a hundred passages.

    Raises:
        UsageError: there is no codec of that name.

    Example:
        >>> estimate_bytes(1000, 293_000, 1_300_000, "int8", 384) // 10**6
        115
    """
    states = tokens * get_codec(codec).bytes_per_token(width)
    text = text_bytes * (1 + _INDEX_BYTES_PER_TEXT_BYTE)
    per_passage = _BYTES_PER_PASSAGE + (2 * vector_width + 4 if vector_width else 0)
    return round(_BYTES_PER_STORE + states + text + tokens * _BYTES_PER_TOKEN_ID + passages * per_passage)


def delete(path: str | os.PathLike) -> None:
    """Delete the store at `path` with everything in it.

    Raises:
        StoreError: there is no store at `path` or only a link to one, or it holds files that are not the store's.
        StoreBusyError: somebody is writing to it or reading from it.
    """
    path = Path(path)
    # os.path: False where the folder above may not be looked into, which is said below.
    if os.path.islink(path):
        raise StoreError(
            f"a store to delete is a folder, but {path} is a link to {path.resolve()}; delete that and remove the link"
        )
    if not (layout.is_unborn(path) and os.listdir(path)):
        layout.read_manifest(path)
    foreign = layout.foreign_names(path)
    if foreign:
        raise StoreError(
            f"a store to delete holds nothing but its own files, but {path} has {foreign[0]!r} in it; move "
            "it away first"
        )
    writing = layout.lock_for_writing(path)
    reading = None
    try:
        if (path / layout.MANIFEST).exists():
            reading = layout.lock_for_reading(path)
            if not layout.try_alone(reading):
                raise StoreBusyError(f"the store {path} is being read and cannot be deleted; close it everywhere first")
        if (path / layout.PASSAGES).exists():
            shutil.rmtree(path / layout.PASSAGES)
        # The manifest goes after the data: a deletion that is killed leaves a store that can be deleted
        # again.
        shutil.rmtree(path)
    except OSError as error:
        cause = error.strerror or error
        raise StoreError(f"the store {path} cannot be deleted ({cause}); check its permissions") from error
    finally:
        os.close(writing)
        if reading is not None:
            os.close(reading)


def verify(path: str | os.PathLike) -> VerifyReport:
    """Read every row of the newest version and compare it with what was written.

    A folder in which a store was about to be created verifies as an empty store. A file that cannot be read
    is reported, and the rows of the others are still verified.

    Raises:
        StoreError: there is no store at `path`, or it may not be read.
        StoreMismatchError: the store has a newer format.
        StoreDamagedError: the manifest is not what was written.
    """
    path = Path(path)
    if layout.is_unborn(path):
        return VerifyReport(path=str(path))
    manifest = layout.read_manifest(path)
    if not layout.has_dataset(path):
        return VerifyReport(path=str(path))
    reading = layout.lock_for_reading(path)
    try:
        with layout.lance_errors(path, "reading"):
            dataset = lance.dataset(str(path / layout.PASSAGES))
            fragments = dataset.get_fragments()
        fingerprint = manifest.fingerprint
        verification = _Verification(path, get_codec(fingerprint.codec).bytes_per_token(fingerprint.width))
        for fragment in fragments:
            verification.read_fragment(fragment)
        verification.check_documents()
        return verification.report()
    except StoreDamagedError as error:
        return VerifyReport(path=str(path), damages=[Damage(None, None, str(error))])
    finally:
        os.close(reading)


class _Verification:
    """What has been seen of a store while its fragments are read one after another."""

    def __init__(self, path: Path, bytes_per_token: int) -> None:
        self._path = path
        self._bytes_per_token = bytes_per_token
        self._passages = 0
        self._damages: list[Damage] = []
        self._unreadable: list[int] = []
        self._to_rewrite: set[str] = set()
        self._indices: dict[str, list[int]] = defaultdict(list)
        self._sources: dict[str, set[tuple[str, int]]] = defaultdict(set)

    def read_fragment(self, fragment: lance.LanceFragment) -> None:
        """Read one file: many rows at once where that works, row by row where it does not."""
        documents: set[str] = set()
        try:
            with layout.lance_errors(self._path, "reading"):
                count = fragment.count_rows()
        except StoreDamagedError:
            count = None
        lost = count is None
        if count is not None:
            nameless = 0
            for start in range(0, count, _ROWS_AT_ONCE):
                offsets = list(range(start, min(start + _ROWS_AT_ONCE, count)))
                nameless += self._read_rows(fragment, offsets, documents)
            lost = nameless > 0
            count = nameless
        if lost:
            name = fragment.data_files()[0].path
            many = "passages" if count is None else f"{count} passage{'s' * (count != 1)}"
            reason = f"{many} in the file {layout.PASSAGES}/data/{name} cannot be read"
            self._damages.append(Damage(None, None, reason))
            self._unreadable.append(fragment.fragment_id)
            self._to_rewrite |= documents

    def _read_rows(self, fragment: lance.LanceFragment, offsets: list[int], documents: set[str]) -> int:
        """Verify rows and collect their documents; returns how many rows tell not even their id."""
        try:
            with layout.lance_errors(self._path, "reading"):
                found = rows.table_to_rows(fragment.take(offsets))
        except StoreDamagedError:
            if len(offsets) == 1:
                return self._read_identity(fragment, offsets[0], documents)
            middle = len(offsets) // 2
            return sum(self._read_rows(fragment, half, documents) for half in (offsets[:middle], offsets[middle:]))
        for row in found:
            self._see(row, documents)
            damage = rows.row_damage(row, self._bytes_per_token)
            if damage is not None:
                self._blame(row, damage)
        return 0

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

    def check_documents(self) -> None:
        """Compare the passages seen of each document with the number that each of them names."""
        for document_id, indices in self._indices.items():
            sources = self._sources[document_id]
            count = max(count for _, count in sources)
            if len(sources) > 1 or sorted(indices) != list(range(count)):
                there = len(set(indices))
                reason = f"document {document_id!r} is not whole: {there} of its {count} passages are there"
                self._damages.append(Damage(None, document_id, reason))

    def report(self) -> VerifyReport:
        blamed = {damage.document_id for damage in self._damages if damage.document_id is not None}
        return VerifyReport(
            path=str(self._path),
            documents=len(self._indices),
            passages=self._passages,
            damages=self._damages,
            damaged_documents=sorted(blamed | self._to_rewrite),
            unreadable_fragments=self._unreadable,
        )
