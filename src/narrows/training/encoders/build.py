"""A recipe of a distilled encoder becomes teacher, student, data, objective and trainer."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from torch import nn

from narrows.core.pooling import window_means
from narrows.data import evenly_spread, token_budget_batches
from narrows.errors import UsageError
from narrows.hf.sentence_encoder import SentenceEncoder, pools
from narrows.hf.tokenizers import tokenizer_digest
from narrows.training.arguments import training_arguments
from narrows.training.batches import BatchPlan
from narrows.training.encoders.data import TextRows, collate_rows, read_rows
from narrows.training.encoders.objective import EncoderObjective, spread_layers
from narrows.training.encoders.recipe import EncoderRecipe, TextPart
from narrows.training.encoders.saving import save_student
from narrows.training.encoders.student import (
    Student,
    build_student,
    load_teacher,
    load_tokenizer,
    sizes_of,
    student_folder,
)
from narrows.training.tasks import Plan, Run, find_checkpoint
from narrows.training.trainer import ClockCheckpoint, JsonLog, NarrowsTrainer, StopSignal

__all__ = ["EncoderTrainer", "build_run", "plan_run"]


class EncoderTrainer(NarrowsTrainer):
    """Runs an `EncoderObjective`."""

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        # Tied weights are saved once; transformers would warn of their other names.
        tied = getattr(self.model, "tied", ())
        load_result.missing_keys[:] = [name for name in load_result.missing_keys if name not in tied]
        super()._issue_warnings_after_load(load_result)


def plan_run(recipe: EncoderRecipe, *, data: Path, runs: Path | None = None) -> Plan:
    """Read and cut a recipe's data, and count; no model is built and nothing is kept."""
    tokenizers = _tokenizers(recipe, runs)
    with tempfile.TemporaryDirectory() as folder:
        rows = _rows(recipe, recipe.data.train, tokenizers, data, Path(folder))
        return _plan(recipe, rows, _batches(recipe, rows))


def build_run(recipe: EncoderRecipe, *, data: Path, output: Path, quiet: bool = False, runs: Path | None = None) -> Run:
    """Everything a run needs, in `output`; token ids are in `tokens/`.

    Args:
        runs: where checkpoints that are the output of other runs are looked for first.

    Raises:
        UsageError: see `build_student` and `read_rows`; states or tokens of models with unlike tokenizers.
        ConversionError: see `load_teacher`.
    """
    torch.manual_seed(recipe.optimiser.seed)
    tokenizers = tokenizer, teacher_tokenizer = _tokenizers(recipe, runs)
    teacher = load_teacher(recipe, runs=runs)
    student = build_student(recipe, teacher, tokenizer, runs=runs)
    objective = EncoderObjective(
        recipe.losses,
        # Of several processes each has its own GPU.
        teacher.to(PartialState().device if torch.cuda.is_available() else "cpu"),
        layers=_layers(recipe, student, teacher),
        pooling=pools(student.encoder.model),
    )
    rows = _rows(recipe, recipe.data.train, tokenizers, data, output / "tokens")
    batches = _batches(recipe, rows)
    collate = partial(
        collate_rows, pad=tokenizer.pad_token_id, teacher_pad=(teacher_tokenizer or tokenizer).pad_token_id
    )
    evaluate = None
    if recipe.data.tune:
        tune = _rows(recipe, recipe.data.tune, tokenizers, data, output / "tokens")
        evaluate = partial(_evaluate, objective=objective, rows=tune, recipe=recipe, collate=collate)
    stop = StopSignal()
    trainer = EncoderTrainer(
        objective=objective,
        plan=batches,
        collate=collate,
        evaluate_model=evaluate,
        layer_decay=1.0,
        model=student,
        args=_arguments(recipe, output, quiet=quiet),
        train_dataset=rows,
        # Only so that transformers agrees to evaluate: what is read is the evaluation's own.
        eval_dataset=rows if recipe.data.tune else None,
        callbacks=[stop, ClockCheckpoint(), JsonLog(output / "log.jsonl")],
    )
    return Run(trainer, stop, _plan(recipe, rows, batches), partial(save_student, student.encoder, tokenizer, recipe))


