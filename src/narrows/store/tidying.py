"""Joining small files and bringing the full-text index up to date, in memory that does not grow with the store.

Lance left alone does both in ever larger bites: joining decodes all columns, and the index is written anew as a whole
whenever it takes in rows. Here files are joined as the bytes they are, and the index is made of segments that are left
alone once they are full, until they count rows that are no longer there: then they are made anew.
"""

from pathlib import Path
from typing import Any

import lance
import numpy as np
from lance.dataset import Index
from lance.file import LanceFileReader
from lance.indices import IndexSegment, IndexSegmentDescription
from lance.optimize import Compaction, CompactionOptions

from narrows.store import layout
from narrows.store.rows import TEXT_COLUMN

__all__ = [
    "INDEX_NAME",
    "create_index",
    "forget_deleted_rows",
    "index_files",
    "index_new_rows",
    "indexed_fragments",
    "join_files",
]

INDEX_NAME = "text_idx"
# How text is cut into words.
_WORDS: dict[str, Any] = {
    "base_tokenizer": "icu/split",
    "language": "English",
    "stem": True,
    "remove_stop_words": True,
    "ascii_folding": True,
    "with_position": False,
}
# Every put() makes a file, and a file costs an opening.
_MANY_FILES = 32
_MANY_DELETED = 0.2
# A file of that size is not joined again, and joining goes on to twice that, so that none has to be joined twice.
_BYTES_OF_FULL_FILE = 32_000_000
# Files with deleted rows are decoded, and Lance holds up to 16 batches; its own 8192 rows would be gigabytes of states.
_BYTES_OF_BATCH = 4_000_000
# The same share at which Lance finds a file worth writing anew.
_DELETED_IN_A_FILE = 0.1
# Merging takes about 2 kB a row.
_ROWS_OF_FULL_SEGMENT = 32_768


def join_files(dataset: lance.LanceDataset) -> None:
    """Join small files, and free the room of deleted rows, if there is much of either.

    Files that are full and have few rows deleted stay as they are.
    """
    fragments = dataset.get_fragments()
    full = [
        fragment for fragment in fragments if _bytes_of(fragment) >= _BYTES_OF_FULL_FILE and not _is_holey(fragment)
    ]
    excluded = {fragment.fragment_id for fragment in full}
    rest = [fragment for fragment in fragments if fragment.fragment_id not in excluded]
    if not rest:
        return
    bytes_a_row = max(1.0, sum(map(_bytes_of, rest)) / sum(fragment.physical_rows for fragment in rest))
    options: CompactionOptions = {
        "target_rows_per_fragment": max(1, round(2 * _BYTES_OF_FULL_FILE / bytes_a_row)),
        "batch_size": max(1, round(_BYTES_OF_BATCH / bytes_a_row)),
        "num_threads": 1,
        # States are not decoded; Lance does decode the files that have rows deleted.
        "compaction_mode": "try_binary_copy",
        "excluded_fragment_ids": sorted(excluded),
    }
    plan = Compaction.plan(dataset, options)
    many = sum(len(task.fragments) for task in plan.tasks) > _MANY_FILES
    if many or _has_many_deleted(fragments):
        Compaction.commit(dataset, [task.execute(dataset) for task in plan.tasks], options)


def create_index(dataset: lance.LanceDataset, *, train: bool) -> None:
    """Make the full-text index, of all rows there are or, without training, of none."""
    dataset.create_scalar_index(TEXT_COLUMN, "INVERTED", name=INDEX_NAME, train=train, **_WORDS)


def index_new_rows(dataset: lance.LanceDataset) -> None:
    """Bring the full-text index up to date: new rows go into its newest segments, or into one of their own.

    As many of the newest segments as fit into a full one with the new rows are merged with them.
    """
    rows = {fragment.fragment_id: fragment.physical_rows for fragment in dataset.get_fragments()}
    indexed = [rows.keys() & set(segment.fragment_ids) for segment in _segments(dataset)]
    new = rows.keys() - set().union(*indexed)
    room = _ROWS_OF_FULL_SEGMENT - sum(rows[fragment] for fragment in new)
    merged = 0
    for fragments in reversed(indexed):
        room -= sum(rows[fragment] for fragment in fragments)
        if room < 0:
            break
        merged += 1
    if new or merged > 1:
        dataset.optimize.optimize_indices(index_names=[INDEX_NAME], num_indices_to_merge=merged)


