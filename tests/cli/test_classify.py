"""`narrows classify`: labels on stdout and in files, and each mistake a sentence."""

import io
import json
import sys

import pytest

from narrows import Classifier
from narrows.cli.main import main

LABELS = ["good", "bad", "mixed"]
RECORDS = [{"id": "x", "a": "the old mill", "b": "a boat"}, {"a": "the king", "b": "the river"}]


@pytest.fixture
def model(tiny_encoder) -> str:
    return str(tiny_encoder("bert", labels=LABELS))


@pytest.fixture
def pairs(tmp_path, monkeypatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in RECORDS))
    return "pairs.jsonl"


def _run(capsys, *arguments: str):
    code = main(["classify", *arguments])
    shown = capsys.readouterr()
    return code, shown.out, " ".join(shown.err.split())


def test_lines_for_people(model, capsys, monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the boat\nthe king\n")))
    code, out, err = _run(capsys, "-", "-m", model)
    found = Classifier.from_pretrained(model).classify(["the boat", "the king"])
    assert code == 0 and "2 texts, 8 tokens" in err
    assert out.splitlines() == [f"{n}\t{one.label} {one.score:.4f}" for n, one in enumerate(found, start=1)]


def test_pairs_as_json_and_in_a_file(model, pairs, tmp_path, capsys) -> None:
    common = [pairs, "-m", model, "--field", "a", "--field-pair", "b", "-q"]
    code, out, err = _run(capsys, *common, "--json", "--all-scores")
    expected = Classifier.from_pretrained(model).classify([(record["a"], record["b"]) for record in RECORDS])
    records = [json.loads(line) for line in out.splitlines()]
    assert (code, err) == (0, "") and [record["id"] for record in records] == ["x", "pairs.jsonl#2"]
    for record, one in zip(records, expected, strict=True):
        assert record["label"] == one.label and list(record["scores"]) == LABELS
        assert record["probability"] == pytest.approx(one.score, abs=1e-5)
    code, out, _ = _run(capsys, *common, "-o", "out.jsonl", "--json")
    report = json.loads(out)
    assert code == 0 and report["labels"] == LABELS and report["texts"] == 2
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [list(record) for record in written] == [["id", "label", "probability"]] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.jsonl", "pairs.jsonl"]


def test_scores_and_several_labels(tiny_encoder, pairs, capsys) -> None:
    kinds = {
        "score": tiny_encoder("bert", labels=["LABEL_0"]),
        "scores": tiny_encoder("bert", labels=["width", "height"], problem_type="regression"),
        "labels": tiny_encoder("bert", labels=LABELS, problem_type="multi_label_classification"),
    }
    for key, folder in kinds.items():
        common = [pairs, "-m", str(folder), "--field", "a", "-q"]
        code, out, _ = _run(capsys, *common, "--json")
        assert code == 0 and list(json.loads(out.splitlines()[0])) == ["id", key]
        code, out, _ = _run(capsys, *common)
        assert code == 0 and len(out.splitlines()) == 2
    code, out, _ = _run(capsys, pairs, "-m", str(kinds["labels"]), "--field", "a", "-q", "--threshold", "1")
    assert out.splitlines()[0] == "x\tnone"
    code, out, _ = _run(capsys, pairs, "-m", str(kinds["labels"]), "--field", "a", "-q", "--threshold", "0")
    assert all(label in out for label in LABELS)


def test_what_people_get_wrong(model, pairs, tmp_path, tiny_encoder, tiny_seq2seq, capsys) -> None:
    (tmp_path / "out.jsonl").write_text("")
    (tmp_path / "a.txt").write_text("the boat")
    headless, wide = str(tiny_encoder("bert")), str(tiny_seq2seq("t5"))
    for arguments, code, said in [
        ([pairs, "-m", headless], 1, "expected a checkpoint with a head for sequence classification, got"),
        ([pairs, "-m", wide], 1, "of type 't5', an encoder with a decoder; name a BERT or another encoder"),
        ([pairs, "-m", model], 2, "expected a field 'text' on line 1 of pairs.jsonl, but got ['a', 'b', 'id']; name"),
        (
            [pairs, "-m", model, "--field-pair", "b"],
            2,
            "expected --field beside --field-pair, got none; name the field",
        ),
        (["a.txt", "-m", model, "--field", "a"], 2, "expected JSON Lines (.jsonl) where a field is named, got a.txt;"),
        ([pairs, "-m", model, "-o", "out.npy"], 2, "expected an output of .jsonl, or - for stdout, got out.npy; give"),
        ([pairs, "-m", model, "-o", "out.jsonl"], 2, "expected a new file to write to, got out.jsonl, which is there"),
        ([pairs], 2, "Missing option"),
    ]:
        found, out, err = _run(capsys, *arguments)
        assert (found, out) == (code, ""), (arguments, err)
        assert said in err, err
