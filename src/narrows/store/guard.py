"""What of an open store is kept from Lance: files of which reading would end the process, and so lose every answer."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import lance

from narrows.errors import StoreDamagedError
from narrows.store import layout
from narrows.store.checksums import suspects
from narrows.store.fragments import that_end_lance
from narrows.store.tidying import index_files, indexed_fragments

__all__ = ["Guard"]


class Guard:
    """Knows the files that Lance must not open, and refuses what would make it: the rest of the store answers.

    A file is looked at once, with a few reads of some kB at its end (see `tails`): none is written twice. A data file
    whose tail is not what was written is read by another process first, and refused if that ends. An index file is
    refused at once: it might hide passages, and is made anew without loss.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: set[str] = set()
        self._refused: set[str] = set()
        self._fragments: dict[int, str] = {}
        self._index: tuple[int, str | None] = (0, None)

    def look_at(self, dataset: lance.LanceDataset) -> dict[int, int]:
        """Look at the data files of a version: from now on it is the one that is read.

        Returns:
            the number of rows of each fragment.
        """
        fragments = dataset.get_fragments()
        ids = {layout.data_file(fragment): fragment.fragment_id for fragment in fragments}
        suspected = {ids[name]: name for name in self._suspects(ids)}
        fatal = that_end_lance(self._path, dataset.version, sorted(suspected))
        self._refused |= {suspected[fragment_id] for fragment_id in fatal}
        self._fragments = {ids[name]: name for name in ids.keys() & self._refused}
        return {fragment.fragment_id: fragment.physical_rows for fragment in fragments}

    def require_rows(self, row_ids: Iterable[int]) -> None:
        """Refuse rows of which the file must not be opened.

        Raises:
            StoreDamagedError: names the file.
        """
        for row_id in row_ids:
            # A row id is the number of its fragment and its place there, 32 bits each.
            if row_id >> 32 in self._fragments:
                raise self._damage(self._fragments[row_id >> 32])

    def require_query(self, dataset: lance.LanceDataset, query: Mapping[str, Any]) -> None:
        """Refuse a query, as `LanceDataset.to_table` takes it, that opens a file which must not be opened.

        A search for words opens the index, and files whose rows are not in the index yet; one for row ids alone none;
        any other opens all.

        Raises:
            StoreDamagedError: names the file.
        """
        opened = set(self._fragments)
        if "full_text_query" in query:
            self._require_index(dataset)
            opened -= indexed_fragments(dataset) if opened else set()
        elif not query.get("columns") and "filter" not in query and "nearest" not in query:
            opened = set()
        self.require_rows(fragment_id << 32 for fragment_id in sorted(opened))

    def require_all(self, dataset: lance.LanceDataset) -> None:
        """Refuse what opens every file, and the index.

        Raises:
            StoreDamagedError: names the file.
        """
        self.require_rows(fragment_id << 32 for fragment_id in sorted(self._fragments))
        self._require_index(dataset)

    def _require_index(self, dataset: lance.LanceDataset) -> None:
        # Looked at when a version is first searched: reading rows needs no index.
        if self._index[0] != dataset.version:
            names = index_files(dataset, self._path)
            self._refused.update(self._suspects(names))
            self._index = dataset.version, next((name for name in names if name in self._refused), None)
        if self._index[1] is not None:
            raise self._damage(self._index[1])

    def _suspects(self, names: Iterable[str]) -> list[str]:
        new = [name for name in names if name not in self._seen]
        self._seen.update(new)
        return suspects(self._path, new) if new else []

    def _damage(self, name: str) -> StoreDamagedError:
        return StoreDamagedError(
            f"the end of the file {name} in the store {self._path} is not what was written, and reading it could end "
            f"the process; {layout.mend(self._path)}"
        )
