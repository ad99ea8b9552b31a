"""A classifier over labelled data: predictions, scores with intervals, and what always saying the commonest gives."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import (
    AutoConfig,
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)
from transformers.utils import logging

from narrows._plural import count
from narrows.data import ClassRows, collate_classes, equal_length_batches, token_budget_batches
from narrows.errors import ConversionError, UsageError
from narrows.evaluation.bootstrap import Interval, MeanInterval, bootstrap_score
from narrows.evaluation.class_scores import score_functions
from narrows.hf.checkpoints import checkpoint_folder, require_finite, require_tokenizer
from narrows.hf.encoders import accepted_inputs, changed_by_padding, least_tokens
from narrows.hf.register import register_all
from narrows.hf.trained_classes import TrainedClasses, trained_classes

__all__ = [
    "HEADS",
    "ClassEvaluation",
    "ClassModel",
    "compare_classes",
    "evaluate_classes",
    "load_class_model",
    "majority_of",
    "predict_classes",
    "tune_scores",
]

HEADS: Mapping[str, Any] = {
    "classes": AutoModelForSequenceClassification,
    "regression": AutoModelForSequenceClassification,
    "choices": AutoModelForMultipleChoice,
    "tags": AutoModelForTokenClassification,
}
"""The head of each problem."""

_ENDINGS = {"ForMultipleChoice": "choices", "ForTokenClassification": "tags", "ForSequenceClassification": "classes"}


class ClassModel(NamedTuple):
    """A classifier with its tokenizer.

    Attributes:
        problem: `classes`, `regression`, `choices` or `tags`.
        labels: names, in the model's order; none of choices.
        trained: how it was trained to read; None where its config does not say.
    """

    model: Any
    tokenizer: Any
    problem: str
    labels: tuple[str, ...]
    trained: TrainedClasses | None


@dataclass(frozen=True)
class ClassEvaluation:
    """What an evaluation found, in percent.

    Attributes:
        scores: by name, and their 95 % intervals over examples.
        baseline: the same of always saying `majority`.
        over_baseline: the paired difference of the two.
        majority: what the baseline says.
        predictions: of each example, as `predict_classes` gives them.
        gold: the same of the data.
        problem: what was asked.
        labels: names of the classes.
    """

    scores: Mapping[str, MeanInterval]
    baseline: Mapping[str, MeanInterval]
    over_baseline: Mapping[str, Interval]
    majority: float
    predictions: Sequence[Any]
    gold: Sequence[Any]
    problem: str
    labels: Sequence[str]


def load_class_model(checkpoint: str | Path) -> ClassModel:
    """A classifier of any family, in fp32, in evaluation mode, on the CPU.

    Raises:
        ConversionError: no checkpoint, or one without a trained head for classes, choices or tags.
    """
    register_all()
    folder = checkpoint_folder(checkpoint)
    config = AutoConfig.from_pretrained(folder)
    named = next(iter(config.architectures or []), "")
    problem = next((kind for ending, kind in _ENDINGS.items() if named.endswith(ending)), None)
    if problem is None:
        raise ConversionError(
            f"expected a checkpoint with a head for classes, choices or tags, got {checkpoint} "
            f"({named or 'without a head'}); train it first, or name another"
        )
    if problem == "classes" and (config.problem_type == "regression" or config.num_labels == 1):
        problem = "regression"
    require_tokenizer(folder)
    verbosity = logging.get_verbosity()
    # Its table of what is missing would stand before our sentence.
    logging.set_verbosity_error()
    try:
        model, info = HEADS[problem].from_pretrained(folder, dtype=torch.float32, output_loading_info=True)
    finally:
        logging.set_verbosity(verbosity)
    if info["missing_keys"]:
        raise ConversionError(
            f"expected a trained head in {checkpoint}, got none for {min(info['missing_keys'])}; train it first, or "
            "name another"
        )
    require_finite(model.state_dict(), checkpoint)
    names: Any = config.id2label
    labels = () if problem == "choices" else tuple(str(names[number]) for number in range(len(names)))
    return ClassModel(model.eval(), AutoTokenizer.from_pretrained(folder), problem, labels, trained_classes(config))


def predict_classes(
    model: Any,
    rows: ClassRows,
    tokenizer: Any,
    *,
    batch_tokens: int,
    autocast: bool = False,
    on_rows: Callable[[int], Any] | None = None,
) -> list[Any]:
    """What a model says of each row, in their order; leaves the model in evaluation mode.

    Args:
        autocast: compute in bf16.
        on_rows: told of the rows of each batch.

    Returns:
        A class or choice, a number of a regression; of tags a list of one a word, -1 where it was not read.
    """
    model.eval()
    taken, device = accepted_inputs(model), next(model.parameters()).device
    padding = {"pad": tokenizer.pad_token_id, "pad_type": tokenizer.pad_token_type_id}
    collate = partial(collate_classes, **padding, least=least_tokens(model.config))
    found: list[Any] = [None] * len(rows)
    cut = equal_length_batches if changed_by_padding(model.config) else token_budget_batches
    for batch in cut(rows.lengths, batch_tokens=batch_tokens):
        chosen = [rows[index] for index in batch]
        inputs = {name: tensor.to(device) for name, tensor in collate(chosen).items() if name in taken - {"labels"}}
        with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=autocast):
            logits = model(**inputs).logits.float().cpu()
        best = logits[:, 0] if rows.problem == "regression" else logits.argmax(-1)
        for index, row, values in zip(batch, chosen, best.tolist(), strict=True):
            found[index] = values
            if rows.problem == "tags":
                found[index] = [values[token] if token >= 0 else -1 for token in row.words]
        if on_rows is not None:
            on_rows(len(batch))
    return found


def majority_of(rows: ClassRows) -> float:
    """The commonest class, choice or tag of some rows, by its number; of numbers their mean."""
    if rows.problem == "regression":
        return float(np.mean(rows.labels))
    counts = Counter(label for found in rows.labels for label in (found if isinstance(found, tuple) else (found,)))
    # Of equally common ones the first, so that it does not depend on the order of rows.
    return float(max(sorted(counts), key=counts.__getitem__))


def evaluate_classes(
    predictions: Sequence[Any], rows: ClassRows, *, labels: Sequence[str], majority: float | None = None
) -> ClassEvaluation:
    """Scores of predictions, beside always saying the commonest.

    Args:
        predictions: of `predict_classes`.
        rows: with the labels.
        labels: names of the classes, in their order.
        majority: what the baseline says; None: the commonest of these rows, which no honest baseline can know.

    Raises:
        UsageError: no rows, or another number of predictions.
    """
    if len(predictions) != len(rows):
        raise UsageError(
            f"expected a prediction for each of {count(len(rows), 'row')}, got {len(predictions):,}; pass all."
        )
    gold, problem = rows.labels, rows.problem
    said = majority_of(rows) if majority is None else majority
    constant: list[Any] = [said if problem == "regression" else int(said)] * len(rows)
    if problem == "tags":
        constant = [[int(said)] * len(label) for label in gold]
    ours = score_functions(problem, predictions, gold, labels=labels)
    base = score_functions(problem, constant, gold, labels=labels)
    return ClassEvaluation(
        {name: bootstrap_score(score, len(rows)) for name, score in ours.items()},
        {name: bootstrap_score(score, len(rows)) for name, score in base.items()},
        {name: _difference(score, base[name], len(rows)) for name, score in ours.items()},
        said,
        predictions,
        gold,
        problem,
        labels,
    )


def compare_classes(ours: ClassEvaluation, theirs: ClassEvaluation) -> dict[str, Interval]:
    """By score, that of one model less that of another on the same data, in points, and its 95 % interval.

    Raises:
        UsageError: they were not scored on the same examples, or not for the same problem.
    """
    if ours.problem != theirs.problem or list(ours.gold) != list(theirs.gold):
        raise UsageError(
            "expected two models of one problem with one order of labels on the same examples, got others; compare "
            "models that were trained on one task."
        )
    first, second = (
        score_functions(one.problem, one.predictions, one.gold, labels=one.labels) for one in (ours, theirs)
    )
    return {name: _difference(score, second[name], len(ours.gold)) for name, score in first.items()}


def tune_scores(predictions: Sequence[Any], rows: ClassRows, *, labels: Sequence[str]) -> dict[str, float]:
    """The scores alone, by name."""
    everything = np.arange(len(rows))
    found = score_functions(rows.problem, predictions, rows.labels, labels=labels)
    return {name: score(everything) for name, score in found.items()}


def _difference(ours: Callable[..., float], theirs: Callable[..., float], items: int) -> Interval:
    return Interval(*bootstrap_score(lambda chosen: ours(chosen) - theirs(chosen), items))
