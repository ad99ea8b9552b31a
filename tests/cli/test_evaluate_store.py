"""`narrows evaluate --candidates`: from a store to figures and a fitted config, and how it is used wrongly."""

import json
import random
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from narrows.cli.main import main
from narrows.deformer import DeformerConfig
from narrows.deformer.convert import convert_checkpoint

WORDS = (
    *("river", "boat", "town", "clock", "night", "bird", "stone", "house"),
    *("father", "mill", "king", "wood", "ship", "star", "music", "garden"),
)


@pytest.fixture(scope="module")
def trained(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """A model by its split layer: random, but it finds spans that begin and end on one token."""
    folders = {}
    for split_layer in (0, 3):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(4)
            model, _ = convert_checkpoint(tiny_bert, split_layer=split_layer, task="question-answering")
            torch.nn.init.normal_(model.qa_outputs.weight, std=0.02)
        folders[split_layer] = tmp_path_factory.mktemp(f"trained-{split_layer}")
        model.save_pretrained(folders[split_layer])
        AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(folders[split_layer])
    return folders


@pytest.fixture
def squad(tmp_path: Path) -> Path:
    """Questions that have an answer share words with their text, the others with none."""
    chance = random.Random(1)
    articles = []
    for number in range(4):
        paragraphs = []
        for word in WORDS[4 * number : 4 * number + 4]:
            context = f"{word} {chance.choice(WORDS)} {word}."
            answer = {"text": context[:-1], "answer_start": 0}
            has = {"id": f"a{word}", "question": f"{word} and {word}?", "answers": [answer], "is_impossible": False}
            none = {"id": f"n{word}", "question": "zebra?", "answers": [], "is_impossible": True}
            paragraphs.append({"context": context, "qas": [has, none]})
        articles.append({"title": f"t{number}", "paragraphs": paragraphs})
    path = tmp_path / "dev.json"
    path.write_text(json.dumps({"data": articles}))
    return path


def _refused(capsys, *arguments: str) -> str:
    assert main(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err


@pytest.mark.parametrize("split_layer", [0, 3])
def test_a_fitted_model_answers_as_it_was_fitted(trained, squad, tmp_path, capsys, split_layer) -> None:
    model = tmp_path / "model"
    shutil.copytree(trained[split_layer], model)
    arguments = ["evaluate", str(model), str(squad), "--candidates", "6"]
    assert main([*arguments, "--json", "--quiet"]) == 0
    before = json.loads(capsys.readouterr().out)
    assert before["store"]["retrieval_weight"] == 0.0 and "best_f1_by_weight" not in before["store"]
    assert main([*arguments, "--calibrate", "--json", "--quiet"]) == 0
    fitted = json.loads(capsys.readouterr().out)
    config = DeformerConfig.from_pretrained(model)
    store = fitted["store"]
    assert (store["candidates"], store["retrieval"], store["recall"]) == (6, "bm25", 100.0)
    assert store["retrieval_weight"] == config.retrieval_weight > 0
    rule = fitted["rule"]
    assert rule["scale"] == config.store_no_answer_scale and rule["bias"] == config.store_no_answer_bias
    assert rule["threshold"] == config.store_no_answer_threshold
    assert (config.no_answer_scale, config.no_answer_bias, config.no_answer_threshold) == (1.0, 0.0, 0.5)
    assert config.split_layer == split_layer and fitted["scores"]["total"] == 32
    kept = model / "evaluation" / "dev-store.scores.json"
    assert json.loads(kept.read_text()) == fitted

    assert main([*arguments, "--json", "--quiet"]) == 0
    after = json.loads(capsys.readouterr().out)
    assert after["scores"] == fitted["scores"] and after["rule"] == rule
    assert after["scores"]["f1"] > before["scores"]["f1"]


def test_a_sample_is_shown_as_a_table(trained, squad, tmp_path, capsys) -> None:
    model = tmp_path / "model"
    shutil.copytree(trained[3], model)
    arguments = ["evaluate", str(model), str(squad), "--candidates", "6", "--questions", "24", "--calibrate"]
    assert main(arguments) == 0
    output = capsys.readouterr()
    for label in ("F1", "refused, impossible", "answer in a candidate", "weight of retrieval", "best F1, weight 0"):
        assert label in output.out
    assert "dev-store.scores.json" in output.err.replace("\n", "") and "Asking" in output.err


@pytest.mark.parametrize(
    ("options", "kept", "where"),
    [
        ([], slice(0, 1), "got 16 and 0 in {data}; calibrate on data in the layout of SQuAD v2.0"),
        ([], slice(1, 2), "got 0 and 16 in {data}; calibrate on data in the layout of SQuAD v2.0"),
        (["--candidates", "4"], slice(0, 1), "got 16 and 0 in {data}; calibrate on data"),
        (["--candidates", "4", "--questions", "3"], slice(0, 2), "in the 3 drawn by --questions; calibrate on data"),
    ],
)
def test_questions_of_one_kind_are_refused_before_any_is_read(
    trained, squad, capsys, monkeypatch, options, kept, where
) -> None:
    def never(*_, **__):
        raise AssertionError("no model is loaded for a rule that cannot be fitted")

    monkeypatch.setattr("narrows.evaluation.run.load_span_model", never)
    monkeypatch.setattr("narrows.serving.Reader.from_pretrained", never)
    document = json.loads(squad.read_text())
    for article in document["data"]:
        for paragraph in article["paragraphs"]:
            paragraph["qas"] = paragraph["qas"][kept]
    squad.write_text(json.dumps(document))
    shown = _refused(capsys, "evaluate", str(trained[3]), str(squad), "--calibrate", *options, "--quiet")
    assert "expected at least 2 questions with an answer and 2 without, got " in shown
    assert where.format(data=squad) in shown
    assert not (trained[3] / "evaluation").exists()


def test_used_wrongly(trained, tiny_bert, squad, tmp_path, capsys) -> None:
    model, data = str(trained[3]), str(squad)
    plain = ["evaluate", model, data]
    message = "expected --questions beside --candidates only, got 5; leave it out"
    assert message in _refused(capsys, *plain, "--questions", "5")
    message = "expected --retrieval beside --candidates only, got both; leave it out"
    assert message in _refused(capsys, *plain, "--retrieval", "both")
    message = "expected --against without --candidates only, got x.jsonl; leave it out"
    assert message in _refused(capsys, *plain, "--candidates", "4", "--against", "x.jsonl")
    message = "expected --predictions without --candidates only, got p.jsonl; leave it out"
    assert message in _refused(capsys, *plain, "--candidates", "4", "--predictions", "p.jsonl")
    assert "expected a DeFormer to calibrate, got" in _refused(
        capsys, "evaluate", str(tiny_bert), data, "--candidates", "4", "--calibrate"
    )
    answerable = json.loads(squad.read_text())
    for article in answerable["data"]:
        for paragraph in article["paragraphs"]:
            paragraph["qas"] = paragraph["qas"][:1]
    (tmp_path / "v1.json").write_text(json.dumps(answerable))
    arguments = ["evaluate", model, str(tmp_path / "v1.json"), "--candidates", "4", "--quiet"]
    assert "questions with an answer and 2 without, got 16 and 0 in" in _refused(capsys, *arguments, "--calibrate")
    assert DeformerConfig.from_pretrained(model).store_no_answer_scale is None
