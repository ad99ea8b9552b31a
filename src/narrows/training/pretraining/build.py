"""A recipe of pretraining becomes model, data, objective and trainer."""

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate import PartialState
from torch import Tensor
from transformers import TrainingArguments

from narrows.data import PackedRows, TokenCache, TokenizedPieces, evenly_spread
from narrows.data.masking import IGNORED
from narrows.losses import token_loss
from narrows.training.arguments import training_arguments
from narrows.training.optimiser import pretraining_learning_rate
from narrows.training.pretraining.data import (
    Item,
    MaskedRows,
    RowPlan,
    Vocabulary,
    collate_rows,
    read_corpus,
    vocabulary_of,
)
from narrows.training.pretraining.model import build_config, build_model, build_tokenizer
from narrows.training.pretraining.objective import MaskedTokens, MaskedTokensObjective
from narrows.training.pretraining.recipe import PretrainingRecipe
from narrows.training.pretraining.speed import TokenRate
from narrows.training.tasks import Plan, Run
from narrows.training.trainer import ClockCheckpoint, JsonLog, NarrowsTrainer, StopSignal

__all__ = ["build_run", "plan_run"]

# The same tokens are asked for at every evaluation and of every run.
_TUNE_SEED = 0


class _Corpus(NamedTuple):
    pieces: TokenizedPieces
    vocabulary: Vocabulary


def plan_run(recipe: PretrainingRecipe, *, data: Path, runs: Path | None = None) -> Plan:
    """Tokenize a recipe's text, and count; no model is built and nothing is kept."""
    tokenizer = build_tokenizer(recipe, data=data, runs=runs)
    build_config(recipe, tokenizer, runs=runs)
    with tempfile.TemporaryDirectory() as folder:
        rows = _rows(recipe, _corpus(recipe, tokenizer, data, Path(folder)), held_out=False)
        return _plan(recipe, rows, _batches(recipe, rows))


def build_run(
    recipe: PretrainingRecipe, *, data: Path, output: Path, quiet: bool = False, runs: Path | None = None
) -> Run:
    """Everything a run needs, in `output`, token ids in `tokens/` among it.

    Args:
        runs: where checkpoints that are the output of other runs are looked for first.
    """
    torch.manual_seed(recipe.optimiser.seed)
    tokenizer = build_tokenizer(recipe, data=data, runs=runs)
    config = build_config(recipe, tokenizer, runs=runs)
    corpus = _corpus(recipe, tokenizer, data, output / "tokens")
    rows = _rows(recipe, corpus, held_out=False)
    processes = PartialState().num_processes
    batches = _batches(recipe, rows, processes=processes)
    model = build_model(recipe, config, runs=runs)
    ask = MaskedTokens(model, segments=recipe.data.segments, hide_keys=recipe.masking.hide_keys)
    collate = partial(collate_rows, cls_segment=getattr(config, "cls_token_type_id", 0))
    tune = _rows(recipe, corpus, held_out=True) if recipe.data.tunes else None
    stop = StopSignal()
    step_tokens = recipe.batch_rows * recipe.data.length * recipe.optimiser.accumulation * processes
    trainer = NarrowsTrainer(
        objective=MaskedTokensObjective(ask),
        plan=batches,
        collate=collate,
        evaluate_model=None
        if tune is None
        else partial(evaluate_rows, rows=tune, recipe=recipe, ask=ask, collate=collate),
        layer_decay=recipe.optimiser.layer_decay,
        model=model,
        args=_arguments(recipe, config, output, quiet=quiet),
        train_dataset=rows,
        # Only so that transformers agrees to evaluate: what is read is the evaluation's own.
        eval_dataset=tune,
        # The rate is added to what the log writes.
        callbacks=[stop, ClockCheckpoint(), TokenRate(step_tokens), JsonLog(output / "log.jsonl")],
    )

    def save(folder: Path) -> None:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    return Run(trainer, stop, _plan(recipe, rows, batches), save)


def evaluate_rows(
    model: Any, *, rows: MaskedRows, recipe: PretrainingRecipe, ask: MaskedTokens, collate: Any
) -> dict[str, float]:
    """Cross entropy of a predicted token, and how many of them in a hundred are found; the same ones every time."""
    model.eval()
    autocast = recipe.optimiser.dtype == "bfloat16"
    chosen = evenly_spread(range(len(rows)), recipe.evaluate.limit)
    loss, right, labels = 0.0, 0, 0
    for start in range(0, len(chosen), recipe.batch_rows):
        batch: Mapping[str, Tensor] = collate([rows[Item(0, row)] for row in chosen[start : start + recipe.batch_rows]])
        batch = {name: tensor.to(model.device) for name, tensor in batch.items()}
        wanted = batch["labels"][batch["labels"] != IGNORED]
        with torch.inference_mode(), torch.autocast(model.device.type, torch.bfloat16, enabled=autocast):
            logits = ask(model, batch)
        loss += float(token_loss(logits[None], wanted[None]))
        right += int((logits.argmax(-1) == wanted).sum())
        labels += len(wanted)
    return {"loss": loss / labels, "accuracy": 100 * right / labels}


def _corpus(recipe: PretrainingRecipe, tokenizer: Any, data: Path, folder: Path) -> _Corpus:
    vocabulary = vocabulary_of(tokenizer, strategy=recipe.masking.strategy)
    return _Corpus(read_corpus(recipe.data, data, TokenCache(folder, tokenizer=tokenizer)), vocabulary)


def _rows(recipe: PretrainingRecipe, corpus: _Corpus, *, held_out: bool) -> MaskedRows:
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


def _batches(recipe: PretrainingRecipe, rows: MaskedRows, *, processes: int = 1) -> RowPlan:
    optimiser = recipe.optimiser
    if optimiser.steps is not None:
        batches = optimiser.steps * optimiser.accumulation * processes
    else:
        epochs = 1.0 if optimiser.epochs is None else optimiser.epochs
        batches = int(epochs * len(rows)) // recipe.batch_rows
    return RowPlan(rows=len(rows), batch_rows=recipe.batch_rows, batches=batches, seed=optimiser.seed)


def _plan(recipe: PretrainingRecipe, rows: MaskedRows, batches: RowPlan) -> Plan:
    steps = recipe.optimiser.steps or -(-len(batches) // recipe.optimiser.accumulation)
    return Plan(len(rows), len(rows) * recipe.data.length, steps, {})


def _arguments(recipe: PretrainingRecipe, config: Any, output: Path, *, quiet: bool) -> TrainingArguments:
    optimiser = recipe.optimiser
    rate = optimiser.learning_rate or pretraining_learning_rate(getattr(config, "num_hidden_layers", 0))
    return training_arguments(
        optimiser.model_copy(update={"learning_rate": rate}),
        output,
        evaluate_every=recipe.evaluate_every,
        metric="loss" if recipe.data.tunes else None,
        quiet=quiet,
        greater_is_better=False if recipe.data.tunes else None,
        adam_beta2=optimiser.beta2,
        activation_checkpointing=optimiser.gradient_checkpointing,
        activation_checkpointing_kwargs={"use_reentrant": False} if optimiser.gradient_checkpointing else None,
    )
