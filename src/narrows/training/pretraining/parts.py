"""What all runs over raw text have in common: rows, batches, and a trainer over them."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn
from transformers import TrainingArguments

from narrows.data import PackedRows, TokenCache, TokenizedPieces
from narrows.training.arguments import training_arguments
from narrows.training.optimiser import pretraining_learning_rate, pretraining_warmup
from narrows.training.pretraining.data import (
    MaskedRows,
    RowPlan,
    Vocabulary,
    collate_rows,
    read_corpus,
    vocabulary_of,
)
from narrows.training.pretraining.recipe import PretrainingRecipe, StepsSection
from narrows.training.pretraining.speed import TokenRate
from narrows.training.tasks import Plan
from narrows.training.trainer import ClockCheckpoint, JsonLog, NarrowsTrainer, Objective, StopSignal

__all__ = [
    "Corpus",
    "Prepared",
    "arguments_of",
    "batches_of",
    "collate_for",
    "corpus_of",
    "make_trainer",
    "prepare",
    "rows_of",
]

# The same tokens are asked for at every evaluation and of every run.
_TUNE_SEED = 0


class Corpus(NamedTuple):
    """The tokenized text of a recipe, and what masking knows of its tokens."""

    pieces: TokenizedPieces
    vocabulary: Vocabulary


class Prepared(NamedTuple):
    """The data of a run.

    Attributes:
        rows: to train on.
        tune: to evaluate on, if there are any.
        batches: of the whole run.
        plan: how large it is.
        step_tokens: of an optimiser step, over all its micro-batches and processes.
    """

    rows: MaskedRows
    tune: MaskedRows | None
    batches: RowPlan
    plan: Plan
    step_tokens: int


def prepare(
    recipe: PretrainingRecipe, tokenizer: Any, *, data: Path, folder: Path, tunes: bool, processes: int = 1
) -> Prepared:
    """Tokenize a recipe's text into files of `folder`, and lay out its rows and batches.

    Args:
        tunes: whether rows to evaluate on are wanted, where the recipe has any.
        processes: that the run is split over.
    """
    corpus = corpus_of(recipe, tokenizer, data, folder)
    rows = rows_of(recipe, corpus, held_out=False)
    batches, steps = batches_of(recipe.optimiser, rows=len(rows), batch_rows=recipe.batch_rows, processes=processes)
    return Prepared(
        rows=rows,
        tune=rows_of(recipe, corpus, held_out=True) if tunes and recipe.data.tunes else None,
        batches=batches,
        plan=Plan(len(rows), len(rows) * recipe.data.length, steps, {}),
        step_tokens=recipe.batch_rows * recipe.data.length * recipe.optimiser.accumulation * processes,
    )


def batches_of(optimiser: StepsSection, *, rows: int, batch_rows: int, processes: int) -> tuple[RowPlan, int]:
    """All batches of a run, and the optimiser steps that they are.

    Args:
        rows: of an epoch.
        batch_rows: rows of a forward pass.
        processes: that the run is split over.
    """
    if optimiser.steps is not None:
        number = optimiser.steps * optimiser.accumulation * processes
    else:
        epochs = 1.0 if optimiser.epochs is None else optimiser.epochs
        number = int(epochs * rows) // batch_rows
    batches = RowPlan(rows=rows, batch_rows=batch_rows, batches=number, seed=optimiser.seed)
    # Of the batches each process takes its share.
    return batches, optimiser.steps or math.ceil(math.ceil(len(batches) / processes) / optimiser.accumulation)


def corpus_of(recipe: PretrainingRecipe, tokenizer: Any, data: Path, folder: Path) -> Corpus:
    """The text of a recipe, tokenized into files of `folder`."""
    vocabulary = vocabulary_of(tokenizer, strategy=recipe.masking.strategy)
    return Corpus(read_corpus(recipe.data, data, TokenCache(folder, tokenizer=tokenizer)), vocabulary)


def rows_of(recipe: PretrainingRecipe, corpus: Corpus, *, held_out: bool) -> MaskedRows:
    """The rows to train on, or those to evaluate on."""
    data, vocabulary = recipe.data, corpus.vocabulary
    packed = PackedRows(
        corpus.pieces,
        held_out=held_out,
        length=data.length,
        cls=vocabulary.cls,
        sep=vocabulary.sep,
        segments=data.segments,
    )
    seed = _TUNE_SEED if held_out else recipe.optimiser.seed
    return MaskedRows(packed, vocabulary, recipe.masking, length=data.length, seed=seed)


def collate_for(config: Any) -> Callable[..., Mapping[str, Any]]:
    """Rows into batches, with the segment of [CLS] that a model's config says."""
    return partial(collate_rows, cls_segment=getattr(config, "cls_token_type_id", 0))


def make_trainer(
    recipe: PretrainingRecipe,
    prepared: Prepared,
    *,
    model: Any,
    objective: Objective,
    evaluate_model: Callable[[nn.Module], Mapping[str, float]] | None,
    output: Path,
    quiet: bool,
    keep_best: bool,
) -> tuple[NarrowsTrainer, StopSignal]:
    """A trainer over prepared data, and the signal it heeds.

    Args:
        evaluate_model: None where there is nothing to evaluate on.
        keep_best: whether the checkpoint with the lowest loss is the model; otherwise the last one is.
    """
    stop = StopSignal()
    trainer = NarrowsTrainer(
        objective=objective,
        plan=prepared.batches,
        collate=collate_for(model.config),
        evaluate_model=evaluate_model,
        layer_decay=recipe.optimiser.layer_decay,
        model=model,
        args=arguments_of(recipe, model.config, output, steps=prepared.plan.steps, quiet=quiet, keep_best=keep_best),
        train_dataset=prepared.rows,
        # Only so that transformers agrees to evaluate: what is read is the evaluation's own.
        eval_dataset=prepared.tune,
        # The rate is added to what the log writes.
        callbacks=[stop, ClockCheckpoint(), TokenRate(prepared.step_tokens), JsonLog(output / "log.jsonl")],
    )
    return trainer, stop


def arguments_of(
    recipe: PretrainingRecipe, config: Any, output: Path, *, steps: int, quiet: bool, keep_best: bool = True
) -> TrainingArguments:
    """transformers' arguments, with the learning rate of the model's depth and the warm-up of the run's length."""
    optimiser = recipe.optimiser
    rate = optimiser.learning_rate or pretraining_learning_rate(getattr(config, "num_hidden_layers", 0))
    warmup = pretraining_warmup(steps) if optimiser.warmup is None else optimiser.warmup
    others: dict[str, Any] = {} if keep_best else {"load_best_model_at_end": False}
    return training_arguments(
        optimiser.model_copy(update={"learning_rate": rate, "warmup": warmup}),
        output,
        evaluate_every=recipe.evaluate_every,
        metric="loss" if recipe.data.tunes else None,
        quiet=quiet,
        greater_is_better=False if recipe.data.tunes else None,
        adam_beta2=optimiser.beta2,
        activation_checkpointing=optimiser.gradient_checkpointing,
        activation_checkpointing_kwargs={"use_reentrant": False} if optimiser.gradient_checkpointing else None,
        **others,
    )
