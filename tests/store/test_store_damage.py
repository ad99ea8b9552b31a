"""Bytes on disk that are not the bytes that were written."""

import dataclasses
import os
import random
import shutil
import tracemalloc

import pytest

from narrows.errors import NarrowsError, StoreDamagedError, StoreError
from narrows.store import Store, delete, layout, load_whole, rows, verify


@pytest.fixture
def filled(store, document) -> Store:
    with store.writer() as writer:
        writer.put([document("first", ["harbour one", "harbour two"], tokens=50), document("early", ["harbour"])])
        writer.put([document("second", ["harbour three", "harbour four"], tokens=50)])
    return store


def flip(path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)


def test_a_flipped_byte_in_the_states_is_found_and_repaired(filled, document, data_files) -> None:
    second = document("second", ["harbour three", "harbour four"], tokens=50)
    file = data_files(filled)[-1]
    flip(file, file.read_bytes().index(second.passages[1].states) + 77)

    report = verify(filled.path)
    assert [damage.passage_id for damage in report.damages] == ["second:1"]
    assert report.damages[0].reason == (
        "passage 'second:1' is damaged: its checksum differs from the one that was written"
    )
    assert (report.ok, report.passages, report.damaged_documents) == (False, 5, ["second"])
    with Store.open(filled.path, expect=None) as store:
        with pytest.raises(
            StoreDamagedError,
            match="passage 'second:1' in the store .* is damaged: .*run `narrows store verify --repair`",
        ):
            store.take(["second:1"])
        with pytest.raises(StoreDamagedError, match="passage 'second:1'"):
            store.load([hit.row_id for hit in store.search("harbour", 9)])
        assert [passage.text for passage in store.take(["second:0", "first:1"])] == [
            "harbour three",
            "harbour two",
        ]
        with store.writer() as writer:
            assert writer.repair(report) == ["second"]
            assert "second" not in store.documents()
            writer.put([second])
            writer.finish()
        assert store.take(["second:1"])[0].states == second.passages[1].states
    assert verify(filled.path).ok


def test_a_flipped_byte_in_a_vector_is_found(tmp_path, fingerprint, document, data_files) -> None:
    one = document("a", vector_width=64)
    with Store.create(tmp_path / "s", fingerprint, vector_width=64) as store, store.writer() as writer:
        writer.put([one])
        file = data_files(store)[0]
    flip(file, file.read_bytes().index(one.passages[0].vector.tobytes()) + 9)
    (damage,) = verify(tmp_path / "s").damages
    assert "passage 'a:0' is damaged: the checksum of its vector differs" in damage.reason


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.95])
def test_a_truncated_file_loses_only_its_own_rows(filled, document, data_files, keep) -> None:
    file = data_files(filled)[-1]
    content = file.read_bytes()
    file.write_bytes(content[: int(keep * len(content))])

    report = verify(filled.path)
    assert not report.ok and report.passages == 3
    assert [damage.reason for damage in report.damages] == [
        f"2 passages in the file passages.lance/data/{file.name} cannot be read"
    ]
    with Store.open(filled.path, expect=None) as store:
        with pytest.raises(
            StoreDamagedError, match="reading the store .* failed .*run `narrows store verify --repair .*` and"
        ):
            store.documents()
        with store.writer() as writer:
            writer.repair(report)
            assert set(store.documents()) == {"first", "early"}
            writer.put([document("second")])
            writer.finish()
        assert len(store.search("harbour", 9)) == 4
    assert verify(filled.path).ok


def test_a_missing_file_is_reported(filled, data_files) -> None:
    data_files(filled)[0].unlink()
    report = verify(filled.path)
    assert report.passages == 2 and len(report.damages) == 1 and "cannot be read" in report.damages[0].reason


