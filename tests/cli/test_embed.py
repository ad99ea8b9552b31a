"""`narrows embed`: vectors in files and on stdout, going on after a kill, and each mistake a sentence."""

import io
import json
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

from narrows import Embedder
from narrows.cli.embed import _DEFAULT_MODEL
from narrows.cli.main import main
from narrows.hf.checkpoints import DEFAULT_CHECKPOINT

WORDS = ["the", "old", "mill", "boat", "river", "king", "stone", "city"]


@pytest.fixture
def model(tiny_encoder) -> str:
    return str(tiny_encoder("bert"))


@pytest.fixture
def library(tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "a.txt").write_text("The old mill near the river.")
    (tmp_path / "library" / "b.md").write_text("# Birds\n\nTwo birds sat on a stone.\n")
    (tmp_path / "library" / "c.jsonl").write_text('{"id": "first", "text": "A boat."}\n{"text": "The king."}\n')
    return "library"


IDS = ["library/a.txt", "library/b.md", "first", "library/c.jsonl#2"]
TEXTS = ["The old mill near the river.", "# Birds\n\nTwo birds sat on a stone.\n", "A boat.", "The king."]


def _run(capsys, *arguments: str):
    code = main(["embed", *arguments])
    shown = capsys.readouterr()
    return code, shown.out, " ".join(shown.err.split())


def _pipe(monkeypatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_the_default_is_the_houses_offline_checkpoint() -> None:
    assert _DEFAULT_MODEL == DEFAULT_CHECKPOINT


@pytest.mark.parametrize("suffix", [".npy", ".jsonl", ".safetensors"])
def test_a_folder_into_a_file(library, model, tmp_path, capsys, suffix) -> None:
    out = tmp_path / "made" / f"out{suffix}"
    code, shown, err = _run(capsys, library, "-o", str(out), "-m", model, "--json")
    assert code == 0
    report = json.loads(shown)
    assert report.pop("seconds") > 0
    assert report == {
        "out": str(out), "width": 24, "texts": 4, "tokens": report["tokens"], "texts_cut": 0, "tokens_not_read": 0,
    }  # fmt: skip
    assert f"4 texts, {report['tokens']} tokens, " in err
    expected = Embedder.from_pretrained(model).embed(TEXTS)
    ids = out if suffix == ".jsonl" else out.with_name("out.ids.jsonl")
    records = [json.loads(line) for line in ids.read_text().splitlines()]
    assert [record["id"] for record in records] == IDS
    if suffix == ".jsonl":
        found = np.array([record["embedding"] for record in records], dtype=np.float32)
    else:
        found = np.load(out) if suffix == ".npy" else load_file(out)["embeddings"]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert {path.name for path in out.parent.iterdir()} == {out.name, ids.name}


def test_stdin_to_stdout(model, capsys, monkeypatch) -> None:
    _pipe(monkeypatch, b"the boat\n\nthe king\n")
    code, out, err = _run(capsys, "-", "-m", model, "-q", "--pooling", "cls", "--normalize")
    records = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "") and [record["id"] for record in records] == [1, 3]
    expected = Embedder.from_pretrained(model, pooling="cls", normalize=True).embed(["the boat", "the king"])
    np.testing.assert_allclose([record["embedding"] for record in records], expected, atol=1e-6)
    _pipe(monkeypatch, b'{"id": 7, "title": "the boat"}\n')
    code, out, _ = _run(capsys, "-", "-m", model, "-q", "--field", "title", "--prompt", "a ")
    assert code == 0 and json.loads(out)["id"] == 7


def test_long_texts_are_refused_or_cut_and_told(model, capsys, monkeypatch, tmp_path) -> None:
    lines = f"the boat\n{'mill ' * 200}\n".encode()
    _pipe(monkeypatch, lines)
    code, out, err = _run(capsys, "-", "-m", model)
    assert (code, out) == (2, "") and "expected texts of at most 128 tokens, got 202 in 2; pass truncate" in err
    _pipe(monkeypatch, lines)
    code, out, err = _run(capsys, "-", "-m", model, "--truncate")
    assert [json.loads(line).get("tokens_not_read") for line in out.splitlines()] == [None, 74]
    assert "warning: 1 text of 2 cut to 128 tokens; 74 tokens not read" in err
    _pipe(monkeypatch, lines)
    _, out, _ = _run(capsys, "-", "-m", model, "--truncate", "-q", "--json", "-o", str(tmp_path / "out.npy"))
    assert json.loads(out)["tokens_not_read"] == 74


