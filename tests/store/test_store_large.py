"""A document whose passages come in groups, and are never in memory together."""

import pytest

from narrows.errors import UsageError
from narrows.store import verify


def groups(document, name: str, texts: list[str], size: int):
    passages = document(name, texts).passages
    for start in range(0, len(passages), size):
        yield passages[start : start + size]


def test_groups_are_one_document_in_one_commit(store, document) -> None:
    texts = [f"harbour {number}" for number in range(7)]
    with store.writer() as writer:
        writer.put([document("a")])
        store.refresh()
        before = store.version
        writer.put_large(document("big", ["x"]), 7, groups(document, "big", texts, 3))
        store.refresh()
        assert store.version == before + 1
        writer.finish()
    assert verify(store.path).ok
    assert [passage.text for passage in store.take([f"big:{n}" for n in range(7)])] == texts
    assert set(store.documents()) == {"a", "big"}


def test_a_large_document_takes_the_place_of_what_it_was(store, document) -> None:
    with store.writer() as writer:
        writer.put_large(document("big"), 5, groups(document, "big", ["harbour"] * 5, 2))
        writer.put_large(document("big", sha256="2" * 64), 3, groups(document, "big", ["clock"] * 3, 2))
        writer.finish()
    assert store.documents() == {"big": "2" * 64} and store.info().passages == 3
    assert verify(store.path).ok


@pytest.mark.parametrize("count", [4, 6])
def test_a_wrong_count_stores_nothing(store, document, count) -> None:
    with store.writer() as writer:
        writer.put([document("a")])
        with pytest.raises(UsageError, match=f"was to have {count} passages, but 5 came"):
            writer.put_large(document("big"), count, groups(document, "big", ["harbour"] * 5, 2))
        writer.put([document("b")])
    assert set(store.documents()) == {"a", "b"} and verify(store.path).ok


def test_an_error_of_the_passages_stays_itself(store, document) -> None:
    def broken():
        yield from groups(document, "big", ["harbour"] * 4, 2)
        raise KeyError("mine")

    with store.writer() as writer, pytest.raises(KeyError, match="mine"):
        writer.put_large(document("big"), 6, broken())
    assert store.documents() == {}
