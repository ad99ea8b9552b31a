"""Labels, probabilities and scores of texts and pairs: the same as a plain loop gives, and each mistake a sentence."""

import json
import shutil

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from narrows import Classifier
from narrows.errors import ConversionError, UsageError

_SENTENCE = "the old mill near river was built by king and a boat went down to stone city in winter"
WORDS = _SENTENCE.split()
LABELS = ["good", "bad", "mixed"]


def _texts(number: int = 17, seed: int = 0) -> list[str]:
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, size=size)) for size in generator.integers(5, 40, size=number)]


def _logits(folder, texts) -> np.ndarray:
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    found = []
    for text in texts:
        inputs = tokenizer(*(text if isinstance(text, tuple) else (text,)), return_tensors="pt")
        if model.config.model_type == "distilbert":
            inputs.pop("token_type_ids")
        with torch.inference_mode():
            found.append(model(**inputs).logits[0].numpy())
    return np.stack(found)


def _softmax(logits: np.ndarray) -> np.ndarray:
    raised = np.exp(logits - logits.max(1, keepdims=True))
    return raised / raised.sum(1, keepdims=True)


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert", "funnel", "electra"])
def test_labels_are_those_of_a_plain_loop(kind, tiny_encoder) -> None:
    folder, texts = tiny_encoder(kind, labels=LABELS), _texts()
    classifier = Classifier.from_pretrained(folder, batch_tokens=120)
    expected = _softmax(_logits(folder, texts))
    found = classifier.classify(texts)
    assert classifier.labels == LABELS and classifier.problem == "single_label"
    scores = np.array([list(one.scores.values()) for one in found])
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert [one.label for one in found] == [LABELS[index] for index in expected.argmax(1)]
    assert all(one.labels == (one.label,) and one.score == one.scores[one.label] for one in found)
    alone = np.array([list(classifier.classify([text])[0].scores.values()) for text in texts])
    np.testing.assert_allclose(scores, alone, atol=1e-5)


def test_pairs(tiny_encoder) -> None:
    folder = tiny_encoder("bert", labels=LABELS)
    pairs = list(zip(_texts(9), _texts(9, seed=1), strict=True))
    found = Classifier.from_pretrained(folder, batch_tokens=200).classify(pairs)
    expected = _softmax(_logits(folder, pairs))
    np.testing.assert_allclose([list(one.scores.values()) for one in found], expected, atol=1e-5)


def test_of_a_long_pair_the_longer_text_is_cut(tiny_encoder) -> None:
    classifier = Classifier.from_pretrained(tiny_encoder("bert", labels=LABELS), max_tokens=20)
    pair = ("the boat", " ".join(["mill"] * 40))
    with pytest.raises(UsageError, match="expected texts of at most 20 tokens, got 45 in 1; pass truncate"):
        classifier.classify([pair])
    row = next(classifier.stream([pair], truncate=True))
    assert (row.tokens, row.tokens_not_read) == (20, 25)
    whole = classifier.classify([("the boat", " ".join(["mill"] * 15))])[0]
    assert classifier.read(row).scores == pytest.approx(whole.scores, abs=1e-6)


def test_one_output_is_a_score(tiny_encoder) -> None:
    folder, texts = tiny_encoder("bert", labels=["LABEL_0"]), _texts(5)
    classifier = Classifier.from_pretrained(folder)
    found = classifier.classify(texts)
    assert classifier.problem == "regression"
    np.testing.assert_allclose([one.score for one in found], _logits(folder, texts)[:, 0], atol=1e-5)
    assert found[0].label is None and found[0].labels == ()


def test_several_values_are_told_by_their_names(tiny_encoder) -> None:
    folder = tiny_encoder("bert", labels=["width", "height"], problem_type="regression")
    found = Classifier.from_pretrained(folder).classify(["the boat"])[0]
    assert found.score is None and list(found.scores) == ["width", "height"]


