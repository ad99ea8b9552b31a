"""`narrows evaluate --task`: retrieval and probes of any encoder, with intervals, beside another's."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from narrows import Embedder
from narrows.cli.main import main
from narrows.evaluation.encoders import evaluate_retrieval
from narrows.hf.sentence_layout import SentenceLayout, save_layout

_PLACES = ("old mill", "gold road", "green island", "stone house", "white horse", "long river")


@pytest.fixture
def reqa(tmp_path):
    path = tmp_path / "test.json"
    document = {
        "questions": [f"where is the {place}?" for place in _PLACES],
        "candidates": [f"the {place} is near the sea." for place in _PLACES],
        "ground_truths": [[number] for number in range(len(_PLACES))],
    }
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def tables(tmp_path):
    folder = tmp_path / "tables"
    folder.mkdir()
    rows = [f"{'river boat' if n % 2 else 'king horse'} {n}\t{n % 2}" for n in range(40)]
    (folder / "train.tsv").write_text("\n".join(["sentence\tlabel", *rows[:30]]) + "\n")
    (folder / "test.tsv").write_text("\n".join(["sentence\tlabel", *rows[30:]]) + "\n")
    return folder


@pytest.fixture
def model(tiny_bert, tmp_path):
    return str(shutil.copytree(tiny_bert, tmp_path / "model"))


def _run(capsys, *arguments):
    code = main(["evaluate", *map(str, arguments)])
    shown = capsys.readouterr()
    return code, shown.out, " ".join(shown.err.split())


def test_retrieval_is_what_the_library_finds(model, reqa, capsys, tmp_path) -> None:
    from narrows.data import read_retrieval

    code, out, _ = _run(capsys, model, reqa, "--task", "retrieval", "--json", "--pooling", "cls")
    assert code == 0
    figures = json.loads(out)
    expected = evaluate_retrieval(Embedder.from_pretrained(model, pooling="cls").embed, read_retrieval(reqa))
    assert figures["scores"]["mrr@10"]["mean"] == pytest.approx(expected.scores["mrr@10"].mean)
    assert figures["reading"] == {"pooling": "cls", "max_input_tokens": 128, "texts_cut": 0}
    assert (figures["queries"], figures["candidates"], figures["width"]) == (6, 6, 24)
    assert figures == json.loads((tmp_path / "model" / "evaluation" / "test-retrieval.scores.json").read_text())


def test_the_checkpoints_own_layout_is_what_is_scored(model, reqa, capsys) -> None:
    """Length, prompts, pooling and linear layer."""
    from narrows.data import read_retrieval

    torch.manual_seed(0)
    prompts = {"query": "the king ", "passage": "a boat "}
    layout = SentenceLayout(Path(model), pooling="max", normalize=True, max_tokens=11, prompts=prompts)
    save_layout(layout, width=24, dense=torch.nn.Linear(24, 5))
    code, out, _ = _run(capsys, model, reqa, "--task", "retrieval", "--json")
    figures = json.loads(out)
    assert code == 0 and figures["width"] == 5
    assert figures["reading"] == {
        "pooling": "max",
        "max_input_tokens": 11,
        "prompts": {"queries": "the king ", "candidates": "a boat "},
        "texts_cut": figures["reading"]["texts_cut"],
    }
    sides = [Embedder.from_pretrained(model, prompt=prompt) for prompt in prompts.values()]
    queries, candidates = (lambda texts, by=by: by.embed(texts, truncate=True) for by in sides)
    expected = evaluate_retrieval(candidates, read_retrieval(reqa), embed_queries=queries)
    for name, score in expected.scores.items():
        assert figures["scores"][name]["mean"] == pytest.approx(score.mean)


def test_a_candidate_without_words_has_a_vector_too(model, reqa, capsys) -> None:
    document = json.loads(reqa.read_text())
    document["candidates"].append("")
    reqa.write_text(json.dumps(document))
    code, out, _ = _run(capsys, model, reqa, "--task", "retrieval", "--json")
    assert code == 0 and json.loads(out)["candidates"] == 7


def test_data_that_is_not_there(model, tmp_path, capsys) -> None:
    for arguments in (["--task", "retrieval"], ["--task", "probe"], []):
        name = "none.zip" if "probe" in arguments else "none.json"
        code, _, err = _run(capsys, model, tmp_path / name, *arguments)
        assert code == 2 and f"{name}: expected a file, got nothing at this path; check the path." in err
        assert "--data" not in err


def test_a_probe_beside_another_encoder(model, tables, capsys, tmp_path) -> None:
    pytest.importorskip("sklearn")
    code, out, err = _run(capsys, model, tables, "--task", "probe", "--against", model, "--train-rows", "20")
    assert code == 0 and "figures in" in err
    assert "accuracy over the other" in out and "+0.00  [+0.00, +0.00]" in out
    figures = json.loads((tmp_path / "model" / "evaluation" / "tables-probe.scores.json").read_text())
    assert figures["train_texts"] == 20 and figures["texts"] == 10
    assert figures["against"]["scores"] == figures["scores"]


def test_texts_that_are_cut_are_told(model, reqa, capsys) -> None:
    code, out, _ = _run(capsys, model, reqa, "--task", "retrieval", "--max-input-tokens", "5", "--quiet")
    assert code == 0 and "texts cut                   12" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--task", "retrieval", "--split", "a"], "expected --split without --task only, got a; leave it out"),
        (["--task", "retrieval", "--beams", "2"], "expected --beams without --task only, got 2; leave it out"),
        (["--task", "retrieval", "--train-rows", "2"], "expected --train-rows with --task probe, got --task retrieval"),
        (["--pooling", "cls"], "expected --pooling beside --task only, got cls; leave it out"),
        (["--task", "probe"], "expected a folder with train.tsv and test.tsv (or .gz), or a .zip"),
        (["--task", "retrieval", "--against", "/none"], "expected a checkpoint's folder or a hub id, got '/none'"),
    ],
)
def test_each_mistake_is_one_sentence(options, message, model, reqa, capsys) -> None:
    code, _, err = _run(capsys, model, reqa, *options)
    assert code == 2 and message in err


def test_parts_that_train_one_another_have_no_training_rows(model, tmp_path, capsys) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "reviews.zip", "w") as archive:
        for number in range(20):
            archive.writestr(f"{'pos' if number % 2 else 'neg'}/{number:02}.txt", "a text")
    code, _, err = _run(capsys, model, tmp_path / "reviews.zip", "--task", "probe", "--train-rows", "3")
    assert code == 2 and "expected --train-rows for data with a training part of its own, got" in err
