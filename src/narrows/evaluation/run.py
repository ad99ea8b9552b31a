"""A span model over a data set: predictions that survive a stop, scores, and a comparison beyond chance."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

from torch import nn
from transformers import AutoConfig, AutoTokenizer

from narrows.data import QAExample, SpanEncoder
from narrows.deformer import DeformerConfig
from narrows.deformer.convert import convert_checkpoint
from narrows.deformer.loading import load_reader
from narrows.errors import ConversionError, UsageError
from narrows.evaluation.bootstrap import Interval, MeanInterval, bootstrap, paired_bootstrap
from narrows.evaluation.calibration import NoAnswerRule, answer_probability
from narrows.evaluation.metrics import SquadScores, f1, squad_scores
from narrows.evaluation.resuming import append_lines, claim, require_unique
from narrows.evaluation.span_models import layout_of, load_span_head
from narrows.evaluation.spans import SpanPrediction, predict_spans
from narrows.hf.checkpoints import checkpoint_folder, require_tokenizer
from narrows.hf.register import register_all
from narrows.hf.tokenizers import tokenizer_digest
from narrows.hf.trained_spans import SPANS_FIELD, is_noted, trained_spans

__all__ = [
    "NoAnswerRule",
    "Prediction",
    "SpanEvaluation",
    "compare",
    "evaluate_spans",
    "load_span_model",
    "predict_examples",
    "read_predictions",
    "score",
]

_EXAMPLES_A_CHUNK = 128


class Prediction(NamedTuple):
    """The best span's text and its margin over "no answer" (-inf when there is no passage)."""

    text: str
    margin: float


@dataclass(frozen=True)
class SpanEvaluation:
    """What an evaluation found.

    Attributes:
        scores: with `rule` where the data has impossible questions (v2.0), without it elsewhere (v1.1).
        f1: mean F1 in percent, and its 95 % interval.
        rule: None: every question got its best span.
        truncated_questions: questions cut to the model's room, among those read in this call.
        predictions: by question id, before the rule.
    """

    scores: SquadScores
    f1: MeanInterval
    rule: NoAnswerRule | None
    truncated_questions: int
    predictions: Mapping[str, Prediction]


def load_span_model(checkpoint: str | Path) -> tuple[Any, Any]:
    """A span reader of any family and its tokenizer: a DeFormer, or any other with a trained span head.

    A BERT that does not say how it was trained here to read becomes a DeFormer that is not split, which reads as its
    authors do.

    Raises:
        ConversionError: a checkpoint without a trained span head or without a tokenizer.
    """
    register_all()
    folder = checkpoint_folder(checkpoint)
    require_tokenizer(folder)
    config = AutoConfig.from_pretrained(folder)
    if config.model_type == DeformerConfig.model_type:
        model = load_reader(folder)
    elif config.model_type == "bert" and not is_noted(config):
        model, report = convert_checkpoint(
            folder, split_layer=0, task="question-answering", passage_positions="continue"
        )
        if report.new:
            raise ConversionError(
                f"expected a checkpoint with a trained span head, got {checkpoint} without one; "
                "train it first with `narrows train`"
            )
    else:
        model = load_span_head(folder, config, checkpoint)
    return model.eval(), AutoTokenizer.from_pretrained(folder)


def evaluate_spans(
    checkpoint: str | Path,
    examples: Sequence[QAExample],
    *,
    predictions: Path | None = None,
    device: str = "cpu",
    batch_tokens: int = 8192,
    on_examples: Callable[[int], None] | None = None,
) -> SpanEvaluation:
    """Read every question with a model and score it.

    Args:
        checkpoint: of a span model; its config says how long questions, passages and answers may be.
        examples: questions, each id once.
        predictions: JSON Lines of `id`, `text`, `margin`, written as they come; a file of the same
            model and questions is gone on with.
        device: `cpu` or `cuda`.
        batch_tokens: padded tokens of a forward pass.
        on_examples: told how many questions are done, for a progress bar.

    Raises:
        UsageError: an id twice, or the file holds predictions of another model or other questions, or cannot be
            written.
        ConversionError: see `load_span_model`.
    """
    require_unique(example.id for example in examples)
    model, tokenizer = load_span_model(checkpoint)
    cast(nn.Module, model).to(device)
    found: dict[str, Prediction] = {}
    if predictions is not None:
        claim(predictions, _identity(model, tokenizer, examples))
        found = read_predictions(predictions)
    kept = {example.id for example in examples}
    found = {name: prediction for name, prediction in found.items() if name in kept}
    if on_examples is not None:
        on_examples(len(found))
    rest = [example for example in examples if example.id not in found]
    truncated = 0
    for first in range(0, len(rest), _EXAMPLES_A_CHUNK):
        chunk = rest[first : first + _EXAMPLES_A_CHUNK]
        spans, cut = predict_examples(model, tokenizer, chunk, batch_tokens=batch_tokens)
        fresh = {example.id: Prediction(span.text, span.margin) for example, span in zip(chunk, spans, strict=True)}
        truncated += cut
        found.update(fresh)
        if predictions is not None:
            _append(predictions, fresh)
        if on_examples is not None:
            on_examples(len(chunk))
    return score(found, examples, rule=_rule_of(model), truncated_questions=truncated)