def test_a_text_may_have_several_labels(tiny_encoder) -> None:
    folder, texts = tiny_encoder("bert", labels=LABELS, problem_type="multi_label_classification"), _texts(12)
    expected = 1 / (1 + np.exp(-_logits(folder, texts)))
    for threshold in (0.5, 0.9):
        found = Classifier.from_pretrained(folder, threshold=threshold).classify(texts)
        for one, row in zip(found, expected, strict=True):
            likely = sorted((label for label in LABELS if one.scores[label] >= threshold), key=lambda x: -one.scores[x])
            assert list(one.labels) == likely
            np.testing.assert_allclose(list(one.scores.values()), row, atol=1e-5)


def test_our_own_classifiers(tiny_bert, tiny_seq2seq, tmp_path) -> None:
    from narrows.deformer.convert import convert_checkpoint
    from narrows.mulla import MullaT5Config, MullaT5ForSequenceClassification

    source, _ = convert_checkpoint(tiny_bert, split_layer=2, task="sequence-classification")
    source.save_pretrained(tmp_path / "deformer")
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(tmp_path / "deformer")
    config = MullaT5Config.from_pretrained(tiny_seq2seq("mulla"), num_labels=3)
    MullaT5ForSequenceClassification(config).save_pretrained(tmp_path / "mulla")
    AutoTokenizer.from_pretrained(tiny_seq2seq("mulla")).save_pretrained(tmp_path / "mulla")
    pairs = list(zip(_texts(5), _texts(5, seed=1), strict=True))
    for name, texts in (("deformer", pairs), ("mulla", _texts(5))):
        classifier = Classifier.from_pretrained(tmp_path / name)
        together = classifier.classify(texts)
        for text, one in zip(texts, together, strict=True):
            assert classifier.classify([text])[0].scores == pytest.approx(one.scores, abs=1e-5)


def test_a_checkpoint_without_a_trained_head_is_refused(tiny_encoder, tmp_path) -> None:
    with pytest.raises(
        ConversionError, match=r"expected a checkpoint with a head for sequence classification, got .* \(BertModel\);"
    ):
        Classifier.from_pretrained(tiny_encoder("bert"))
    # A config that says nothing of what was trained.
    shutil.copytree(tiny_encoder("bert"), tmp_path / "silent")
    config = json.loads((tmp_path / "silent" / "config.json").read_text())
    del config["architectures"]
    (tmp_path / "silent" / "config.json").write_text(json.dumps(config))
    with pytest.raises(
        ConversionError, match=r"expected a checkpoint with a trained classification head, got .* without classifier\.b"
    ):
        Classifier.from_pretrained(tmp_path / "silent")
    config["model_type"] = "splinter"
    (tmp_path / "silent" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConversionError, match=r"\(one of type 'splinter', which has no such head\); name one that was"):
        Classifier.from_pretrained(tmp_path / "silent")


def test_an_encoder_with_a_decoder_is_refused(tiny_seq2seq) -> None:
    with pytest.raises(
        ConversionError, match="expected an encoder, got .* of type 't5', an encoder with a decoder; na"
    ):
        Classifier.from_pretrained(tiny_seq2seq("t5"))


def test_settings_that_cannot_be(tiny_encoder) -> None:
    folder = tiny_encoder("bert", labels=LABELS)
    with pytest.raises(UsageError, match=r"expected a threshold between 0 and 1, got 1\.5; pass a probability"):
        Classifier.from_pretrained(folder, threshold=1.5)
    with pytest.raises(UsageError, match="expected a dtype of float32 or bfloat16, got 'int8'; choose one of them"):
        Classifier.from_pretrained(folder, dtype="int8")


def test_one_name_for_two_labels_is_refused(tiny_encoder) -> None:
    folder = tiny_encoder("bert", labels=["same", "same"])
    with pytest.raises(
        ConversionError, match="expected labels that differ in id2label of .*, got one name twice; corr"
    ):
        Classifier.from_pretrained(folder)
