"""`narrows summarize`: files into a summary on stdout, what was read on stderr, and each mistake a sentence."""

import io
import json
import shutil
import sys

import pytest

from narrows.cli.main import main
from narrows.hf.seq2seq import load_seq2seq

TEXT = "The old mill near the river was built by the king. "


@pytest.fixture
def model(tiny_seq2seq) -> str:
    return str(tiny_seq2seq("mulla"))


@pytest.fixture
def files(tmp_path):
    (tmp_path / "a.txt").write_text(TEXT * 4)
    (tmp_path / "b.md").write_text("# Birds\n\nTwo birds sat on a stone.\n")
    (tmp_path / "c.html").write_text("<html><body><p>The boat went down the river.</p></body></html>")
    return [str(tmp_path / name) for name in ("a.txt", "b.md", "c.html")]


def _run(capsys, *arguments: str):
    code = main(["summarize", *arguments])
    shown = capsys.readouterr()
    return code, shown.out, " ".join(shown.err.split())


@pytest.mark.parametrize("kind", ["mulla", "longt5", "tglobal", "t5"])
def test_a_file_is_summarised(kind, files, tiny_seq2seq, capsys) -> None:
    code, out, err = _run(capsys, files[0], "--model", str(tiny_seq2seq(kind)), "--max-new-tokens", "5")
    assert code == 0
    assert out.strip() and out.count("\n") == 1
    assert "a.txt: " in err and "tokens read, 0 not read" in err


def test_words_that_the_tokenizer_does_not_know_are_counted(tmp_path, model, capsys) -> None:
    (tmp_path / "half.txt").write_text("The old mill. 東京 北京 ")
    code, out, err = _run(capsys, str(tmp_path / "half.txt"), "-m", model, "--json", "--max-new-tokens", "3")
    unknown = json.loads(out)["unknown"]
    assert code == 0 and unknown >= 1
    assert f"half.txt: {unknown} token" in err and "unknown to the model's tokenizer" in err


def test_a_model_that_writes_nothing_is_told(tmp_path, files, tiny_seq2seq, capsys) -> None:
    loaded, tokenizer = load_seq2seq(tiny_seq2seq("t5"))
    loaded.generation_config.forced_eos_token_id = loaded.generation_config.eos_token_id
    loaded.generation_config.max_new_tokens = 1
    for part in (loaded, tokenizer):
        part.save_pretrained(tmp_path / "silent")
    code, out, err = _run(capsys, files[0], "-m", str(tmp_path / "silent"))
    assert code == 0 and out == "\n"
    assert "warning: the model wrote nothing about a.txt; see what it writes of others by `narrows evaluate`" in err


def test_several_files_are_one_input_or_each_by_itself(files, model, capsys) -> None:
    code, out, _ = _run(capsys, *files, "-m", model, "--json", "--quiet", "--max-new-tokens", "4")
    together = json.loads(out)
    assert code == 0 and together["documents"] == ["a.txt", "b.md", "c.html"]
    code, out, err = _run(capsys, *files, "-m", model, "--json", "--quiet", "--each", "--max-new-tokens", "4")
    each = json.loads(out)["summaries"]
    assert [one["documents"] for one in each] == [["a.txt"], ["b.md"], ["c.html"]]
    # Between documents stands an end of text, which is read too.
    assert together["tokens_read"] == sum(one["tokens_read"] for one in each) + 2
    assert err == ""
    code, out, _ = _run(capsys, *files, "-m", model, "--quiet", "--each", "--max-new-tokens", "4")
    assert [line for line in out.splitlines() if line.endswith(":")] == ["a.txt:", "b.md:", "c.html:"]


def test_records_of_summary_data_are_summarised(model, tmp_path, capsys) -> None:
    records = [
        {"id": "a", "document": TEXT, "summary": "A mill.", "query": "What was built?"},
        {"id": "b", "documents": [TEXT, "Two birds sat on a stone."], "summary": ["Birds."]},
    ]
    path = tmp_path / "dev.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    code, out, err = _run(capsys, str(path), "-m", model, "--json", "--quiet", "--each", "--max-new-tokens", "3")
    assert (code, err) == (0, "")
    names = [one["documents"] for one in json.loads(out)["summaries"]]
    assert names == [["dev.jsonl#a"], ["dev.jsonl#b/1"], ["dev.jsonl#b/2"]]
    path.write_text('{"meeting_transcripts": []}\n')
    code, out, err = _run(capsys, str(path), "-m", model)
    assert (code, out) == (2, "")
    assert (
        "expected a field 'text', 'contents', 'body', 'document' or 'documents' on line 1 of dev.jsonl, but got" in err
    )
    assert "give the field that holds the text one of these names" in err


def test_a_folder_is_all_that_lies_in_it(files, model, tmp_path, capsys) -> None:
    (tmp_path / "other.xyz").write_text("not read")
    folder = [str(tmp_path), "-m", model, "--json", "--max-new-tokens", "4"]
    code, out, err = _run(capsys, *folder, "--each")
    assert code == 0 and "other.xyz" in err
    assert [one["documents"] for one in json.loads(out)["summaries"]] == [["a.txt"], ["b.md"], ["c.html"]]
    code, out, _ = _run(capsys, *folder, "--quiet")
    assert code == 0 and json.loads(out)["documents"] == ["a.txt", "b.md", "c.html"]