@pytest.mark.slow
def test_a_killed_run_goes_on_by_the_same_command(model, tmp_path, capsys, monkeypatch) -> None:
    generator = np.random.default_rng(0)
    lines = [" ".join(generator.choice(WORDS, size=size)) for size in generator.integers(1, 9, size=400)]
    content = "".join(f"{line}\n" for line in lines).encode()
    out, straight = tmp_path / "out.jsonl", tmp_path / "straight.jsonl"
    common = ["-m", model, "--batch-tokens", "40"]
    _pipe(monkeypatch, content)
    assert _run(capsys, "-", *common, "-o", str(straight), "-q")[0] == 0
    arguments = [sys.executable, "-m", "narrows.cli.main", "embed", "-", *common, "-o", str(out)]
    journal = tmp_path / "out.jsonl.partial.texts"
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        # It waits for the rest, however fast it is.
        process.stdin.write(b"".join(content.splitlines(keepends=True)[:300]))
        process.stdin.flush()
        while not (journal.is_file() and b'"end"' in journal.read_bytes()):
            assert process.poll() is None
            time.sleep(0.02)
        process.kill()
    assert not out.exists()
    _pipe(monkeypatch, content)
    code, _, err = _run(capsys, "-", *common, "-o", str(out))
    assert code == 0 and "texts done before; going on" in err
    assert 0 < int(err.split(" texts done before")[0].split()[-1]) < 300
    assert out.read_bytes() == straight.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {out.name, straight.name}


def test_an_error_on_the_way_keeps_what_is_done(model, tmp_path, capsys) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.npy"
    records = [json.dumps({"text": "the boat"}) for _ in range(200)]
    source.write_text("\n".join([*records, "{}"]))
    common = [str(source), "-m", model, "--batch-tokens", "32", "-o", str(out)]
    code, _, err = _run(capsys, *common)
    assert code == 2 and "expected a field 'text' on line 201 of" in err
    assert "texts done and kept; the same command goes on from there" in err
    source.write_text("\n".join(records))
    code, _, err = _run(capsys, *common)
    assert code == 0 and "texts done before; going on" in err and np.load(out).shape == (200, 24)


def test_what_people_get_wrong(library, model, tmp_path, capsys, tiny_seq2seq) -> None:
    (tmp_path / "there.npy").write_bytes(b"")
    (tmp_path / "binary.txt").write_bytes(b"a\0b")
    (tmp_path / "empty.txt").write_text("")
    for arguments, code, said in [
        (
            [library, "-o", "out.csv"],
            2,
            "expected an output of .npy, .jsonl, .safetensors or - for stdout, got out.csv",
        ),
        (
            [library, "-o", "there.npy"],
            2,
            "expected a new file to write to, got there.npy, which is there; name another",
        ),
        (
            [library, "-o", "library"],
            2,
            "expected an output of .npy, .jsonl, .safetensors or - for stdout, got library",
        ),
        ([library, "-o", "binary.txt/out.npy"], 2, "expected a folder to write to, got binary.txt"),
        (["nowhere"], 2, "expected a folder or a file, but nowhere does not exist; check the path"),
        (["binary.txt"], 2, "expected text in binary.txt, but byte 1 is a NUL as in binary files"),
        (["empty.txt"], 2, "expected text in empty.txt, but it is empty; fill it or leave it out"),
        (["there.npy"], 2, "expected a .txt, .md, .html, .jsonl or .pdf file, but there.npy"),
        ([f"{library}/c.jsonl", "--field", "title"], 2, "expected a field 'title' on line 1 of library/c.jsonl, but"),
        ([library, "--field", "title"], 2, "expected JSON Lines (.jsonl) where a field is named, got library/a.txt"),
        ([library, "--prompt-name", "query"], 2, "expected the name of a prompt of"),
        ([library, "--max-tokens", "999"], 2, "expected max_tokens (--max-tokens) of at most 128, the positions of"),
        (["-", "-"], 2, "expected - for stdin once, got it several times; name it once"),
    ]:
        found, out, err = _run(capsys, *arguments, "-m", model)
        assert (found, out) == (code, ""), (arguments, err)
        assert said in err, err
    assert _run(capsys, library, "-m", str(tmp_path / "none"))[0] == 2
    assert not list(tmp_path.glob("*.partial*"))


def test_a_file_is_written_over_where_that_is_asked_for(library, model, tmp_path, capsys) -> None:
    (tmp_path / "there.npy").write_bytes(b"")
    assert _run(capsys, library, "-o", "there.npy", "-m", model, "--force", "-q") == (0, "", "")
    assert np.load(tmp_path / "there.npy").shape == (4, 24)
