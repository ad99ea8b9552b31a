"""Readers of any family: what they say equals a plain search of their own logits, in every window."""

import json
import math

import pytest
import torch
from transformers import AutoConfig, AutoModelForQuestionAnswering, AutoTokenizer, BertConfig, BertForQuestionAnswering

from narrows.cli.main import main
from narrows.data import QAExample, SpanEncoder, pair_layout
from narrows.errors import ConversionError
from narrows.evaluation.run import evaluate_spans, load_span_model, predict_examples
from narrows.funnel import FunnelConfig, FunnelModel
from narrows.funnel.heads import FunnelForConditionalQuestionAnswering
from narrows.hf.trained_spans import SPANS_FIELD, TrainedSpans, note_spans, trained_spans

PLACES = ("the king found gold near the old mill", "a boat", "why the river was cold in the morning and the evening")


@pytest.fixture(scope="module")
def examples() -> list[QAExample]:
    return [
        QAExample(f"{number}", "t", question, f"{'in the year 7 ' * number}{place}.", impossible=number > 2)
        for number, (question, place) in enumerate((q, p) for q in ("what was it?", "who?") for p in PLACES)
    ]


@pytest.fixture(scope="module")
def funnel(tiny_bert, tmp_path_factory):
    """A random Funnel with the conditional head, which reads windows of 9 tokens."""
    folder = tmp_path_factory.mktemp("conditional")
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    tokenizer.save_pretrained(folder)
    sizes = {"d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 24, "block_sizes": [1, 1], "num_decoder_layers": 1}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = FunnelConfig(vocab_size=len(tokenizer), **sizes, initializer_std=0.4, start_n_top=4, end_n_top=3)
        model = FunnelForConditionalQuestionAnswering(config).eval()
    note_spans(model.config, TrainedSpans(6, 9, 4, 3))
    model.save_pretrained(folder)
    return folder


@torch.no_grad()
def _windows(model, tokenizer, examples):
    """Of each example, by window: the score of every span of at most 3 tokens that the head tries, and its logit."""
    encoder = SpanEncoder(tokenizer, max_question_tokens=6, max_passage_tokens=9, overlap=4)
    layout = pair_layout(tokenizer)
    found: list[list[tuple[dict, float]]] = [[] for _ in examples]
    for feature in encoder.encode(examples).features:
        ids, segments = layout.join(feature.question_ids, feature.passage_ids)
        first = layout.passage_start(feature.question_ids)
        mask = [
            0 if place == 0 or first <= place < first + len(feature.passage_ids) else 1 for place in range(len(ids))
        ]
        rows = (torch.tensor([each]) for each in (ids, segments, mask))
        out = model(**dict(zip(("input_ids", "token_type_ids", "p_mask"), rows, strict=True)))
        spans = {}
        for place, start in enumerate(out.start_top_index[0].tolist()):
            for rank, end in enumerate(out.end_top_index[0, place].tolist()):
                if first <= start <= end < first + len(feature.passage_ids) and end - start < 3:
                    left, right = (feature.passage_offsets[at - first] for at in (start, end))
                    score = float(out.start_top_log_probs[0, place] + out.end_top_log_probs[0, place, rank])
                    spans[examples[feature.example].context[left[0] : right[1]]] = score
        found[feature.example].append((spans, float(out.answer_logits[0])))
    return found


def test_the_conditional_head_says_the_likeliest_span_of_all_windows(funnel, examples) -> None:
    model, tokenizer = load_span_model(funnel)
    said, _ = predict_examples(model, tokenizer, examples, batch_tokens=64)
    windows = _windows(model, tokenizer, examples)
    assert max(map(len, windows)) > 2
    for prediction, found in zip(said, windows, strict=True):
        scores = {text: score for spans, _ in found for text, score in sorted(spans.items(), key=lambda one: one[1])}
        best = max(scores.values(), default=-math.inf)
        assert prediction.score == pytest.approx(best, abs=1e-4)
        if scores:
            assert scores[prediction.text] == pytest.approx(best, abs=1e-4)
        # One window that answers is enough.
        assert prediction.margin == pytest.approx(-min(logit for _, logit in found), abs=1e-4)


def test_spans_of_a_model_that_padding_changes_do_not_depend_on_the_batch(tiny_bert, examples) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    sizes = {"d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 24, "block_sizes": [1, 1], "num_decoder_layers": 1}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = AutoConfig.for_model("funnel", vocab_size=len(tokenizer), **sizes, initializer_std=0.4)
        model = AutoModelForQuestionAnswering.from_config(config).eval()
    alone, together = (predict_examples(model, tokenizer, examples, batch_tokens=budget)[0] for budget in (1, 10_000))
    assert [(one.start, one.end) for one in alone] == [(one.start, one.end) for one in together]
    assert [one.margin for one in alone] == pytest.approx([one.margin for one in together], abs=1e-4)


def test_no_span_of_the_passage_among_those_tried_is_no_answer(funnel, examples) -> None:
    model, tokenizer = load_span_model(funnel)
    # One start and one end for it, which may be [CLS], or end before it begins.
    model.config.start_n_top = model.config.end_n_top = 1
    said, _ = predict_examples(model, tokenizer, examples)
    none = [not any(spans for spans, _ in found) for found in _windows(model, tokenizer, examples)]
    assert any(none)
    for prediction, without in zip(said, none, strict=True):
        assert (prediction.text == "") == (prediction.score == -math.inf) == without
        assert math.isfinite(prediction.margin)


def test_an_empty_passage_is_no_answer(funnel) -> None:
    model, tokenizer = load_span_model(funnel)
    (said,), _ = predict_examples(model, tokenizer, [QAExample("a", "t", "who?", "")])
    assert (said.text, said.margin) == ("", -math.inf)


def test_a_bert_as_it_is_says_what_it_says_as_a_joint_deformer(tiny_bert, tmp_path, examples) -> None:
    torch.manual_seed(1)
    model = BertForQuestionAnswering(BertConfig.from_pretrained(tiny_bert)).eval()
    for name in ("plain", "noted"):
        model.save_pretrained(tmp_path / name)
        AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(tmp_path / name)
        note_spans(model.config, TrainedSpans())
    loaded = [load_span_model(tmp_path / name) for name in ("plain", "noted")]
    assert [type(one).__name__ for one, _ in loaded] == ["DeformerForQuestionAnswering", "BertForQuestionAnswering"]
    joint, alone = (predict_examples(one, tokenizer, examples)[0] for one, tokenizer in loaded)
    for ours, theirs in zip(joint, alone, strict=True):
        assert ours.text == theirs.text and ours.margin == pytest.approx(theirs.margin, abs=1e-4)


def test_checkpoints_that_cannot_answer(funnel, tiny_bert, tmp_path) -> None:
    config = FunnelConfig.from_pretrained(funnel)
    FunnelModel(config).save_pretrained(tmp_path / "bare")
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(tmp_path / "bare")
    with pytest.raises(
        ConversionError, match="expected a checkpoint with a trained span head, got .* fits qa_outputs.b"
    ):
        load_span_model(tmp_path / "bare")
    setattr(config, SPANS_FIELD, {"max_question_tokens": 3, "windows": 2})
    with pytest.raises(
        ConversionError, match="expected max_question_tokens, .* under 'narrows_spans' of config.json, "
    ):
        trained_spans(config)


def _squad(path, examples) -> None:
    paragraphs = []
    for example in examples:
        answers = [] if example.impossible else [{"text": example.context[:5], "answer_start": 0}]
        qas = {"id": example.id, "question": example.question, "answers": answers, "is_impossible": example.impossible}
        paragraphs.append({"context": example.context, "qas": [qas]})
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}))


