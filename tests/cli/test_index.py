"""`narrows index` from the command line: what it prints, and how bad input ends."""

import json
import os
import re

import pytest

from narrows.cli.index import describe, duration, size
from narrows.cli.main import main
from narrows.serving.indexing import Cutting, IndexProgress


def index(*arguments: object) -> int:
    return main(["index", *map(str, arguments)])


def test_what_was_indexed_is_printed(tmp_path, folder, checkpoint, capsys) -> None:
    (folder / "picture.png").write_bytes(b"\x89PNG")
    assert index(folder, "-o", tmp_path / "s", "--model", checkpoint) == 0
    shown = capsys.readouterr()
    assert "read 2 documents" in shown.out and "(0 unchanged, 0 removed, 1 skipped)" in shown.out
    assert "holds 2 documents, 2 passages" in shown.out and "(int8) beside" in shown.out
    assert "skipped: expected a .txt, .md, .html, .jsonl or .pdf file, but picture.png" in shown.err
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


def test_another_folder_is_refused_unless_it_is_to_replace(tmp_path, folder, checkpoint, capsys) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "sea.txt").write_text("A ship came over the sea.")
    to_store = ("-o", tmp_path / "s", "--model", checkpoint, "--quiet")
    assert index(folder, *to_store) == 0
    capsys.readouterr()
    assert index(other, *to_store) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1
    assert "with which 2 documents would be removed; index it into another store, or pass --replace" in shown.err
    assert index(other, *to_store, "--replace") == 0
    assert "read 1 document " in (out := capsys.readouterr().out) and "2 removed" in out


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


def test_progress_in_words() -> None:
    progress = IndexProgress(["a"], 1, 1, 0, 500, 2.0)
    assert describe(progress) == "1 passage, 1 token, 0.5 passages/s"
    progress = progress._replace(passages=2000, tokens=90_000, bytes_done=250)
    assert describe(progress) == "2,000 passages, 90,000 tokens, 1,000.0 passages/s, 2.0 s left"
    progress = progress._replace(cutting=Cutting(12_000_000, 3_400_000_000))
    assert describe(progress) == "reading a large document, 12.0 MB of 3.4 GB"


def test_a_large_document_is_not_read_in_silence(tmp_path, checkpoint, capsys, monkeypatch) -> None:
    from narrows.serving import indexing, pieces

    monkeypatch.setattr(pieces, "_PIECE_CHARACTERS", 2000)
    monkeypatch.setattr(indexing, "_PASSAGES_PER_TELLING", 5)
    (tmp_path / "large.txt").write_text("The boat went down the river and the clock stood still. " * 200)
    told = []
    monkeypatch.setattr("narrows.cli.index.describe", lambda progress: told.append(describe(progress)) or told[-1])
    assert index(tmp_path / "large.txt", "-o", tmp_path / "s", "--model", checkpoint) == 0
    reading = [text for text in told if text.startswith("reading a large document, ")]
    assert reading[0] == "reading a large document, 0 bytes of 11.2 kB" and len(set(reading)) > 3
    # Cut first, then written.
    assert told[: len(reading)] == reading and len(told) > len(reading)
    assert "Indexing" in capsys.readouterr().err


def test_time_left_and_percentage_agree_at_the_end() -> None:
    from narrows.cli.index import percentage
    from narrows.serving.indexing import IndexProgress

    progress = IndexProgress([], passages=9, tokens=99, bytes_done=999, bytes_total=1000, seconds=9000.0)
    assert "9.0 s left" in describe(progress) and percentage(999, 1000) == " 99 %"
    assert "left" not in describe(progress._replace(bytes_done=1000)) and percentage(1000, 1000) == "100 %"
    assert percentage(0, 0) == "100 %"


def test_a_document_that_the_tokenizer_hardly_knows_is_named(tmp_path, folder, checkpoint, capsys) -> None:
    import json

    (folder / "runes.txt").write_text("ᚠᚢᚦᚨᚱᚲ " * 50 + "The boat went down the river.")
    (folder / "boat.txt").write_text("The boat went down the river. " * 4 + "ᚠᚢᚦ")
    call = ["index", str(folder), "--model", str(checkpoint)]
    assert main([*call, "-o", str(tmp_path / "s")]) == 0
    warnings = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 1
    assert re.fullmatch(
        r"warning: runes\.txt: \d+ tokens of \d+ \(\d\d %\) unknown to the model's tokenizer", warnings[0]
    )
    assert main([*call, "-o", str(tmp_path / "t"), "--json", "--quiet"]) == 0
    shown = capsys.readouterr()
    [found] = json.loads(shown.out)["unknown"]
    assert found["document"] == "runes.txt" and found["unknown"] > found["tokens"] / 2 and shown.err == ""