def forget_deleted_rows(dataset: lance.LanceDataset, path: Path) -> None:
    """Make anew, from its text, each segment of the full-text index that counts rows which are no longer there.

    Lance finds no deleted row, but goes on counting it, and its words, in the weight of every word: BM25 would differ
    from that of a new store with the same passages. Segments without such rows stay as they are.

    Args:
        dataset: at its newest version.
        path: the dataset's folder.
    """
    there = dataset.to_table(columns=[], with_row_id=True)["_rowid"].to_numpy()
    rows = {fragment.fragment_id: fragment.count_rows() for fragment in dataset.get_fragments()}
    segments = _segments(dataset)
    indexed = indexed_fragments(dataset)
    if indexed and rows.keys().isdisjoint(indexed):
        # Lance drops segments whose files are all gone, but for the last one.
        dataset.drop_index(INDEX_NAME)
        create_index(dataset, train=False)
        return
    for segment in segments:
        groups = _groups({one: rows[one] for one in sorted(rows.keys() & set(segment.fragment_ids))})
        if groups and not np.isin(_counted_rows(path, segment), there).all():
            # They take the place of the segment whose files they are of.
            anew: list[IndexSegment | Index] = [_index_of(dataset, group) for group in groups]
            dataset.commit_existing_index_segments(INDEX_NAME, TEXT_COLUMN, anew)


def _index_of(dataset: lance.LanceDataset, fragment_ids: list[int]) -> Index:
    """A segment over these files that no version names yet."""
    return dataset.create_index_uncommitted(
        TEXT_COLUMN,
        "INVERTED",
        name=INDEX_NAME,
        replace=True,
        fragment_ids=fragment_ids,
        # Each worker would hold words of its own.
        num_workers=1,
        **_WORDS,
    )


def _segments(dataset: lance.LanceDataset) -> list[IndexSegmentDescription]:
    """Oldest first."""
    return [segment for index in dataset.describe_indices() if index.name == INDEX_NAME for segment in index.segments]


def indexed_fragments(dataset: lance.LanceDataset) -> set[int]:
    """The ids of the files whose rows are in the full-text index."""
    return set().union(*(segment.fragment_ids for segment in _segments(dataset)))


def index_files(dataset: lance.LanceDataset, path: Path) -> list[str]:
    """The names of the files of the full-text index, below the store at `path`."""
    indices = path / layout.PASSAGES / "_indices"
    files = [file for segment in _segments(dataset) for file in (indices / segment.uuid).glob("*.lance")]
    return sorted(file.relative_to(path).as_posix() for file in files)


def _counted_rows(path: Path, segment: IndexSegmentDescription) -> np.ndarray:
    """The ids of the rows in a segment; those without a word to look for are not in it."""
    parts = (path / "_indices" / segment.uuid).glob("part_*_docs.lance")
    read = [LanceFileReader(str(part), columns=["_rowid"]).read_all().to_table()["_rowid"].to_numpy() for part in parts]
    return np.concatenate([np.empty(0, dtype=np.uint64), *read])


def _groups(rows: dict[int, int]) -> list[list[int]]:
    """Files, given with the number of their rows, in groups of a full segment each."""
    groups: list[list[int]] = []
    room = 0
    for fragment, number in rows.items():
        room -= number
        if room < 0:
            groups.append([])
            room = _ROWS_OF_FULL_SEGMENT - number
        groups[-1].append(fragment)
    return groups


def _bytes_of(fragment: lance.LanceFragment) -> int:
    return sum(file.file_size_bytes or 0 for file in fragment.data_files())


def _is_holey(fragment: lance.LanceFragment) -> bool:
    return fragment.num_deletions > _DELETED_IN_A_FILE * fragment.physical_rows


def _has_many_deleted(fragments: list[lance.LanceFragment]) -> bool:
    written = sum(fragment.physical_rows for fragment in fragments)
    return sum(fragment.num_deletions for fragment in fragments) > _MANY_DELETED * written
