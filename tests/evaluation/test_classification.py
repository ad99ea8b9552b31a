"""Classifiers over labelled data: any family, alone as in a batch, beside the commonest label and one another."""

import json

import pytest
import torch
from transformers import AutoTokenizer, BertForTokenClassification

from narrows.data import TextExample, WordsExample, encode_classes
from narrows.errors import ConversionError, UsageError
from narrows.evaluation.classification import (
    compare_classes,
    evaluate_classes,
    load_class_model,
    majority_of,
    predict_classes,
)
from narrows.hf.trained_classes import TrainedClasses, note_classes, trained_classes

_TEXTS = ("a king", "the river is long and the mountain is high", "boat", "gold road")


def _rows(tokenizer, given="0110", **options):
    examples = [
        TextExample(str(n), text, None, label) for n, (text, label) in enumerate(zip(_TEXTS, given, strict=True))
    ]
    chosen = {"problem": "classes", "labels": ["0", "1"], "max_tokens": 30}
    return encode_classes(examples, tokenizer, **{**chosen, **options})


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert"])
def test_predictions_are_those_of_each_text_alone(kind, tiny_encoder) -> None:
    found = load_class_model(tiny_encoder(kind, labels=["0", "1", "2"]))
    assert (found.problem, found.labels, found.trained) == ("classes", ("0", "1", "2"), None)
    rows = _rows(found.tokenizer)
    expected = []
    for text in _TEXTS:
        inputs = found.tokenizer(text, return_tensors="pt")
        if kind != "bert":
            inputs.pop("token_type_ids", None)
        expected.append(int(found.model(**inputs).logits.argmax()))
    told = []
    for budget in (1, 1000):
        assert predict_classes(found.model, rows, found.tokenizer, batch_tokens=budget, on_rows=told.append) == expected
    assert sum(told) == 8


@pytest.mark.parametrize("kind", ["bert", "funnel", "fnet"])
def test_a_number_does_not_depend_on_the_batch_whatever_padding_does_to_a_model(kind, tiny_encoder) -> None:
    found = load_class_model(tiny_encoder(kind, labels=["score"]))
    rows = _rows(found.tokenizer, problem="regression")
    alone, together = (
        predict_classes(found.model, rows, found.tokenizer, batch_tokens=budget) for budget in (1, 10_000)
    )
    assert together == pytest.approx(alone, abs=1e-5)


def test_words_that_were_not_read_are_told(tiny_bert) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    model = BertForTokenClassification.from_pretrained(tiny_bert, num_labels=2).eval()
    example = WordsExample("1", ("king",) * 10, ("a",) * 10)
    rows = encode_classes([example], tokenizer, problem="tags", labels=["a", "b"], max_tokens=6, truncate=True)
    (said,) = predict_classes(model, rows, tokenizer, batch_tokens=100)
    assert said[4:] == [-1] * 6 and -1 not in said[:4]
    assert majority_of(rows) == 0


def test_scores_stand_beside_the_commonest_label_and_another_model(tiny_bert) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    rows = _rows(tokenizer)
    found = evaluate_classes([0, 1, 1, 1], rows, labels=["0", "1"], majority=1)
    assert found.scores["accuracy"].mean == 75 and found.baseline["accuracy"].mean == 50
    assert found.over_baseline["accuracy"].mean_difference == 25 and found.baseline["matthews"].mean == 0
    # Without the training data's, the commonest here; of equal ones the first.
    assert evaluate_classes([0, 1, 1, 1], rows, labels=["0", "1"]).majority == 0
    same = compare_classes(found, found)
    assert all(one == (0.0, 0.0, 0.0) for one in same.values())
    with pytest.raises(UsageError, match="expected two models of one problem with one order of labels .*, got others"):
        compare_classes(found, evaluate_classes([0] * 4, _rows(tokenizer, "0100"), labels=["0", "1"]))
    with pytest.raises(UsageError, match="expected a prediction for each of 4 rows, got 1; pass all"):
        evaluate_classes([0], rows, labels=["0", "1"])
    numbers = _rows(tokenizer, "1234", problem="regression", labels=[])
    assert majority_of(numbers) == 2.5
    assert evaluate_classes([1.0, 2.0, 3.0, 4.0], numbers, labels=[]).scores["pearson"].mean == pytest.approx(100)


def test_checkpoints_that_cannot_be_evaluated(tiny_bert, tiny_encoder, tmp_path) -> None:
    with pytest.raises(ConversionError, match="expected a checkpoint with a head for classes, .* got .*BertModel"):
        load_class_model(tiny_bert)
    found = load_class_model(tiny_encoder("bert", labels=["0", "1"]))
    state = {name: tensor for name, tensor in found.model.state_dict().items() if not name.startswith("classifier")}
    found.model.save_pretrained(tmp_path / "part", state_dict=state)
    found.tokenizer.save_pretrained(tmp_path / "part")
    with pytest.raises(ConversionError, match="expected a trained head in .*part, got none for classifier.bias; train"):
        load_class_model(tmp_path / "part")
    with torch.no_grad():
        found.model.classifier.bias[0] = float("nan")
    found.model.save_pretrained(tmp_path / "nan")
    found.tokenizer.save_pretrained(tmp_path / "nan")
    with pytest.raises(
        ConversionError, match="expected finite weights in .*nan, got NaN or infinity in classifier.bias"
    ):
        load_class_model(tmp_path / "nan")


def test_a_config_says_how_its_model_was_trained(tiny_encoder, tmp_path) -> None:
    found = load_class_model(tiny_encoder("bert", labels=["0", "1"]))
    noted = TrainedClasses("classes", "jsonl", {"text": "t"}, 20, True, 1.0)
    config = type(found.model.config).from_dict(found.model.config.to_dict())
    note_classes(config, noted)
    config.save_pretrained(tmp_path)
    assert trained_classes(type(config).from_pretrained(tmp_path)) == noted
    written = json.loads((tmp_path / "config.json").read_text())
    written["narrows_classes"].pop("problem")
    (tmp_path / "config.json").write_text(json.dumps(written))
    with pytest.raises(
        ConversionError, match="expected problem, layout, .* under 'narrows_classes' of config.json, got"
    ):
        trained_classes(type(config).from_pretrained(tmp_path))