def test_the_command_line_scores_and_calibrates_a_funnel(funnel, examples, tmp_path, capsys) -> None:
    model, tokenizer = load_span_model(funnel)
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "m")
    _squad(tmp_path / "dev.json", examples)
    call = ["evaluate", str(tmp_path / "m"), str(tmp_path / "dev.json"), "-q"]
    assert main([*call, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["rule"] == {"scale": 1.0, "bias": 0.0, "threshold": 0.5} and len(figures["f1_interval"]) == 2
    assert figures["scores"]["total"] == len(examples)
    assert main(call) == 0
    out = capsys.readouterr().out
    assert "F1  " in out and "exact match" in out and "refused, impossible" in out
    assert main([*call, "--calibrate"]) == 0
    capsys.readouterr()
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    assert config[SPANS_FIELD]["no_answer_scale"] != 1.0 and config[SPANS_FIELD]["max_passage_tokens"] == 9
    assert "no_answer_scale" not in config
    # What it says does not depend on the rule: its predictions are still its own.
    found = evaluate_spans(tmp_path / "m", examples, predictions=tmp_path / "m" / "evaluation" / "dev.jsonl")
    assert found.rule is not None and found.rule.scale == config[SPANS_FIELD]["no_answer_scale"]
    assert main([*call, "--candidates", "2"]) == 1
    assert "expected a DeFormer" in " ".join(capsys.readouterr().err.split())
