"""A recipe of classification becomes model, rows, objective and trainer; and its test data scores."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from narrows.data import (
    ClassExample,
    ClassRows,
    collate_classes,
    encode_classes,
    evenly_spread,
    label_names,
    read_examples,
)
from narrows.errors import UsageError
from narrows.evaluation.class_scores import marks_spans
from narrows.evaluation.classification import (
    ClassEvaluation,
    evaluate_classes,
    load_class_model,
    majority_of,
    predict_classes,
    tune_scores,
)
from narrows.hf.encoders import accepted_inputs, least_tokens
from narrows.hf.trained_classes import TrainedClasses, note_classes
from narrows.training.arguments import fine_tuning_arguments
from narrows.training.batches import BatchPlan
from narrows.training.classification.model import build_model, build_tokenizer, order_labels
from narrows.training.classification.objective import ClassObjective
from narrows.training.classification.recipe import ClassRecipe, LabelledPart
from narrows.training.tasks import Plan, Run
from narrows.training.trainer import ClockCheckpoint, JsonLog, NarrowsTrainer, StopSignal

__all__ = ["build_run", "plan_run", "score_on_test"]


def plan_run(recipe: ClassRecipe, *, data: Path, runs: Path | None = None) -> Plan:
    """Read and cut a recipe's data, and count; no model is built."""
    tokenizer = build_tokenizer(recipe, runs=runs)
    examples = _read(recipe, recipe.data.train, data)
    rows = _rows(recipe, examples, tokenizer, order_labels(recipe, label_names(examples), runs=runs))
    return _plan(recipe, rows, _batches(recipe, rows))


def build_run(recipe: ClassRecipe, *, data: Path, output: Path, quiet: bool = False, runs: Path | None = None) -> Run:
    """Everything a run needs, in `output`.

    Args:
        runs: where checkpoints that are the output of other runs are looked for first.

    Raises:
        UsageError: see `read_examples`, `encode_classes` and `build_model`; a metric of spans, and tags that mark none.
        ConversionError: see `build_model`.
    """
    torch.manual_seed(recipe.optimiser.seed)
    tokenizer = build_tokenizer(recipe, runs=runs)
    examples = _read(recipe, recipe.data.train, data)
    labels = order_labels(recipe, label_names(examples), runs=runs)
    rows = _rows(recipe, examples, tokenizer, labels)
    batches = _batches(recipe, rows)
    tune = None
    if recipe.data.tune:
        _require_metric(recipe, labels)
        chosen = evenly_spread(_read(recipe, recipe.data.tune, data), recipe.data.tune_limit)
        tune = _rows(recipe, chosen, tokenizer, labels)
    model = build_model(recipe, tokenizer, labels, runs=runs)
    evaluate = (
        None if tune is None else partial(_evaluate, rows=tune, tokenizer=tokenizer, recipe=recipe, labels=labels)
    )
    stop = StopSignal()
    trainer = NarrowsTrainer(
        objective=ClassObjective(recipe.problem, accepted_inputs(model)),
        plan=batches,
        collate=partial(
            collate_classes,
            pad=tokenizer.pad_token_id,
            pad_type=tokenizer.pad_token_type_id,
            least=least_tokens(model.config),
        ),
        evaluate_model=evaluate,
        layer_decay=recipe.optimiser.layer_decay,
        model=model,
        args=fine_tuning_arguments(
            recipe.optimiser,
            output,
            evaluate_every=recipe.evaluate_every,
            metric=recipe.chosen_metric if recipe.data.tune else None,
            quiet=quiet,
        ),
        train_dataset=rows,
        # Only so that transformers agrees to evaluate: what is read is the evaluation's own.
        eval_dataset=tune,
        callbacks=[stop, ClockCheckpoint(), JsonLog(output / "log.jsonl")],
    )
    save = partial(_save, model, tokenizer, recipe, majority_of(rows))
    return Run(trainer, stop, _plan(recipe, rows, batches), save)