@pytest.mark.parametrize("turns", [10, pytest.param(60, marks=pytest.mark.slow)])
def test_any_flipped_byte_is_an_error_in_one_sentence_or_harmless(filled, tmp_path, data_files, turns) -> None:
    moments = random.Random(0)
    names = [file.relative_to(filled.path) for file in data_files(filled)]
    row_ids = [hit.row_id for hit in filled.search("harbour", 9)]
    before = filled.load(row_ids)
    found = 0
    for turn in range(turns):
        copy = tmp_path / f"copy{turn}"
        shutil.copytree(filled.path, copy)
        file = copy / moments.choice(names)
        flip(file, moments.randrange(file.stat().st_size))
        report = verify(copy)
        found += not report.ok
        assert all("\n" not in damage.reason and len(damage.reason) < 900 for damage in report.damages)
        try:
            with Store.open(copy, expect=None) as store:
                after = store.load(row_ids)
        except NarrowsError:
            continue
        assert [bytes(states) for states in after.states] == [bytes(states) for states in before.states]
        assert after.texts == before.texts and after.ids == before.ids
    assert found > turns // 2


def test_a_document_with_a_missing_passage_is_not_whole(filled) -> None:
    import lance

    lance.dataset(str(filled.path / "passages.lance")).delete("passage_id = 'first:1'")
    (damage,) = verify(filled.path).damages
    assert damage.reason == "document 'first' is not whole: 1 of its 2 passages are there"
    assert damage.document_id == "first"


