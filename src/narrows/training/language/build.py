"""A recipe of a causal language model becomes model, data, objective and trainer; and its test text scores."""

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from accelerate import PartialState
from torch import nn
from transformers import TrainingArguments

from narrows._plural import count
from narrows.errors import UsageError
from narrows.evaluation.language import LanguageEvaluation, evaluate_line
from narrows.evaluation.language_models import TrainedLanguage, load_language_model, note_language
from narrows.hf.byte_tokenizer import BYTES, byte_tokenizer
from narrows.training.arguments import training_arguments
from narrows.training.language.data import LanguageRows, TextLine, collate_rows, read_lines, require_ids
from narrows.training.language.model import build_config, build_model, build_tokenizer, tokenizer_of
from narrows.training.language.objective import NextTokenObjective
from narrows.training.language.recipe import LanguageRecipe
from narrows.training.language.speed import PeakMemory
from narrows.training.pretraining.data import RowPlan
from narrows.training.pretraining.parts import batches_of
from narrows.training.pretraining.speed import TokenRate
from narrows.training.tasks import Plan, Run
from narrows.training.trainer import ClockCheckpoint, JsonLog, NarrowsTrainer, StopSignal

__all__ = ["build_run", "plan_run", "score_on_test"]

_LEAST_TOKENS = 2


class _Prepared(NamedTuple):
    rows: LanguageRows
    tune: TextLine | None
    batches: RowPlan
    plan: Plan


def plan_run(recipe: LanguageRecipe, *, data: Path, runs: Path | None = None) -> Plan:
    """Read a recipe's text, and count; no model is built and nothing is kept."""
    tokenizer = build_tokenizer(recipe, data=data, runs=runs)
    config = build_config(recipe, tokenizer, runs=runs)
    with tempfile.TemporaryDirectory() as folder:
        return _prepare(recipe, tokenizer, config, data=data, folder=Path(folder), processes=1).plan


def build_run(
    recipe: LanguageRecipe, *, data: Path, output: Path, quiet: bool = False, runs: Path | None = None
) -> Run:
    """Everything a run needs, in `output`, token ids in `tokens/` among it.

    Args:
        runs: where checkpoints that are the output of other runs are looked for first.

    Raises:
        UsageError: see `build_config`, `build_model`, `read_lines` and `LanguageRows`; text with ids outside of the
            model's vocabulary.
        ConversionError: see `build_model`.
    """
    torch.manual_seed(recipe.optimiser.seed)
    tokenizer = build_tokenizer(recipe, data=data, runs=runs)
    config = build_config(recipe, tokenizer, runs=runs)
    processes = PartialState().num_processes
    prepared = _prepare(recipe, tokenizer, config, data=data, folder=output / "tokens", processes=processes)
    model = build_model(recipe, config, runs=runs)
    # transformers' trainer turns it off for good, and whoever generates with the model wants it.
    use_cache = getattr(model.config, "use_cache", None)
    note_language(model.config, TrainedLanguage(BYTES if tokenizer is None else "tokens", recipe.data.length))
    evaluate = None
    if prepared.tune is not None:
        evaluate = partial(_evaluate, line=prepared.tune, recipe=recipe)
    step_tokens = recipe.batch_rows * recipe.data.length * recipe.optimiser.accumulation * processes
    stop = StopSignal()
    trainer = NarrowsTrainer(
        objective=NextTokenObjective(model),
        plan=prepared.batches,
        collate=collate_rows,
        evaluate_model=evaluate,
        layer_decay=recipe.optimiser.layer_decay,
        model=model,
        args=_arguments(recipe, output, quiet=quiet),
        train_dataset=prepared.rows,
        # Only so that transformers agrees to evaluate: what is read is the evaluation's own.
        eval_dataset=prepared.rows,
        # Rate and memory are added to what the log writes.
        callbacks=[stop, ClockCheckpoint(), TokenRate(step_tokens), PeakMemory(), JsonLog(output / "log.jsonl")],
    )

    def save(folder: Path) -> None:
        if use_cache is not None:
            model.config.use_cache = use_cache
        model.save_pretrained(folder)
        (byte_tokenizer() if tokenizer is None else tokenizer).save_pretrained(folder)

    return Run(trainer, stop, prepared.plan, save)


