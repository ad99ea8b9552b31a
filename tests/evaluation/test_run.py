"""A model over a data set: resumable predictions, scores with and without the rule, a paired comparison."""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertForQuestionAnswering

from narrows.data import QAExample, read_squad
from narrows.deformer.convert import convert_checkpoint
from narrows.errors import ConversionError, UsageError
from narrows.evaluation import run as run_module
from narrows.evaluation.resuming import read_lines
from narrows.evaluation.run import (
    NoAnswerRule,
    Prediction,
    compare,
    evaluate_spans,
    load_span_model,
    read_predictions,
    score,
)


@pytest.fixture(scope="module")
def reader(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(1)
    folder = tmp_path_factory.mktemp("reader")
    model, _ = convert_checkpoint(tiny_bert, split_layer=3, max_question_tokens=12, max_passage_tokens=20)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> list[QAExample]:
    paragraphs = []
    for number in range(6):
        context = f"in {number} the king found gold near the old mill. " * (number + 1)
        answer = {"text": "gold", "answer_start": context.index("gold")}
        qas = [
            {"id": f"a{number}", "question": "what was found?", "answers": [answer], "is_impossible": False},
            {"id": f"n{number}", "question": "why " * 20 + "?", "answers": [], "is_impossible": True},
        ]
        paragraphs.append({"context": context, "qas": qas})
    path = tmp_path_factory.mktemp("data") / "dev.json"
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}))
    return list(read_squad(path))


def test_a_stopped_evaluation_goes_on(reader, examples, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(run_module, "_EXAMPLES_A_CHUNK", 4)
    whole = evaluate_spans(reader, examples, predictions=tmp_path / "whole.jsonl")
    path = tmp_path / "cut.jsonl"

    def die(done: int) -> None:
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate_spans(reader, examples, predictions=path, on_examples=die)
    with path.open("a") as file:
        file.write('{"id": "a5", "te')
    told = []
    resumed = evaluate_spans(reader, examples, predictions=path, on_examples=told.append)
    assert told == [4, 4, 4]
    assert resumed.predictions == whole.predictions
    assert resumed.scores == whole.scores
    assert path.read_text() == (tmp_path / "whole.jsonl").read_text()
    assert whole.truncated_questions == 6
    assert whole.rule == NoAnswerRule()


def test_another_models_file_is_refused(reader, examples, tmp_path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"id": "a0", "text": "x", "margin": 1.0}\n')
    with pytest.raises(UsageError, match="expected predictions of the same model and questions in .*, got others"):
        evaluate_spans(reader, examples, predictions=path)
    path.unlink()
    evaluate_spans(reader, examples[:2], predictions=path)
    with pytest.raises(UsageError, match="same model and questions"):
        evaluate_spans(reader, examples, predictions=path)
    (tmp_path / "taken").write_text("")
    with pytest.raises(UsageError, match="expected a file to write to at .*, got .*; choose another one"):
        evaluate_spans(reader, examples, predictions=tmp_path / "taken" / "p.jsonl")


def test_spans_are_no_longer_than_the_config_says(reader, examples, tmp_path) -> None:
    config = json.loads((reader / "config.json").read_text())
    assert config["max_answer_tokens"] == 30
    short = tmp_path / "short"
    short.mkdir()
    for path in reader.iterdir():
        (short / path.name).write_bytes(path.read_bytes())
    (short / "config.json").write_text(json.dumps({**config, "max_answer_tokens": 1}))
    found = evaluate_spans(short, examples)
    assert all(" " not in prediction.text for prediction in found.predictions.values())


def test_the_rule_is_for_data_with_impossible_questions(examples) -> None:
    predictions = {e.id: Prediction("gold", 2.0 if e.answers else -2.0) for e in examples}
    rule = NoAnswerRule(1.0, 0.0, 0.5)
    both = score(predictions, examples, rule=rule)
    assert (both.scores.f1, both.scores.balanced_accuracy, both.rule) == (100.0, 100.0, rule)
    answerable = [e for e in examples if e.answers]
    refused = {e.id: Prediction("gold", -9.0) for e in answerable}
    alone = score(refused, answerable, rule=rule)
    assert (alone.scores.f1, alone.rule) == (100.0, None)


def test_a_comparison_is_paired(examples) -> None:
    ours = score(
        {e.id: Prediction("gold", 2.0 if e.answers else -2.0) for e in examples},
        examples,
        rule=NoAnswerRule(),
    )
    theirs = {e.id: Prediction("gold" if e.answers else "wrong", 0.0) for e in examples}
    difference = compare(ours, theirs, examples)
    assert difference.mean_difference == pytest.approx(50.0)
    assert 0 < difference.low < 50 < difference.high < 100
    assert compare(ours, ours.predictions, examples, rule=ours.rule).mean_difference == 0.0
    with pytest.raises(UsageError, match="expected predictions of the same questions, got none for 'a0'"):
        compare(ours, {}, examples)


def test_predictions_files(tmp_path) -> None:
    path = tmp_path / "p.jsonl"
    assert read_predictions(path) == {}
    path.write_text('{"id": "a", "text": "", "margin": null}\n{"id": "b", "te')
    assert read_predictions(path) == {"a": Prediction("", -math.inf)}
    path.write_text('{"id": "a"}\n')
    with pytest.raises(UsageError, match="expected `id`, `text` and `margin` in line 1 of .*; pass a file that"):
        read_predictions(path)


@pytest.mark.parametrize("margin", ["1" * 5000, "1" * 400, "[" * 100_000])
def test_margins_that_are_no_numbers_are_refused(tmp_path, margin) -> None:
    path = tmp_path / "predictions.jsonl"
    path.write_text(f'{{"id": "a", "text": "", "margin": {margin}}}\n')
    with pytest.raises(UsageError, match="expected `id`, `text` and `margin` in line 1 of .*; pass a file that"):
        read_predictions(path)


def test_weights_of_other_shapes_than_the_config_says_are_refused(reader, tmp_path) -> None:
    shutil.copytree(reader, tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "intermediate_size": 41}))
    sentence = r"expected .*weight of shape \(24, 41\), as .*config.json says, got \(24, 40\); correct its sizes or"
    with pytest.raises(ConversionError, match=sentence):
        load_span_model(tmp_path / "m")


