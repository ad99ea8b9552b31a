import dataclasses
import json
import os
import stat

import numpy as np
import pytest
import torch

from narrows.errors import StoreError, StoreMismatchError, UsageError
from narrows.store import CODEC_NAMES, Store, StoredPassage, delete, verify


def same(one: StoredPassage, other: StoredPassage) -> bool:
    """Whether all fields are equal, byte for byte."""
    for field in dataclasses.fields(StoredPassage):
        left, right = getattr(one, field.name), getattr(other, field.name)
        if isinstance(left, np.ndarray):
            if left.dtype != right.dtype or left.tobytes() != right.tobytes():
                return False
        elif left != right:
            return False
    return True


@pytest.mark.parametrize("codec", CODEC_NAMES)
@pytest.mark.parametrize("vector_width", [0, 5])
def test_what_is_put_is_taken(tmp_path, fingerprint, document, codec, vector_width) -> None:
    fingerprint = dataclasses.replace(fingerprint, codec=codec)
    ids = ["plain", 'o\'brien "q" \\ %.md', "日本/ü😀", "a:1:0"]
    documents = [document(id, codec=codec, vector_width=vector_width) for id in ids]
    with Store.create(tmp_path / "s", fingerprint, vector_width=vector_width) as store:
        with store.writer() as writer:
            writer.put(documents)
            writer.finish()
        assert store.documents() == {id: "1" * 64 for id in ids}
    with Store.open(tmp_path / "s", expect=fingerprint) as store:
        for one in documents:
            taken = store.take([passage.passage_id for passage in one.passages])
            assert all(same(*pair) for pair in zip(one.passages, taken, strict=True))
    assert verify(tmp_path / "s").ok


def test_load_keeps_the_order_and_gives_what_the_codec_reads(store, document) -> None:
    documents = [document(f"d{n}", tokens=3 + n) for n in range(4)]
    with store.writer() as writer:
        for one in documents:
            writer.put([one])
    hits = store.search("clock", 10)
    assert len(hits) == 4
    row_ids = [hit.row_id for hit in hits][::-1]
    loaded = store.load(row_ids + row_ids[:1])
    by_id = {p.passage_id: p for one in documents for p in one.passages}
    assert len(loaded.ids) == 5 and len(set(loaded.ids)) == 4 and loaded.ids[0] == loaded.ids[-1]
    for n, passage_id in enumerate(loaded.ids):
        passage = by_id[passage_id]
        assert bytes(loaded.states[n]) == passage.states
        assert loaded.token_ids[n].tolist() == passage.token_ids.tolist()
        assert loaded.lengths[n] == len(passage.token_ids)
        assert (loaded.texts[n], loaded.titles[n]) == (passage.text, passage.title)
        assert (loaded.starts[n], loaded.ends[n]) == (passage.start, passage.end)
        assert loaded.documents[n] == passage.document_id
    padded = store.codec.decode_padded(loaded.states, loaded.lengths, store.fingerprint.width)
    assert padded.shape == (5, 6, 16) and torch.isfinite(padded).all()
    assert same(store.take(row_ids)[0], by_id[loaded.ids[0]])


def test_nothing_asked_nothing_given(store) -> None:
    assert store.take([]) == [] and store.load([]).ids == []
    assert store.documents() == {} and store.search("clock", 3) == []
    with store.writer() as writer:
        writer.put([])
        writer.remove([])
        writer.finish()
    assert store.search("clock", 3) == [] and store.info().passages == 0


def test_a_document_is_replaced_in_one_version(store, document) -> None:
    with store.writer() as writer:
        writer.put([document("a", ["one", "two", "three"]), document("b", ["bee"])])
        store.refresh()
        before = store.version
        shorter = document("a", ["new one", "new two"], sha256="2" * 64)
        writer.put([shorter, document("c", ["sea"])])
        store.refresh()
        assert store.version == before + 1
        assert store.documents() == {"a": "2" * 64, "b": "1" * 64, "c": "1" * 64}
        assert store.info().passages == 4
        assert same(store.take(["a:1"])[0], shorter.passages[1])
        for unsayable in (["caf\udce9:0"], ["a:0", "caf\udce9:0"]):
            with pytest.raises(UsageError, match=r"passage 'caf\\udce9:0' is not in the store"):
                store.take(unsayable)
        with pytest.raises(UsageError, match="passage 'a:2' is not in the store"):
            store.take(["a:2"])
        writer.put([document("a", ["w", "x", "y", "z"], sha256="3" * 64)])
    assert store.info().passages == 6
    assert verify(store.path).ok


def test_removing(store, document) -> None:
    with store.writer() as writer:
        writer.put([document("a"), document("it's")])
        writer.remove(["it's"])
        with pytest.raises(UsageError, match="document 'nope' is not in the store"):
            writer.remove(["nope"])
        writer.finish()
    assert list(store.documents()) == ["a"]
    assert verify(store.path).ok


