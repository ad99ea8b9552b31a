"""A store and the folder it is from: another folder's documents are put out only when that is asked for."""

import re
import shutil
from pathlib import Path

import pytest

from narrows.errors import UsageError
from narrows.serving.indexing import IndexReport, index_folder
from narrows.serving.sources import vanished
from narrows.store import Store, verify


@pytest.fixture
def folder(tmp_path) -> Path:
    root = tmp_path / "first"
    root.mkdir()
    for name in ("a", "b", "c"):
        (root / f"{name}.txt").write_text(f"The boat of {name} was in the town.")
    return root


@pytest.fixture
def other(tmp_path) -> Path:
    """Shares a name with the first folder, not the text."""
    root = tmp_path / "other"
    root.mkdir()
    (root / "a.txt").write_text("Another text.")
    (root / "z.txt").write_text("The bird of z.")
    return root


@pytest.fixture
def store(tmp_path, folder, reader) -> Path:
    index_folder(folder, tmp_path / "s", reader.engine)
    return tmp_path / "s"


def documents(store: Path) -> dict[str, str]:
    with Store.open(store, expect=None) as opened:
        return opened.documents()


def done(report: IndexReport) -> tuple[int, int, int]:
    return report.documents_read, report.documents_unchanged, report.documents_removed


def test_another_folder_is_refused_with_what_it_would_cost(store, folder, other, reader) -> None:
    before = documents(store)
    sentence = (
        f"expected {folder} whose documents the store {store} holds, got {other}, with which 2 documents would be "
        "removed and 1 replaced; index it into another store, or pass --replace (replace=True)"
    )
    for _ in range(2):
        with pytest.raises(UsageError, match=f"^{re.escape(sentence)}$"):
            index_folder(other, store, reader.engine)
        assert documents(store) == before and verify(store).ok
    assert done(index_folder(folder, store, reader.engine)) == (0, 3, 0)


def test_another_folder_takes_the_place_when_asked(store, folder, other, reader) -> None:
    assert done(index_folder(other, store, reader.engine, replace=True)) == (2, 0, 2)
    assert set(documents(store)) == {"a.txt", "z.txt"}
    # From now on it is the other folder's.
    (other / "z.txt").unlink()
    assert done(index_folder(other, store, reader.engine)) == (0, 1, 1)
    with pytest.raises(UsageError, match="with which 0 documents would be removed and 1 replaced"):
        index_folder(folder, store, reader.engine)


def test_the_same_folder_goes_on_removing_what_it_lost(store, folder, reader, monkeypatch) -> None:
    (folder / "a.txt").unlink()
    assert done(index_folder(folder, store, reader.engine)) == (0, 2, 1)
    (folder / "b.txt").unlink()
    monkeypatch.chdir(folder.parent)
    assert done(index_folder(folder.name, store, reader.engine)) == (0, 1, 1)
    Path("link").symlink_to(folder)
    (folder / "c.txt").write_text("Something else.")
    assert done(index_folder("link", store, reader.engine)) == (1, 0, 0)


def test_a_file_is_not_the_folder_it_is_in(store, folder, reader) -> None:
    with pytest.raises(UsageError, match=r"got .*b\.txt, with which 2 documents would be removed; index it into"):
        index_folder(folder / "b.txt", store, reader.engine)


def test_a_folder_that_was_moved_is_followed(store, folder, reader) -> None:
    moved = folder.rename(folder.with_name("moved"))
    (moved / "new.txt").write_text("A new one.")
    assert done(index_folder(moved, store, reader.engine)) == (1, 3, 0)
    (moved / "new.txt").unlink()
    assert done(index_folder(moved, store, reader.engine)) == (0, 3, 1)
    again = moved.rename(folder.with_name("again"))
    (again / "a.txt").unlink()
    with pytest.raises(UsageError, match="with which 1 document would be removed; index it into another store"):
        index_folder(again, store, reader.engine)


def test_what_cannot_be_read_in_a_moved_folder_is_no_loss(store, folder, reader) -> None:
    moved = folder.rename(folder.with_name("moved"))
    (moved / "a.txt").write_bytes(b"\0")
    assert done(index_folder(moved, store, reader.engine)) == (0, 2, 0)
    assert set(documents(store)) == {"a.txt", "b.txt", "c.txt"}


@pytest.mark.parametrize("note", [None, "", "[]", '{"source": 3}'])
def test_a_store_that_does_not_know_its_folder_gives_nothing_away(store, folder, reader, note) -> None:
    (store / "source.json").unlink()
    if note is not None:
        (store / "source.json").write_text(note)
    (folder / "a.txt").unlink()
    with pytest.raises(UsageError, match="^expected the folder whose documents the store .* with which 1 document"):
        index_folder(folder, store, reader.engine)
    assert done(index_folder(folder, store, reader.engine, replace=True)) == (0, 2, 1)


def test_a_run_that_stops_before_its_first_document_leaves_the_folder_noted(tmp_path, folder, reader, monkeypatch):
    def stop(passages):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(reader.engine, "encode_passages", stop)
        index_folder(folder, tmp_path / "t", reader.engine)
    shutil.move(folder / "a.txt", folder / "d.txt")
    assert done(index_folder(folder, tmp_path / "t", reader.engine)) == (3, 0, 0)


def test_what_vanished() -> None:
    known = ["a", "b", "c/d", "c/e", "f#1", "f#2", "f"]
    assert vanished(known, {"a"}, set()) == known[1:]
    assert vanished(known, {"a", "f#1"}, {"c", "f"}) == ["b"]
