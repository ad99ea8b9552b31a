"""Whose documents a store holds, so that a run over another folder does not put them out unasked."""

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from narrows._plural import count
from narrows.documents import read_documents
from narrows.errors import UsageError
from narrows.store import Store, delete
from narrows.store.layout import lance_errors, read_source, write_source

__all__ = ["claim_store", "leave_no_empty_store", "vanished"]


def claim_store(store: Store, folder: str | Path, *, replace: bool) -> None:
    """Note the folder that a store is made from, unless that would cost it documents of another one.

    A folder that was moved is another one only in name: as long as nothing would be lost, the note follows it.

    Args:
        store: open, with its writer entered.
        folder: about to be indexed.
        replace: the caller wants the other folder's documents to go.

    Raises:
        UsageError: says how many documents would be removed or replaced; the store is left as it was.
        DocumentError: nothing in the folder can be read.
    """
    source, former = str(Path(folder).resolve()), read_source(store.path)
    if source == former:
        return
    known = store.documents()
    if known and not replace:
        removed, replaced = _losses(known, folder)
        if removed or replaced:
            others = f" and {replaced:,} replaced" if replaced else ""
            raise UsageError(
                f"expected {former or 'the folder'} whose documents the store {store.path} holds, got {folder}, with "
                f"which {count(removed, 'document')} would be removed{others}; index it into another store, or pass "
                "--replace (replace=True)"
            )
    with lance_errors(store.path, "writing to"):
        write_source(store.path, source)


def leave_no_empty_store(path: Path, made: Sequence[Path]) -> None:
    """Delete a store that a refused run has made, unless it holds a document by now.

    Args:
        path: the store.
        made: which of it and the folders above were not there before, innermost first.
    """
    with Store.open(path, expect=None) as store:
        if store.documents():
            return
    delete(path)
    if not made:
        path.mkdir()
    for folder in made[1:]:
        folder.rmdir()


def vanished(known: Iterable[str], seen: Collection[str], unreadable: Collection[str]) -> list[str]:
    """Documents that a folder no longer holds, but none whose file, or a folder above it, could not be read."""

    def was_unreadable(document_id: str) -> bool:
        above = (document_id[: mark.start()] for mark in re.finditer("[/#]", document_id))
        return any(name in unreadable for name in (document_id, *above))

    return [name for name in known if name not in seen and not was_unreadable(name)]


def _losses(known: dict[str, str], folder: str | Path) -> tuple[int, int]:
    """How many of the known documents (sha256 by id) a folder would remove, and how many it has with another text."""
    unreadable: set[str] = set()
    found = {document.id: document.sha256 for document in read_documents(folder, lambda name, _: unreadable.add(name))}
    replaced = sum(found.get(name, sha256) != sha256 for name, sha256 in known.items())
    return len(vanished(known, found, unreadable)), replaced