def test_info_counts(store, document) -> None:
    with store.writer() as writer:
        writer.put([document("a", ["é"], tokens=3), document("b", ["xy", "z"], tokens=2)])
    info = store.info()
    assert (info.documents, info.passages, info.tokens, info.bytes_text) == (2, 3, 7, 5)
    assert info.bytes_states == 7 * 18
    assert info.bytes_on_disk > info.bytes_states
    assert (info.codec, info.fingerprint, info.format_version) == ("int8", store.fingerprint, 1)


def test_many_commits_are_joined_and_old_versions_dropped(store, document, data_files) -> None:
    with store.writer() as writer:
        for n in range(34):
            writer.put([document(f"d{n}")])
        assert len(data_files(store)) == 34
        writer.finish()
    assert len(data_files(store)) == 1
    assert len(store.documents()) == 34 and verify(store.path).ok
    assert len(store.search("harbour", 50)) == 34


def test_a_row_of_another_snapshot_is_refused(store, document) -> None:
    with store.writer() as writer:
        writer.put([document("a")])
    for row_id in (-1, 2, 7 << 32):
        with pytest.raises(UsageError, match="expected 1 row, but the snapshot of .* has 0 of them; use row ids"):
            store.load([row_id])


def test_two_kinds_of_ids_at_once_are_refused(store) -> None:
    with pytest.raises(UsageError, match="by row ids or by passage ids, but got 'a:0' beside 0"):
        store.take([0, "a:0"])


def test_documents_that_cannot_be_kept(store, document) -> None:
    one = document("a")

    def broken(**change) -> None:
        passage = dataclasses.replace(one.passages[0], **change)
        writer.put([dataclasses.replace(one, passages=[passage])])

    with store.writer() as writer:
        with pytest.raises(UsageError, match="'a' comes twice"):
            writer.put([one, one])
        with pytest.raises(UsageError, match="'a' has 0 passages"):
            writer.put([dataclasses.replace(one, passages=[])])
        with pytest.raises(UsageError, match="passage 0 of document 'a' has to have the id 'a:0', but it is 'a:9'"):
            broken(passage_id="a:9")
        with pytest.raises(UsageError, match="int32 array .* but passage 'a:0' has an array of int64 of shape"):
            broken(token_ids=np.arange(3))
        with pytest.raises(UsageError, match="have to take 54 bytes for 3 tokens, but take 5"):
            broken(token_ids=np.arange(3, dtype=np.int32), states=b"12345")
        with pytest.raises(UsageError, match="0 <= start <= end, but are 5 and 4"):
            broken(start=5, end=4)
        with pytest.raises(UsageError, match="the store has no vectors, but passage 'a:0' has one"):
            broken(vector=np.ones(4, dtype=np.float16))
        with pytest.raises(UsageError, match=r"valid Unicode, but document 'a' contains '\\udc80'"):
            broken(text="x\udc80")
    assert store.documents() == {}


def test_vectors_that_cannot_be_kept(tmp_path, fingerprint, document) -> None:
    with Store.create(tmp_path / "s", fingerprint, vector_width=3) as store, store.writer() as writer:
        for vector in (None, np.ones(4, dtype=np.float16), np.array([1, 1, 1e6], dtype=np.float32)):
            one = document("a", ["text"])
            passage = dataclasses.replace(one.passages[0], vector=vector)
            with pytest.raises(UsageError, match="needs a vector of 3 finite float16 numbers"):
                writer.put([dataclasses.replace(one, passages=[passage])])


def test_closed_stores_and_writers_say_so(store, document) -> None:
    writer = store.writer()
    for use in (lambda: writer.put([document("a")]), lambda: writer.remove(["a"]), writer.finish):
        with pytest.raises(UsageError, match="inside its with block only"):
            use()
    store.close()
    store.close()
    for use in (store.documents, store.refresh, store.writer, lambda: store.load([0])):
        with pytest.raises(UsageError, match="is closed"):
            use()


def test_another_model_is_refused_by_name(store, fingerprint) -> None:
    model = dataclasses.replace(fingerprint, split_layer=3, codec="fp16")
    with pytest.raises(
        StoreMismatchError,
        match="by another model: split layer 4 in the store, 3 in the model; codec int8 in the store, fp16",
    ):
        Store.open(store.path, expect=model)
    with Store.open(store.path, expect=None) as other:
        assert other.fingerprint == fingerprint