def score_on_test(recipe: LanguageRecipe, *, data: Path, model: Path) -> dict[str, Any]:
    """The scores of a trained model on the recipe's test text, all of it, beside knowing how often each token is in it.

    Returns:
        `scores` and `baseline`, by name (`loss`, `bits_per_byte`, `perplexity`) each with its interval; `baseline_is`,
        in words; `rows` (windows), `tokens` that were scored, and the `bytes` that they stand for.

    Raises:
        UsageError: a recipe without test text.
    """
    if not recipe.data.tests:
        raise UsageError(
            f"expected data.split or data.test in the recipe {recipe.name} to score it on, got neither; name one"
        )
    tokenizer = tokenizer_of(model)
    trained = load_language_model(model).to("cuda" if torch.cuda.is_available() else "cpu")
    with tempfile.TemporaryDirectory() as folder:
        line = read_lines(recipe, tokenizer, data=data, folder=Path(folder), uses=["test"])["test"]
        _require_scored(line, "test")
        require_ids(line, tokenizer, trained.config.vocab_size)
        found = evaluate_line(
            trained,
            line,
            length=recipe.data.length,
            stride=recipe.evaluate.stride,
            batch_tokens=recipe.optimiser.batch_tokens,
        )
        baseline = found.of_loss(_entropy(line))
    return {
        "scores": {name: one._asdict() for name, one in found.intervals().items()},
        "baseline": {name: {"mean": value} for name, value in baseline.items()},
        "baseline_is": "knowing how often each token is",
        "rows": len(found.nats),
        "tokens": int(found.tokens.sum()),
        "bytes": found.bytes,
    }


def _prepare(
    recipe: LanguageRecipe, tokenizer: Any | None, config: Any, *, data: Path, folder: Path, processes: int
) -> _Prepared:
    lines = read_lines(recipe, tokenizer, data=data, folder=folder, uses=["train", "tune"])
    for line in lines.values():
        require_ids(line, tokenizer, config.vocab_size)
    tune = lines.get("tune")
    if tune is not None:
        tune = tune.head(recipe.evaluate.limit or 1.0)
        _require_scored(tune, "tune")
    optimiser, length = recipe.optimiser, recipe.data.length
    rows = LanguageRows(lines["train"], length=length, seed=optimiser.seed)
    batches, steps = batches_of(optimiser, rows=len(rows), batch_rows=recipe.batch_rows, processes=processes)
    return _Prepared(rows, tune, batches, Plan(len(rows), len(rows) * length, steps, {}))


def _evaluate(model: nn.Module, *, line: TextLine, recipe: LanguageRecipe) -> Mapping[str, float]:
    found: LanguageEvaluation = evaluate_line(
        model,
        line,
        length=recipe.data.length,
        stride=recipe.evaluate.stride,
        batch_tokens=recipe.optimiser.batch_tokens,
        autocast=recipe.optimiser.dtype == "bfloat16",
    )
    return found.scores()


def _arguments(recipe: LanguageRecipe, output: Path, *, quiet: bool) -> TrainingArguments:
    optimiser, tunes = recipe.optimiser, recipe.data.tunes
    return training_arguments(
        optimiser.model_copy(update={"learning_rate": recipe.learning_rate}),
        output,
        evaluate_every=recipe.evaluate_every,
        metric="loss" if tunes else None,
        quiet=quiet,
        greater_is_better=False if tunes else None,
        adam_beta2=optimiser.beta2,
        activation_checkpointing=optimiser.gradient_checkpointing,
        activation_checkpointing_kwargs={"use_reentrant": False} if optimiser.gradient_checkpointing else None,
    )


def _require_scored(line: TextLine, use: str) -> None:
    if len(line) < _LEAST_TOKENS:
        raise UsageError(
            f"expected at least {count(_LEAST_TOKENS, 'token')} of {use} text, the first of which foretells the "
            f"second, got {count(len(line), 'token')}; name more data, or read more of it"
        )


def _entropy(line: TextLine) -> float:
    """Nats a token of what knows how often each is in the text, and nothing else."""
    counts = line.counts()
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * np.log(shares)).sum())