def test_a_checkpoint_without_a_span_head_is_refused(tiny_bert) -> None:
    with pytest.raises(ConversionError, match="expected a checkpoint with a trained span head, got .* without one"):
        load_span_model(tiny_bert)


def test_a_deformer_of_another_task_is_refused(tiny_bert, tmp_path) -> None:
    model, _ = convert_checkpoint(tiny_bert, split_layer=1, task="sequence-classification")
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(tmp_path)
    with pytest.raises(ConversionError, match="expected a checkpoint with a trained span head, got .* without one"):
        load_span_model(tmp_path)


def test_a_foreign_reader_gives_its_own_logits(tiny_bert, tmp_path) -> None:
    torch.manual_seed(2)
    theirs = BertForQuestionAnswering(BertConfig.from_pretrained(tiny_bert)).eval()
    theirs.save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    tokenizer.save_pretrained(tmp_path)
    ours, _ = load_span_model(tmp_path)
    row = tokenizer("who found it?", "the king found it near the mill.", return_tensors="pt")
    with torch.no_grad():
        assert torch.allclose(ours(**row).start_logits, theirs(**row).start_logits, atol=1e-5)


def test_what_cannot_be_scored_is_refused_before_the_model_is_read(examples, tmp_path) -> None:
    nowhere = tmp_path / "no-model"
    with pytest.raises(UsageError, match="expected every id once, got 'a0' twice; give each record its own"):
        evaluate_spans(nowhere, [*examples, *[e for e in examples if e.id == "a0"]])


def test_a_folder_is_no_file_of_predictions(reader, examples, tmp_path) -> None:
    with pytest.raises(UsageError, match="expected a file to write to at .*, got a folder; choose another one"):
        evaluate_spans(reader, examples, predictions=tmp_path)


@pytest.mark.parametrize("line", ["[" * 100_000, "1" * 5000, "\xff", "3"])
def test_lines_that_python_will_not_read_are_one_sentence(tmp_path, line) -> None:
    path = tmp_path / "written.jsonl"
    path.write_bytes(line.encode("latin-1") + b"\n")
    with pytest.raises(UsageError, match="expected `id` and `text` in line 1 of .*; pass a file that"):
        read_lines(path, ("id", "text"))