def test_a_prefix_stands_before_the_text(tiny_seq2seq, tmp_path, capsys) -> None:
    (tmp_path / "a.txt").write_text("a boat .")
    (tmp_path / "b.txt").write_text("the king: a boat .")
    common = ["-m", str(tiny_seq2seq("t5")), "--max-new-tokens", "9", "--quiet"]
    _, plain, _ = _run(capsys, str(tmp_path / "a.txt"), *common)
    _, given, _ = _run(capsys, str(tmp_path / "a.txt"), *common, "--prefix", "the king: ")
    _, written, _ = _run(capsys, str(tmp_path / "b.txt"), *common)
    assert given == written != plain


def test_a_pdf_is_summarised_or_refused(model, tmp_path, capsys) -> None:
    import pypdf

    stream = b"BT /F1 12 Tf 50 700 Td (The old mill near the river.) Tj ET"
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 4 0 R "
        b"/Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%b\nendstream" % (len(stream), stream),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    body = b"".join(b"%d 0 obj\n%b\nendobj\n" % each for each in enumerate(objects, start=1))
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.4\n" + body + b"trailer << /Root 1 0 R >>\nstartxref\n0\n%%EOF\n")
    (tmp_path / "a.txt").write_text("The old mill near the river.")
    found = []
    for name in ("a.pdf", "a.txt"):
        code, out, err = _run(capsys, str(tmp_path / name), "-m", model, "--json", "--max-new-tokens", "4", "--quiet")
        assert code == 0 and err == ""
        found.append({**json.loads(out), "documents": [], "seconds": 0})
    assert found[0] == found[1]
    writer = pypdf.PdfWriter()
    writer.add_blank_page(600, 800)
    writer.write(tmp_path / "scan.pdf")
    code, out, err = _run(capsys, str(tmp_path / "scan.pdf"), "-m", model)
    assert (code, out) == (2, "") and "expected text in scan.pdf, but its pages hold none, as in a scan" in err


def test_options_reach_the_model(files, model, capsys) -> None:
    options = ["--max-input-tokens", "20", "--truncation", "head+tail", "--beams", "2", "--query", "what was built?"]
    code, out, err = _run(capsys, files[0], "-m", model, "--json", "--max-new-tokens", "3", *options)
    found = json.loads(out)
    assert code == 0
    assert found["tokens_not_read"] > 0
    assert found["truncation"]["dropped"] == found["tokens_not_read"]
    assert f"{found['tokens_not_read']} not read" in err


def test_stdin_is_a_file(model, capsys, monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    code, out, _ = _run(capsys, "-", "-m", model, "--max-new-tokens", "3", "--json")
    assert code == 0 and json.loads(out)["documents"] == ["-"]
    assert _run(capsys, "-", "-", "-m", model)[0] == 2


def test_beyond_the_trained_length_there_is_a_warning(files, model, tmp_path, capsys) -> None:
    folder = tmp_path / "trained"
    shutil.copytree(model, folder)
    config = json.loads((folder / "config.json").read_text())
    noted = {"max_input_tokens": 30, "truncation": {"name": "head"}}
    (folder / "config.json").write_text(json.dumps({**config, "narrows_inputs": noted}))
    asked = [files[0], "-m", str(folder), "--max-new-tokens", "3", "--quiet"]
    code, _, err = _run(capsys, *asked)
    assert code == 0
    assert "warning: the input (a.txt) is longer by " in err and "than what the model was trained to read (30);" in err
    code, _, err = _run(capsys, *asked, "--truncation", "head")
    assert (code, err) == (0, "")


def test_each_mistake_is_one_sentence(files, model, checkpoint, tmp_path, capsys) -> None:
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "blank.txt").write_text(" \n \n")
    bare = tmp_path / "bare"
    shutil.copytree(model, bare)
    (bare / "tokenizer.json").unlink()
    for arguments, code, text in (
        (["no.txt", "-m", model], 2, "no.txt"),
        (["", "-m", model], 2, "expected the name of a file, got an empty one; name a file, or - for stdin"),
        ([str(tmp_path / "empty.txt"), "-m", model], 2, "expected text in empty.txt, but it is empty"),
        ([str(tmp_path / "blank.txt"), "-m", model], 2, "expected text in blank.txt, but it is empty"),
        ([files[0], "-m", str(tmp_path / "none")], 2, "expected a checkpoint's folder or a hub id"),
        ([files[0], "-m", str(checkpoint)], 1, "expected a model that writes text (LongT5-Mulla, LongT5, T5 or mT5)"),
        ([files[0], "-m", str(bare)], 1, "expected tokenizer.json, vocab.txt or spiece.model"),
        ([files[0], "-m", model, "--dtype", "float16"], 2, "in which T5's unscaled attention scores overflow"),
        ([files[0], "-m", model, "--query", " "], 2, "expected a question for --query, got nothing; leave it out"),
        ([files[0], "-m", model, "--truncation", "hed"], 2, "did you mean 'head'?"),
        ([files[0], "-m", model, "--truncation", "head"], 2, "expected max_input_tokens beside a truncation"),
        ([files[0], "-m", model, "--max-input-tokens", "0"], 2, "max-input-tokens"),
        (["-m", model], 2, "FILE"),
    ):
        found, out, err = _run(capsys, *arguments)
        assert (found, out) == (code, ""), arguments
        assert text in err, (arguments, err)
        assert "Traceback" not in err


def test_a_text_too_long_for_the_memory_says_what_fits(files, model, capsys, monkeypatch) -> None:
    from narrows.serving import summarizer

    monkeypatch.setattr(summarizer, "available_bytes", lambda device: 64 * 2**20 + 20_000)
    code, _, err = _run(capsys, files[0], "-m", model, "--quiet")
    assert code == 2
    assert "expected an input that fits into memory, got" in err and "--max-input-tokens" in err
