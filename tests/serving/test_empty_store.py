"""A store without passages: it answers no question, and a refused run leaves none behind."""

import json
import os
import re
import shlex
from pathlib import Path

import pytest

from narrows.cli.main import main
from narrows.errors import DocumentError, StoreBusyError, StoreError, UsageError
from narrows.serving.indexing import index_folder
from narrows.store import Store, verify


@pytest.fixture
def folder(tmp_path) -> Path:
    root = tmp_path / "my library"
    root.mkdir()
    (root / "a.txt").write_text("The boat was in the town.")
    return root


def killed(folder: Path, path: Path, reader, monkeypatch) -> None:
    def stop(passages):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(reader.engine, "encode_passages", stop)
        index_folder(folder, path, reader.engine)


def born(folder: Path, path: Path, reader, monkeypatch) -> None:
    Store.create(path, reader.engine.fingerprint("int8")).close()


def emptied(folder: Path, path: Path, reader, monkeypatch) -> None:
    index_folder(folder, path, reader.engine)
    with Store.open(path, expect=None) as store, store.writer() as writer:
        writer.remove(list(store.documents()))
        writer.finish()


def without_words(folder: Path, path: Path, reader, monkeypatch) -> None:
    text = (folder / "a.txt").read_text()
    (folder / "a.txt").write_text("\u200b\n")
    assert index_folder(folder, path, reader.engine).documents_read == 0
    (folder / "a.txt").write_text(text)


@pytest.mark.parametrize("make", [killed, born, emptied, without_words])
def test_an_empty_store_is_said_to_be_empty(
    tmp_path, folder, reader, tiny_reader_folder, monkeypatch, capsys, make
) -> None:
    path = tmp_path / "s"
    make(folder, path, reader, monkeypatch)
    assert verify(path).ok
    named = "FOLDER" if make is born else shlex.quote(str(folder))
    sentence = f"the store {path} holds no passages yet; run `narrows index {named} -o {path}` to fill it"
    for retrieval in ("bm25", "dense", "both"):
        with pytest.raises(StoreError, match=f"^{re.escape(sentence)}$"):
            reader.ask(path, "Where was the boat?", retrieval=retrieval)
    with Store.open(path, expect=None) as store, pytest.raises(StoreError, match="holds no passages yet"):
        reader.ask(store, "Where was the boat?")
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"id": 1, "question": "Where was the boat?"}\n')
    for asked in (["Where was the boat?"], ["--file", str(questions)], []):
        capsys.readouterr()
        assert main(["ask", str(path), *asked, "--model", str(tiny_reader_folder), "--json"]) == 1
        out, err = capsys.readouterr()
        assert out == "" and err == f"narrows: error: {sentence}\n"
    index_folder(folder, path, reader.engine)
    assert reader.ask(path, "Where was the boat?").candidates == 1


def unreadable(folder: Path) -> None:
    (folder / "a.txt").write_bytes(b"\0")


@pytest.mark.parametrize("there", [False, True])
def test_a_refused_run_makes_nothing(tmp_path, folder, reader, there) -> None:
    unreadable(folder)
    path = tmp_path / "new" / "stores" / "s"
    if there:
        path.mkdir(parents=True)
    with pytest.raises(DocumentError):
        index_folder(folder, path, reader.engine)
    assert (path.is_dir() and os.listdir(path) == []) if there else not (tmp_path / "new").exists()


def test_states_that_the_codec_refuses_make_nothing(tmp_path, folder, reader, monkeypatch) -> None:
    def refuse(passages):
        raise UsageError("states to store have to be finite")

    monkeypatch.setattr(reader.engine, "encode_passages", refuse)
    with pytest.raises(UsageError, match="have to be finite"):
        index_folder(folder, tmp_path / "new" / "s", reader.engine)
    assert not (tmp_path / "new").exists()


def test_what_was_written_before_a_refusal_stays(tmp_path, folder, reader, monkeypatch) -> None:
    from narrows.serving import indexing

    encode, calls = reader.engine.encode_passages, []

    def refuse_the_second(passages):
        calls.append(len(passages))
        if len(calls) > 1:
            raise UsageError("states to store have to be finite")
        return encode(passages)

    (folder / "b.txt").write_text("The bird was there.")
    monkeypatch.setattr(indexing, "_GROUP_TOKENS", 1)
    monkeypatch.setattr(reader.engine, "encode_passages", refuse_the_second)
    with pytest.raises(UsageError, match="have to be finite"):
        index_folder(folder, tmp_path / "s", reader.engine)
    assert verify(tmp_path / "s").documents == 1


def test_a_store_that_another_process_makes_is_left_alone(tmp_path, folder, reader) -> None:
    path = tmp_path / "s"
    with Store.create(path, reader.engine.fingerprint("int8")) as store, store.writer():
        with pytest.raises(StoreBusyError):
            index_folder(folder, path, reader.engine)
        assert (path / "manifest.json").exists()


@pytest.mark.parametrize(("name", "what"), [(b"a\nb", r"'\n' is a control character"), (b"st\xfe", "is not UTF-8")])
def test_a_path_that_cannot_be_is_refused_before_anything_is_made(
    tmp_path, folder, tiny_reader_folder, capsys, name, what
) -> None:
    path = os.path.join(str(tmp_path), os.fsdecode(name), "s")
    assert main(["index", str(folder), "-o", path, "--model", str(tiny_reader_folder), "-q"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and what in err and "choose another path" in err
    assert os.listdir(tmp_path) == [folder.name]


def test_paths_of_many_kinds_can_be_indexed_and_asked(tmp_path, folder, tiny_reader_folder, capsys) -> None:
    for name in ("a b", 'it\'s "quoted"', "100%", "a%20b", "what?#now", "日本 é"):
        path = str(tmp_path / name)
        assert main(["index", str(folder), "-o", path, "--model", str(tiny_reader_folder), "-q"]) == 0
        capsys.readouterr()
        assert main(["ask", path, "Where was the boat?", "--model", str(tiny_reader_folder), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["candidates"] == 1
