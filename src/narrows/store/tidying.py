"""Joining small files and bringing the full-text index up to date, in memory that does not grow with the store.

Lance left alone does both in ever larger bites: joining decodes all columns, and the index is written anew as a whole
whenever it takes in rows. Here files are joined as the bytes they are, and the index is made of segments that are left
alone once they are full.
"""

import lance
from lance.optimize import Compaction, CompactionOptions

__all__ = ["index_new_rows", "join_files"]

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


def index_new_rows(dataset: lance.LanceDataset, name: str) -> None:
    """Bring the full-text index up to date: new rows go into its newest segments, or into one of their own.

    As many of the newest segments as fit into a full one with the new rows are merged with them.
    """
    rows = {fragment.fragment_id: fragment.physical_rows for fragment in dataset.get_fragments()}
    segments = next(index.segments for index in dataset.describe_indices() if index.name == name)
    indexed = [rows.keys() & set(segment.fragment_ids) for segment in segments]
    new = rows.keys() - set().union(*indexed)
    room = _ROWS_OF_FULL_SEGMENT - sum(rows[fragment] for fragment in new)
    merged = 0
    for fragments in reversed(indexed):
        room -= sum(rows[fragment] for fragment in fragments)
        if room < 0:
            break
        merged += 1
    if new or merged > 1:
        dataset.optimize.optimize_indices(index_names=[name], num_indices_to_merge=merged)


def _bytes_of(fragment: lance.LanceFragment) -> int:
    return sum(file.file_size_bytes or 0 for file in fragment.data_files())


def _is_holey(fragment: lance.LanceFragment) -> bool:
    return fragment.num_deletions > _DELETED_IN_A_FILE * fragment.physical_rows


def _has_many_deleted(fragments: list[lance.LanceFragment]) -> bool:
    written = sum(fragment.physical_rows for fragment in fragments)
    return sum(fragment.num_deletions for fragment in fragments) > _MANY_DELETED * written