def score_on_test(recipe: ClassRecipe, *, data: Path, model: Path) -> dict[str, Any]:
    """The scores of a trained model on the recipe's test data, beside always saying the commonest training label.

    Returns:
        `scores`, `baseline` and `over_baseline` by name, each with its interval, `rows` and `truncated`; and what a
        comparison with another model wants: `problem`, `labels`, and of each row its `predictions` and `gold`.

    Raises:
        UsageError: a recipe without test data.
    """
    if not recipe.data.test:
        raise UsageError(f"expected 'data.test' in the recipe {recipe.name} to score it on, got none; name test data")
    trained = load_class_model(model)
    trained.model.to("cuda" if torch.cuda.is_available() else "cpu")
    rows = _rows(recipe, _read(recipe, recipe.data.test, data), trained.tokenizer, trained.labels)
    said = predict_classes(trained.model, rows, trained.tokenizer, batch_tokens=recipe.optimiser.batch_tokens)
    majority = None if trained.trained is None else trained.trained.majority
    return _figures(evaluate_classes(said, rows, labels=trained.labels, majority=majority), rows)


def _figures(found: ClassEvaluation, rows: ClassRows) -> dict[str, Any]:
    parts = {"scores": found.scores, "baseline": found.baseline, "over_baseline": found.over_baseline}
    figures: dict[str, Any] = {
        part: {name: one._asdict() for name, one in scores.items()} for part, scores in parts.items()
    }
    figures |= {"rows": len(rows), "truncated": rows.truncated}
    said = {"problem": found.problem, "labels": list(found.labels)}
    return {**figures, **said, "predictions": list(found.predictions), "gold": list(found.gold)}


def _read(recipe: ClassRecipe, parts: Sequence[LabelledPart], data: Path) -> list[ClassExample]:
    found: list[ClassExample] = []
    for part in parts:
        examples = read_examples(
            data / part.file,
            layout=part.format,
            fields=part.fields,
            skip_broken=part.skip_broken,
            folds=part.folds,
            take=part.take,
            stratified=recipe.problem != "regression",
        )
        found += examples * part.times
    return found


def _require_metric(recipe: ClassRecipe, labels: Sequence[str]) -> None:
    if recipe.problem == "tags" and recipe.chosen_metric == "f1" and not marks_spans(labels):
        raise UsageError(
            f"expected tags that mark spans (B-..., I-...) for the metric f1, got {', '.join(labels[:5])}; set "
            "'metric: accuracy', which counts words"
        )


def _rows(recipe: ClassRecipe, examples: Sequence[ClassExample], tokenizer: Any, labels: Sequence[str]) -> ClassRows:
    data = recipe.data
    return encode_classes(
        examples,
        tokenizer,
        problem=recipe.problem,
        labels=labels,
        max_tokens=data.max_tokens,
        truncate=data.truncate,
    )


def _batches(recipe: ClassRecipe, rows: ClassRows) -> BatchPlan:
    optimiser = recipe.optimiser
    return BatchPlan(
        rows.lengths,
        batch_tokens=optimiser.batch_tokens,
        epochs=optimiser.epochs,
        seed=optimiser.seed,
        batch_rows=optimiser.batch_rows,
    )


def _plan(recipe: ClassRecipe, rows: ClassRows, batches: BatchPlan) -> Plan:
    steps = -(-len(batches) // recipe.optimiser.accumulation)
    return Plan(len(rows), sum(rows.lengths), steps, {"texts": rows.truncated} if rows.truncated else {})


def _evaluate(
    model: nn.Module, *, rows: ClassRows, tokenizer: Any, recipe: ClassRecipe, labels: Sequence[str]
) -> Mapping[str, float]:
    optimiser = recipe.optimiser
    said = predict_classes(
        model, rows, tokenizer, batch_tokens=optimiser.batch_tokens, autocast=optimiser.dtype == "bfloat16"
    )
    return tune_scores(said, rows, labels=labels)


def _save(model: Any, tokenizer: Any, recipe: ClassRecipe, majority: float, folder: Path) -> None:
    data, part = recipe.data, recipe.data.train[0]
    read = TrainedClasses(recipe.problem, part.format, part.fields, data.max_tokens, data.truncate, majority)
    note_classes(model.config, read)
    model.save_pretrained(folder)
    # What reads with this model, `narrows classify` among it, reads no more than was trained.
    tokenizer.model_max_length = data.max_tokens
    tokenizer.save_pretrained(folder)
