"""What is left of some passages when not all of them can be read."""

from collections.abc import Sequence
from typing import NamedTuple

from narrows.errors import StoreDamagedError
from narrows.store import layout
from narrows.store.reader import Store
from narrows.store.records import LoadedPassages

__all__ = ["LeftOut", "Salvage", "load_whole"]


class LeftOut(NamedTuple):
    """Damaged passages.

    Attributes:
        passages: how many.
        documents: ids of their documents, as far as they can still be read, sorted.
        nameless: number of the passages of which not even that can be read.
        mend: what to do, with the commands as they are typed.
    """

    passages: int
    documents: list[str]
    nameless: int
    mend: str


class Salvage(NamedTuple):
    """The places of those rows that are whole, what they hold, and what was left out."""

    places: list[int]
    loaded: LoadedPassages
    left_out: LeftOut


def load_whole(store: Store, row_ids: Sequence[int]) -> Salvage:
    """Read those of some rows that are whole, one after another: for when `Store.load` has refused them together.

    Args:
        store: an open store.
        row_ids: of its snapshot.

    Raises:
        UsageError: a row is not in this snapshot.
        StoreDamagedError: none of them is whole.

    Example:
        >>> load_whole(store, row_ids).left_out.documents  # doctest: +SKIP
        ['lease-contract.txt']
    """
    places: list[int] = []
    parts: list[LoadedPassages] = []
    damage: StoreDamagedError | None = None
    documents: set[str] = set()
    nameless = 0
    for place, row_id in enumerate(row_ids):
        try:
            parts.append(store.load([row_id]))
        except StoreDamagedError as error:
            damage = error
            name = _document_of(store, row_id)
            nameless += name is None
            documents |= set() if name is None else {name}
        else:
            places.append(place)
    if damage is not None and not parts:
        raise damage
    columns = vars(parts[0]) if parts else vars(store.load([]))
    loaded = LoadedPassages(**{name: [value for part in parts for value in vars(part)[name]] for name in columns})
    left_out = LeftOut(len(row_ids) - len(places), sorted(documents), nameless, layout.mend(store.path))
    return Salvage(places, loaded, left_out)


def _document_of(store: Store, row_id: int) -> str | None:
    """The document of a damaged row; None where its id cannot be read, or is not what a name looks like."""
    assert store._dataset is not None
    try:
        with layout.lance_errors(store.path, "reading"):
            store._guard.require_rows([int(row_id)])
            [name] = store._dataset._take_rows([int(row_id)], columns=["document_id"])["document_id"].to_pylist()
    except StoreDamagedError:
        return None
    # No checksum tells a name from what was written over it.
    return name if name and name.isprintable() else None
