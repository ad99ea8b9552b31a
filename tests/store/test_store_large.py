"""A document whose passages come in groups, and are never in memory together."""

import weakref

import pyarrow as pa
import pytest

from narrows.errors import StoreError, UsageError
from narrows.store import Store, tidying, verify
from narrows.store import writer as writing


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


@pytest.fixture
def small_fragments(monkeypatch) -> None:
    """Every group of a large document fills a file of its own."""
    monkeypatch.setattr(writing, "_BYTES_PER_FRAGMENT", 1)


def files_of(path) -> set[str]:
    dataset = path / "passages.lance"
    return {str(file) for name in ("data", "_deletions") for file in (dataset / name).glob("*")}


def everything(store) -> dict[str, bytes]:
    ids = [row["passage_id"] for row in store._scan(columns=["passage_id"]).to_pylist()]
    return {passage.passage_id: passage.text.encode() + bytes(passage.states) for passage in store.take(ids)}


@pytest.mark.parametrize("there_before", [False, True], ids=["new", "in place of another"])
def test_passages_do_not_wait_in_memory_for_the_last_of_them(store, document, monkeypatch, there_before) -> None:
    limit = 200_000
    monkeypatch.setattr(writing, "_BYTES_PER_FRAGMENT", limit)
    pool = pa.default_memory_pool()
    alive: weakref.WeakSet = weakref.WeakSet()
    most_alive, most_bytes = 0, 0

    def observed():
        nonlocal most_alive, most_bytes
        before = pool.bytes_allocated()
        for start in range(0, 400, 10):
            group = document("big", ["harbour"] * 400, tokens=100).passages[start : start + 10]
            alive.update(group)
            yield group
            del group
            most_alive = max(most_alive, len(alive))
            most_bytes = max(most_bytes, pool.bytes_allocated() - before)

    with store.writer() as writer:
        if there_before:
            writer.put([document("big", ["harbour"] * 400, sha256="2" * 64, tokens=100)])
        writer.put_large(document("big"), 400, observed())
    # All passages take 880,000 bytes.
    assert most_alive <= 20 and most_bytes < 2.5 * limit
    assert store.info().passages == 400 and verify(store.path).ok


@pytest.mark.usefixtures("small_fragments")
def test_replacing_touches_only_the_rows_of_the_document(store, document) -> None:
    with store.writer() as writer:
        # Its passages share files with others, fill files alone, and lie in files that were joined.
        writer.put([document("a"), document("big", ["clock"] * 3), document("z")])
        writer.finish()
        store.refresh()
        kept = {name: value for name, value in everything(store).items() if not name.startswith("big")}
        for turn, count in enumerate([5, 2, 7]):
            texts = [f"harbour {turn} {number}" for number in range(count)]
            writer.put_large(document("big", sha256=f"{turn}" * 64), count, groups(document, "big", texts, 2))
            store.refresh()
            now = everything(store)
            assert {name: value for name, value in now.items() if not name.startswith("big")} == kept
            assert {name for name in now if name.startswith("big")} == {f"big:{number}" for number in range(count)}
            assert len(store.search("harbour", 50)) == count + 2 and len(store.search(str(turn), 50)) == count
            assert verify(store.path).ok
            if turn == 1:
                writer.finish()
        writer.finish()
    assert everything(store).keys() == now.keys() and len(store.search("harbour", 50)) == 9
    assert verify(store.path).ok


@pytest.mark.usefixtures("small_fragments")
@pytest.mark.parametrize("error", [KeyError("mine"), KeyboardInterrupt(), MemoryError("none left")], ids=repr)
def test_what_breaks_off_leaves_the_document_that_was_there(store, document, error) -> None:
    def broken(moment: int):
        for number, group in enumerate(groups(document, "big", ["clock"] * 6, 1)):
            if number == moment:
                raise error
            yield group

    with store.writer() as writer:
        writer.put([document("a")])
        writer.put_large(document("big"), 4, groups(document, "big", ["harbour"] * 4, 2))
        writer.finish()
        store.refresh()
        before, files = everything(store), files_of(store.path)
        for moment in range(6):
            with pytest.raises(type(error)):
                writer.put_large(document("big", sha256="2" * 64), 6, broken(moment))
            store.refresh()
            assert everything(store) == before and store.documents()["big"] == "1" * 64
            assert verify(store.path).ok
        assert files_of(store.path) > files
        writer.finish()
        # What was written in vain leaves the disk.
        assert files_of(store.path) == files
        writer.put_large(document("big", sha256="2" * 64), 6, groups(document, "big", ["clock"] * 6, 1))
    assert store.documents()["big"] == "2" * 64 and verify(store.path).ok


@pytest.mark.usefixtures("small_fragments")
def test_a_commit_that_fails_leaves_the_documents_that_were_there(store, document, monkeypatch) -> None:
    import lance

    with store.writer() as writer:
        writer.put([document("a"), document("big")])
        writer.finish()
        store.refresh()
        before, files = everything(store), files_of(store.path)

        def fail(*_, **__):
            raise OSError("No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(lance.LanceDataset, "commit", fail)
            with pytest.raises(StoreError, match="No space left on device.* everything committed before is intact"):
                writer.put_large(document("big", sha256="2" * 64), 5, groups(document, "big", ["clock"] * 5, 2))
            with pytest.raises(StoreError, match="No space left on device"):
                writer.put([document("a", ["clock"], sha256="2" * 64)])
        store.refresh()
        assert everything(store) == before and verify(store.path).ok
        writer.put([document("a", ["clock"], sha256="2" * 64)])
        writer.finish()
    assert store.documents() == {"a": "2" * 64, "big": "1" * 64} and verify(store.path).ok
    # What was written in vain leaves the disk, the marks on rows that were to go as well.
    assert len(files_of(store.path)) <= len(files) + 1


@pytest.mark.usefixtures("small_fragments")
def test_many_files_of_a_large_document_are_joined(store, document, monkeypatch) -> None:
    monkeypatch.setattr(tidying, "_BYTES_OF_BATCH", 1)
    with store.writer() as writer:
        writer.put_large(document("big"), 40, groups(document, "big", ["harbour"] * 40, 1))
        store.refresh()
        before, many = everything(store), len(files_of(store.path))
        writer.finish()
        store.refresh()
        assert many == 40 and len(files_of(store.path)) == 1
        assert everything(store) == before and len(store.search("harbour", 50)) == 40
    with Store.open(store.path, expect=None) as again:
        assert everything(again) == before
    assert verify(store.path).ok