def test_a_count_of_passages_that_no_document_has_is_damage(filled, document, monkeypatch) -> None:
    append = rows._append_row

    def flipped(columns, *row) -> None:
        append(columns, *row)
        columns["passage_count"][-1] ^= 1 << 30

    monkeypatch.setattr(rows, "_append_row", flipped)
    with filled.writer() as writer:
        writer.put([document("alone", ["harbour"])])
    # In no memory to speak of: a list of as many numbers would end the process.
    tracemalloc.start()
    report = verify(filled.path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert report.damaged_documents == ["alone"] and most < 100_000_000
    assert "document 'alone' is not whole: 1 of its 1,073,741,825 passages are there" in [
        damage.reason for damage in report.damages
    ]


def test_what_is_left_of_a_document_is_replaced(filled, document) -> None:
    import lance

    lance.dataset(str(filled.path / "passages.lance")).delete("passage_id = 'first:0'")
    filled.refresh()
    assert "first" not in filled.documents()
    with filled.writer() as writer:
        writer.put([document("first", ["harbour one", "harbour two"], tokens=50)])
    assert filled.info().passages == 5 and verify(filled.path).ok


def test_states_of_the_wrong_size_are_damage(filled, document) -> None:
    from narrows.store import rows

    one = document("odd", ["text"], tokens=4)
    table = rows.documents_to_table([one], filled.codec, filled.fingerprint.width, 0)
    (row,) = rows.table_to_rows(table)
    row["states"] = row["states"][:-1]
    row["checksum"] = rows.row_checksum(row)
    with pytest.raises(StoreDamagedError, match="its states have 71 bytes for 4 tokens"):
        rows.check_rows([row], filled.codec.bytes_per_token(filled.fingerprint.width), filled.path)


def test_a_damaged_version_file_is_reported(filled) -> None:
    for file in (filled.path / "passages.lance" / "_versions").glob("*.manifest"):
        file.write_bytes(b"not a manifest")
    with pytest.raises(StoreDamagedError, match="reading the store .* failed"):
        Store.open(filled.path, expect=None)
    (damage,) = verify(filled.path).damages
    assert damage.reason.startswith("reading the store")


DAMAGED_MANIFESTS = (
    *("", "[]", '{"format_version": 1}', '{"format_version": "x"}', "\0"),
    # What JSON can hold and Python cannot take.
    *("[" * 100_000, '{"format_version": Infinity}', "1" * 5000),
)


def test_a_damaged_manifest_is_reported(filled) -> None:
    for content in DAMAGED_MANIFESTS:
        (filled.path / "manifest.json").write_text(content)
        for act in (verify, lambda path: Store.open(path, expect=None)):
            with pytest.raises(
                StoreDamagedError,
                match="is not the manifest of a passage store; bring it back from a copy, or run `narrows store",
            ):
                act(filled.path)


@pytest.mark.parametrize("content", ["", "[]", "[" * 100_000, "Infinity", '{"checksum": 1, "files": Infinity}'])
def test_damaged_notes_are_reported(filled, content) -> None:
    for name in ("checksums.json", "source.json"):
        with filled.writer() as writer:
            layout.write_source(filled.path, "library")
            writer.finish()
        (filled.path / name).write_text(content)
        report = verify(filled.path)
        assert [damage.reason for damage in report.damages] == [f"the file {name} is not what was written"]
        with Store.open(filled.path, expect=None) as opened:
            assert opened.info().documents == 3
            with opened.writer() as writer:
                writer.repair(report)
        assert verify(filled.path).ok


def test_a_lost_manifest_is_reported(filled) -> None:
    (filled.path / "manifest.json").unlink()
    for act in (verify, lambda path: Store.open(path, expect=None)):
        with pytest.raises(StoreDamagedError, match="is damaged: its manifest.json is gone; bring it back from a copy"):
            act(filled.path)


@pytest.mark.parametrize("gone", ["passages.lance/_versions", "passages.lance"])
@pytest.mark.parametrize("finished", [True, False])
def test_lost_versions_are_not_an_empty_store(filled, fingerprint, gone, finished) -> None:
    if finished:
        with filled.writer() as writer:
            writer.finish()
    filled.close()
    shutil.rmtree(filled.path / gone)
    kept = sorted(path for path in filled.path.rglob("*") if path.is_file())
    report = verify(filled.path)
    assert report.beyond_repair and not report.ok
    (damage,) = report.damages
    assert damage.reason == (
        f"the store {filled.path} is damaged: it holds passages, but passages.lance/_versions, which says which of "
        "them count, is gone"
    )
    # Nobody writes into it, so that a copy of the folder can be brought back.
    with pytest.raises(StoreDamagedError, match="is gone; bring it back from a copy, or run `narrows store delete`"):
        Store.open(filled.path, expect=fingerprint)
    assert sorted(path for path in filled.path.rglob("*") if path.is_file()) == kept
    (filled.path / "manifest.json").unlink()
    with pytest.raises(StoreError, match="holds something already"):
        Store.create(filled.path, fingerprint)


@pytest.mark.parametrize(
    "manifest", [*DAMAGED_MANIFESTS, None, '{"format": "narrows passage store", "format_version": 99}']
)
def test_a_damaged_store_can_be_deleted(filled, manifest) -> None:
    filled.close()
    (filled.path / "manifest.json").unlink()
    if manifest is not None:
        (filled.path / "manifest.json").write_text(manifest)
    (filled.path / "notes.txt").write_text("mine")
    with pytest.raises(StoreError, match="notes.txt' in it; move it away first|is not a passage store"):
        delete(filled.path)
    assert (filled.path / "notes.txt").read_text() == "mine" and (filled.path / "passages.lance" / "data").is_dir()
    (filled.path / "notes.txt").unlink()
    delete(filled.path)
    assert not filled.path.exists()


@pytest.mark.parametrize("damaged", [False, True])
def test_a_deletion_that_is_killed_can_be_done_again(filled, monkeypatch, damaged) -> None:
    """Killed at each of its steps in turn; an empty folder is no store any more."""
    with filled.writer() as writer:
        layout.write_source(filled.path, "library")
        writer.finish()
    filled.close()
    if damaged:
        (filled.path / "passages.lance" / "_versions").rename(filled.path / "passages.lance" / "_refs")
    whole = filled.path.with_name("whole")
    filled.path.rename(whole)
    for steps in range(100):
        shutil.copytree(whole, filled.path)
        left = [steps]

        def counted(real, left=left):
            def act(*arguments, **options):
                if not left[0]:
                    raise KeyboardInterrupt
                left[0] -= 1
                return real(*arguments, **options)

            return act

        with monkeypatch.context() as killed:
            for name in ("unlink", "rmdir"):
                killed.setattr(os, name, counted(getattr(os, name)))
            try:
                delete(filled.path)
            except KeyboardInterrupt:
                pass
            else:
                assert steps > 10
                break
        if list(filled.path.iterdir()):
            delete(filled.path)
        else:
            filled.path.rmdir()


def test_a_store_without_versions_can_be_deleted(filled) -> None:
    filled.close()
    shutil.rmtree(filled.path / "passages.lance" / "_versions")
    delete(filled.path)
    assert not filled.path.exists()


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        ({"manifest.json": '{"name": "my app", "icons": []}'}, "may be another program's folder; look into it, and"),
        ({"manifest.json": "", "writer.lock": ""}, "has a readable manifest.json or passages, but .* has neither"),
        ({"manifest.json": "", "passages.lance/mine.txt": "x"}, "has a readable manifest.json or passages, but"),
        ({"passages.lance/data/a.lance": "x", "report.docx": "x"}, "is not a passage store: it has no manifest.json"),
        ({"manifest.json": '{"format": "narrows passage store"}', "report.docx": "x"}, "'report.docx' in it; move it"),
    ],
)
def test_what_may_be_another_programs_folder_is_never_deleted(tmp_path, names, sentence) -> None:
    for name, content in names.items():
        (tmp_path / "f" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "f" / name).write_text(content)
    with pytest.raises(StoreError, match=sentence):
        delete(tmp_path / "f")
    assert {name: (tmp_path / "f" / name).read_text() for name in names} == names
    outside = tmp_path / "outside"
    (outside / "data").mkdir(parents=True)
    shutil.rmtree(tmp_path / "f")
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "passages.lance").symlink_to(outside)
    with pytest.raises(StoreError):
        delete(tmp_path / "f")
    assert (outside / "data").is_dir()