def _tokenizers(recipe: EncoderRecipe, runs: Path | None) -> tuple[Any, Any | None]:
    """The student's, and the teacher's where that is another one."""
    teacher = load_tokenizer(find_checkpoint(recipe.teacher.checkpoint, runs))
    own = student_folder(recipe, runs)
    student = teacher if own is None else load_tokenizer(own)
    if tokenizer_digest(student) == tokenizer_digest(teacher):
        return student, None
    if recipe.losses.hidden or recipe.head == "masked-lm":
        raise UsageError(
            f"expected a student with the tokenizer of {recipe.teacher.checkpoint}, since states and tokens are "
            f"compared one by one, got {own} with another; set losses.hidden to 0, or choose another student"
        )
    return student, teacher


def _layers(recipe: EncoderRecipe, student: Student, teacher: SentenceEncoder) -> list[tuple[int, int]]:
    """Pairs of layers whose states can be compared: tried here, and not in the first step."""
    if not recipe.losses.hidden:
        return []
    longest = max(recipe.data.lengths)
    ours, theirs = (
        sizes_of(*one).slots for one in ((student.encoder, longest, "student"), (teacher, longest, "teacher"))
    )
    layers = list(recipe.losses.layers) or spread_layers(len(ours) - 1, len(theirs) - 1)
    for mine, other in layers:
        if not (0 <= mine < len(ours) and 0 <= other < len(theirs)):
            raise UsageError(
                f"expected 'losses.layers' from 0 to {len(ours) - 1} of the student and 0 to {len(theirs) - 1} of the "
                f"teacher, got {mine} and {other}; change them"
            )
        real = torch.ones(1, theirs[other], dtype=torch.bool)
        window_means(torch.zeros(1, theirs[other], 1), real, slots=ours[mine], **pools(student.encoder.model))
    return layers


def _rows(
    recipe: EncoderRecipe, parts: list[TextPart], tokenizers: tuple[Any, Any | None], data: Path, cache: Path
) -> TextRows:
    return read_rows(
        parts,
        data,
        cache=cache,
        tokenizer=tokenizers[0],
        teacher_tokenizer=tokenizers[1],
        lengths=recipe.data.lengths,
    )


def _batches(recipe: EncoderRecipe, rows: TextRows) -> BatchPlan:
    optimiser = recipe.optimiser
    return BatchPlan(rows.lengths, batch_tokens=optimiser.batch_tokens, epochs=optimiser.epochs, seed=optimiser.seed)


def _plan(recipe: EncoderRecipe, rows: TextRows, batches: BatchPlan) -> Plan:
    steps = -(-len(batches) // recipe.optimiser.accumulation)
    return Plan(len(rows), sum(rows.lengths), steps, {"texts": rows.truncated} if rows.truncated else {})


def _evaluate(
    model: nn.Module,
    *,
    objective: EncoderObjective,
    rows: TextRows,
    recipe: EncoderRecipe,
    collate: Callable[..., Any],
) -> dict[str, float]:
    """Each loss, a mean over texts, their weighted sum, and the mean cosine to the teacher in percent."""
    model.eval()
    device = next(model.parameters()).device
    chosen = evenly_spread(range(len(rows)), recipe.data.tune_limit)
    totals: dict[str, float] = {}
    lengths = [rows.lengths[row] for row in chosen]
    autocast = torch.autocast(device.type, torch.bfloat16, enabled=recipe.optimiser.dtype == "bfloat16")
    for batch in token_budget_batches(lengths, batch_tokens=recipe.optimiser.batch_tokens):
        made = collate([rows[chosen[place]] for place in batch])
        with torch.inference_mode(), autocast:
            sums = objective.sums(model, {name: tensor.to(device) for name, tensor in made.items()})
        for name, value in {**sums, "loss": objective.weighted(sums)}.items():
            totals[name] = totals.get(name, 0.0) + float(value)
    means = {name: total / len(chosen) for name, total in totals.items()}
    return {name: 100 * mean if name == "cosine" else mean for name, mean in means.items()}


def _arguments(recipe: EncoderRecipe, output: Path, *, quiet: bool) -> Any:
    # With other losses beside it, the cosine is not all that the student is to learn; of states it is a help.
    losses = recipe.losses
    metric = ("cosine" if losses.embedding and not losses.similarity else "loss") if recipe.data.tune else None
    others = {} if metric != "loss" else {"greater_is_better": False}
    return training_arguments(
        recipe.optimiser, output, evaluate_every=recipe.evaluate_every, metric=metric, quiet=quiet, **others
    )