def test_what_is_no_store_is_refused(tmp_path, store, fingerprint) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "notes.txt").write_text("x")
    for act in (lambda path: Store.open(path, expect=None), verify, delete):
        with pytest.raises(StoreError, match="but nothing is there; create it with"):
            act(tmp_path / "missing")
        with pytest.raises(StoreError, match="is a file"):
            act(file)
        with pytest.raises(StoreError, match="is not a passage store: it has no manifest.json"):
            act(folder)
    with pytest.raises(StoreError, match="holds something already"):
        Store.create(folder, fingerprint)
    with pytest.raises(StoreError, match="holds something already"):
        Store.create(store.path, fingerprint)
    with pytest.raises(StoreError, match="cannot be created at"):
        Store.create(file / "below", fingerprint)
    assert (folder / "notes.txt").read_text() == "x"


def test_stores_that_cannot_be_are_refused(tmp_path, fingerprint) -> None:
    with pytest.raises(UsageError, match="got 16 and -1"):
        Store.create(tmp_path / "s", fingerprint, vector_width=-1)
    with pytest.raises(UsageError, match="a codec is one of"):
        Store.create(tmp_path / "s", dataclasses.replace(fingerprint, codec="zip"))
    with pytest.raises(UsageError, match="writes stores of format version 1, but the fingerprint asks for 2"):
        Store.create(tmp_path / "s", dataclasses.replace(fingerprint, format_version=2))
    assert not (tmp_path / "s").exists()


def test_a_newer_format_is_refused(store) -> None:
    manifest = store.path / "manifest.json"
    content = json.loads(manifest.read_text())
    content["format_version"] = 99
    manifest.write_text(json.dumps(content))
    with pytest.raises(StoreMismatchError, match="has format version 99, but this narrows reads up to 1; upgrade"):
        Store.open(store.path, expect=None)


def test_a_folder_without_permission(store) -> None:
    mode = stat.S_IMODE(os.stat(store.path).st_mode)
    root = os.geteuid() == 0
    os.chmod(store.path, 0)
    if root:
        os.seteuid(65534)
    try:
        for act in (lambda path: Store.open(path, expect=None), verify, delete):
            with pytest.raises(StoreError, match=r"cannot be read \(Permission denied\); check its permissions"):
                act(store.path)
        with pytest.raises(StoreError, match="cannot be written to .Permission denied"), store.writer():
            pass
    finally:
        if root:
            os.seteuid(0)
        os.chmod(store.path, mode)


def test_deleting(store, document) -> None:
    from narrows.errors import StoreBusyError

    with store.writer() as writer:
        writer.put([document("a")])
        with pytest.raises(StoreBusyError, match="takes one writer at a time"):
            delete(store.path)
    with pytest.raises(StoreBusyError, match="is being read and cannot be deleted"):
        delete(store.path)
    store.close()
    note = store.path / "note.txt"
    note.write_text("mine")
    with pytest.raises(StoreError, match="has 'note.txt' in it; move it away first"):
        delete(store.path)
    note.unlink()
    delete(store.path)
    assert not store.path.exists()


@pytest.mark.parametrize(
    ("locked", "rights"),
    [
        (".", 0o555),
        ("passages.lance", 0o555),
        ("passages.lance/data", 0o555),
        ("passages.lance/data", 0),
        ("..", 0o555),
    ],
)
def test_a_store_that_cannot_be_deleted_whole_stays_whole(store, document, locked, rights) -> None:
    with store.writer() as writer:
        writer.put([document("a")])
    store.close()
    folder = store.path / locked
    mode = stat.S_IMODE(os.stat(folder).st_mode)
    root = os.geteuid() == 0
    # The user without rights owns all but the one folder.
    for path in (store.path.parent, store.path, *store.path.rglob("*")) if root else ():
        if path.resolve() != folder.resolve():
            os.chown(path, 65534, -1)
    os.chmod(folder, rights)
    above = [path for path in store.path.parents if root and not path.stat().st_mode & stat.S_IXOTH]
    modes = [stat.S_IMODE(path.stat().st_mode) for path in above]
    for path in above:
        os.chmod(path, 0o711)
    if root:
        os.seteuid(65534)
    try:
        with pytest.raises(
            StoreError, match=r"cannot be deleted \(no permission to remove what is in .*check its perm"
        ):
            delete(store.path)
    finally:
        if root:
            os.seteuid(0)
        for path, former in zip(above, modes, strict=True):
            os.chmod(path, former)
        os.chmod(folder, mode)
    report = verify(store.path)
    assert report.ok and report.documents == 1
    delete(store.path)
    assert not store.path.exists()


def test_a_link_to_a_store_is_not_deleted_by_halves(store, document, tmp_path) -> None:
    with store.writer() as writer:
        writer.put([document("a")])
    store.close()
    link = tmp_path / "link"
    link.symlink_to(store.path)
    with pytest.raises(StoreError, match=r"but .*link is a link to .*; delete that and remove the link"):
        delete(link)
    report = verify(store.path)
    assert report.ok and report.documents == 1