def test_mistakes_in_our_own_code_are_not_taken_for_damage(filled) -> None:
    from narrows.store.layout import lance_errors

    with pytest.raises(TypeError), lance_errors(filled.path, "reading"):
        raise TypeError("ours")
    with pytest.raises(KeyboardInterrupt), lance_errors(filled.path, "reading"):
        raise KeyboardInterrupt
    with pytest.raises(dataclasses.FrozenInstanceError):
        verify(filled.path).documents = 3


def test_what_is_whole_among_damaged_passages_is_loaded(filled, data_files) -> None:
    row_ids = [hit.row_id for hit in filled.search("harbour", 9)]
    whole = filled.load(row_ids)
    cut = data_files(filled)[-1]
    cut.write_bytes(cut.read_bytes()[:-50])
    with Store.open(filled.path, expect=None) as store:
        with pytest.raises(StoreDamagedError, match="reading the store"):
            store.load(row_ids)
        places, loaded, left_out = load_whole(store, row_ids)
        assert sorted(loaded.ids) == ["early:0", "first:0", "first:1"] and len(places) == 3
        for name, states in zip(loaded.ids, loaded.states, strict=True):
            assert bytes(states) == bytes(whole.states[whole.ids.index(name)])
        assert left_out[:3] == (2, [], 2)
        lost = [row_id for place, row_id in enumerate(row_ids) if place not in places]
        with pytest.raises(StoreDamagedError, match="reading the store"):
            load_whole(store, lost)
        assert load_whole(store, []).loaded.ids == []


def test_damaged_passages_are_left_out_by_the_names_of_their_documents(filled, document, data_files) -> None:
    second = document("second", ["harbour three", "harbour four"], tokens=50)
    file = data_files(filled)[-1]
    flip(file, file.read_bytes().index(second.passages[1].states) + 77)
    with Store.open(filled.path, expect=None) as store:
        _, loaded, left_out = load_whole(store, store.first(9))
        assert sorted(loaded.ids) == ["early:0", "first:0", "first:1", "second:0"]
        assert left_out[:3] == (1, ["second"], 0)
        store_path = str(filled.path)
        assert left_out.mend == (
            f"run `narrows store verify --repair {store_path}` and then `narrows index FOLDER -o {store_path}`"
        )


@pytest.mark.parametrize(
    ("back", "named", "nameless"),
    # From the end: the list of columns, which makes all unreadable; what says how the columns behind the names lie.
    [(50, [], 2), (800, ["second"], 0)],
)
def test_documents_of_an_unreadable_file_are_named_or_their_passages_counted(
    filled, data_files, back, named, nameless
) -> None:
    file = data_files(filled)[-1]
    content = bytearray(file.read_bytes())
    content[-back : 30 - back] = b"\xff" * 30
    file.write_bytes(content)
    report = verify(filled.path)
    assert len(report.unreadable_fragments) == 1 and report.damaged_documents == []
    assert (report.lost_documents, report.nameless_passages) == (named, nameless)
    with Store.open(filled.path, expect=None) as store, store.writer() as writer:
        assert writer.repair(report) == named
        assert set(store.documents()) == {"first", "early"}
    assert verify(filled.path).ok
