"""What another process does with files that might end it: read them in every way that a store and `verify` do.

Run as a script, and without an import from narrows: that would load torch, which takes longer than the reading.

    python -P attempt.py URI VERSION files FRAGMENT_ID...
    python -P attempt.py URI VERSION search COLUMN < WORD
"""

import sys
from collections.abc import Callable
from typing import Any

import lance
from lance.query import MatchQuery

_ROWS_AT_ONCE = 256


def _works(read: Callable[..., object], *arguments: Any, **options: Any) -> bool:
    """Whether something can be read; that it cannot is found again, and said, by the process that asks."""
    try:
        read(*arguments, **options)
    except KeyboardInterrupt:
        raise
    except BaseException:  # A panic of Lance's Rust code is no Exception.
        return False
    return True


def read_files(dataset: lance.LanceDataset, fragment_ids: list[int]) -> None:
    """Read each file a column at once, then some rows at once, and one after another where that fails."""
    columns = [[name] for name in dataset.schema.names]
    for fragment_id in fragment_ids:
        fragment = dataset.get_fragment(fragment_id)
        assert fragment is not None
        for names in columns:
            _works(fragment.to_table, columns=names)
        for start in range(0, fragment.metadata.num_rows, _ROWS_AT_ONCE):
            places = list(range(start, min(start + _ROWS_AT_ONCE, fragment.metadata.num_rows)))
            if not _works(fragment.take, places):
                for place in places:
                    for names in [None, *columns]:
                        _works(fragment.take, [place], columns=names)


def search(dataset: lance.LanceDataset, column: str, word: str) -> None:
    """Search for a word, for the errors alone."""
    dataset.to_table(
        columns=["_score"], full_text_query=MatchQuery(word, column), limit=1, disable_scoring_autoprojection=True
    )


def _main(uri: str, version: str, what: str, *arguments: str) -> None:
    dataset = lance.dataset(uri, version=int(version))
    if what == "files":
        read_files(dataset, [int(argument) for argument in arguments])
    else:
        # A word may be longer than an argument may be.
        _works(search, dataset, *arguments, sys.stdin.buffer.read().decode())


if __name__ == "__main__":
    _main(*sys.argv[1:])