def score(
    predictions: Mapping[str, Prediction],
    examples: Sequence[QAExample],
    *,
    rule: NoAnswerRule,
    truncated_questions: int = 0,
) -> SpanEvaluation:
    """Scores of predictions; the rule is applied when some question is impossible."""
    used = rule if any(example.impossible for example in examples) else None
    final = _final(predictions, used)
    scores = squad_scores(final, examples)
    return SpanEvaluation(scores, bootstrap(_f1s(final, examples)), used, truncated_questions, predictions)


def compare(
    ours: SpanEvaluation,
    theirs: Mapping[str, Prediction],
    examples: Sequence[QAExample],
    *,
    rule: NoAnswerRule | None = None,
) -> Interval:
    """F1 of an evaluation less that of other predictions, in points, and its 95 % interval.

    Args:
        theirs: from `evaluate_spans` or `read_predictions`.
        rule: that decides which of `theirs` are answers; None: their texts are final.

    Raises:
        UsageError: a question without a prediction among `theirs`.
    """
    for example in examples:
        if example.id not in theirs:
            raise UsageError(
                f"expected predictions of the same questions, got none for {example.id!r}; "
                "evaluate both on the same data"
            )
    first = _f1s(_final(ours.predictions, ours.rule), examples)
    return paired_bootstrap(first, _f1s(_final(theirs, rule), examples))


def read_predictions(path: Path) -> dict[str, Prediction]:
    """Predictions of a JSON Lines file; none when there is no file. A last line cut short is left out.

    Raises:
        UsageError: a line that is no prediction.
    """
    if not path.is_file():
        return {}
    found = {}
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):
        try:
            record = json.loads(line)
            margin = -math.inf if record["margin"] is None else float(record["margin"])
            found[str(record["id"])] = Prediction(str(record["text"]), margin)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise UsageError(
                f"expected `id`, `text` and `margin` in line {number} of {path}, got {line[:60]!r}; "
                "pass a file that `narrows evaluate` wrote"
            ) from error
    return found


def predict_examples(
    model: Any, tokenizer: Any, examples: Sequence[QAExample], *, batch_tokens: int = 8192
) -> tuple[list[SpanPrediction], int]:
    """A model's best span for every example; its config says how long questions, passages and answers may be.

    Args:
        model: as `load_span_model` gives it, with its tokenizer.
        examples: questions; their answers are not looked at.
        batch_tokens: padded tokens of a forward pass.

    Returns:
        A span an example, and how many questions were cut to their room.

    Raises:
        UsageError: a tokenizer that does not join pairs as BERT's does.
    """
    reading = trained_spans(model.config)
    encoder = SpanEncoder(
        tokenizer,
        max_question_tokens=reading.max_question_tokens,
        max_passage_tokens=reading.max_passage_tokens,
        overlap=reading.overlap,
    )
    encoded = encoder.encode(examples)
    spans = predict_spans(
        model,
        examples,
        encoded.features,
        layout=layout_of(model, tokenizer),
        batch_tokens=batch_tokens,
        max_answer_tokens=reading.max_answer_tokens,
    )
    return spans, encoded.truncated_questions


def _final(predictions: Mapping[str, Prediction], rule: NoAnswerRule | None) -> dict[str, str]:
    def answered(prediction: Prediction) -> bool:
        if rule is None:
            return True
        return answer_probability(prediction.margin, scale=rule.scale, bias=rule.bias) >= rule.threshold

    return {name: p.text if answered(p) else "" for name, p in predictions.items()}


def _f1s(final: Mapping[str, str], examples: Sequence[QAExample]) -> list[float]:
    return [100 * f1(final[example.id], [answer.text for answer in example.answers]) for example in examples]


def _rule_of(model: Any) -> NoAnswerRule:
    reading = trained_spans(model.config)
    return NoAnswerRule(reading.no_answer_scale, reading.no_answer_bias, reading.no_answer_threshold)


def _identity(model: Any, tokenizer: Any, examples: Sequence[QAExample]) -> str:
    """sha256 of all that predictions depend on."""
    config, reading = model.config, trained_spans(model.config)
    of_model = f"{type(model).__name__} {reading.overlap} {_without_rule(config)}"
    if config.model_type == DeformerConfig.model_type:
        of_model = f"{config.split_layer} {config.passage_positions}"
    lengths = f"{reading.max_question_tokens} {reading.max_passage_tokens} {reading.max_answer_tokens}"
    digest = hashlib.sha256(f"{of_model} {lengths}".encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    digest.update(tokenizer_digest(tokenizer).encode())
    for example in examples:
        digest.update(json.dumps([example.id, example.question, example.context]).encode())
    return digest.hexdigest()


def _without_rule(config: Any) -> str:
    """A config as text, without what is not looked at before a prediction is made."""
    fields = json.loads(config.to_json_string())
    return json.dumps({name: value for name, value in fields.items() if name != SPANS_FIELD}, sort_keys=True)


def _append(path: Path, fresh: Mapping[str, Prediction]) -> None:
    # JSON has no infinity.
    margins = {name: None if math.isinf(found.margin) else found.margin for name, found in fresh.items()}
    append_lines(path, ({"id": name, "text": fresh[name].text, "margin": margin} for name, margin in margins.items()))
