"""`narrows index` from the command line: what it prints, and how bad input ends."""

import json
import os
from pathlib import Path

import pytest

from narrows.cli.index import duration, size
from narrows.cli.main import main


@pytest.fixture(scope="module")
def checkpoint(tiny_bert, tmp_path_factory) -> Path:
    from transformers import AutoTokenizer

    from narrows.deformer.convert import convert_checkpoint

    folder = tmp_path_factory.mktemp("tiny-deformer")
    model, _ = convert_checkpoint(tiny_bert, split_layer=3, task="question-answering", max_passage_tokens=60)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(tmp_path) -> Path:
    root = tmp_path / "library"
    root.mkdir()
    (root / "river.txt").write_text("The boat went down the river. The clock stood still.")
    (root / "birds.md").write_text("# Birds\n\nTwo birds sat on a stone.\n")
    return root


def index(*arguments: object) -> int:
    return main(["index", *map(str, arguments)])


def test_what_was_indexed_is_printed(tmp_path, folder, checkpoint, capsys) -> None:
    (folder / "picture.png").write_bytes(b"\x89PNG")
    assert index(folder, "-o", tmp_path / "s", "--model", checkpoint) == 0
    shown = capsys.readouterr()
    assert "read 2 documents" in shown.out and "(0 unchanged, 0 removed, 1 skipped)" in shown.out
    assert "holds 2 documents, 2 passages" in shown.out and "(int8) beside" in shown.out
    assert "skipped: expected a .txt, .md, .html or .jsonl file, but picture.png" in shown.err
    assert index(folder, "-o", tmp_path / "s", "--model", checkpoint, "--quiet") == 0
    shown = capsys.readouterr()
    assert "read 0 documents" in shown.out and "2 unchanged" in shown.out and shown.err == ""


def test_json(tmp_path, folder, checkpoint, capsys) -> None:
    assert index(folder, "-o", tmp_path / "s", "--model", checkpoint, "--json", "--quiet") == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["documents_read"], report["passages"], report["skipped"]) == (2, 2, [])
    assert report["store"]["documents"] == 2
    assert report["store"]["bytes_states"] == report["tokens"] * (24 + 2)


def test_a_store_of_another_codec_is_refused_in_one_sentence(tmp_path, folder, checkpoint, capsys) -> None:
    index(folder, "-o", tmp_path / "s", "--model", checkpoint, "--quiet")
    capsys.readouterr()
    assert index(folder, "-o", tmp_path / "s", "--model", checkpoint, "--codec", "fp32", "--quiet") == 1
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1 and "codec int8 in the store, fp32 in the model" in shown


def test_nothing_that_could_be_indexed(tmp_path, folder, checkpoint, capsys) -> None:
    for path in folder.iterdir():
        path.write_text("\u200b")
    assert index(folder, "-o", tmp_path / "s", "--model", checkpoint, "--quiet") == 1
    capsys.readouterr()
    (tmp_path / "empty").mkdir()
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    for wrong, words in ((tmp_path / "empty", "holds none"), (tmp_path / "picture.png", "suffix '.png'")):
        assert index(wrong, "-o", tmp_path / "t", "--model", checkpoint, "--quiet") == 2
        shown = capsys.readouterr().err
        assert shown.count("\n") == 1 and words in shown and not (tmp_path / "t").exists()


def test_a_store_path_that_is_a_file(tmp_path, folder, checkpoint, capsys) -> None:
    (tmp_path / "file").write_text("x")
    assert index(folder, "-o", tmp_path / "file", "--model", checkpoint, "--quiet") == 1
    assert "a passage store is a folder" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_no_permission(tmp_path, folder, checkpoint, capsys) -> None:
    (folder / "river.txt").chmod(0)
    assert index(folder, "-o", tmp_path / "s", "--model", checkpoint) == 0
    assert "river.txt could not be opened (Permission denied)" in capsys.readouterr().err
    (tmp_path / "locked").mkdir(mode=0o500)
    assert index(folder, "-o", tmp_path / "locked" / "s", "--model", checkpoint, "--quiet") == 1
    assert "cannot be created" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0 bytes"), (999, "999 bytes"), (11_600_000, "11.6 MB"), (2e15, "2000.0 TB")]
)
def test_sizes(number, shown) -> None:
    assert size(number) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.04, "0.0 s"), (59.9, "59.9 s"), (61, "1 min 01 s"), (7260, "2 h 01 min")]
)
def test_durations(seconds, shown) -> None:
    assert duration(seconds) == shown
