"""A recipe of planted facts becomes an encoder, its texts, an objective and a trainer; and how it is tested."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from tqdm.auto import tqdm

from narrows.training.arguments import training_arguments
from narrows.training.batches import BatchPlan
from narrows.training.planted.data import PlantedRows, collate_texts, read_texts
from narrows.training.planted.model import PlantedReader, build_reader, save_reader
from narrows.training.planted.recipe import PlantedRecipe
from narrows.training.tasks import Plan, Run, find_checkpoint
from narrows.training.trainer import ClockCheckpoint, JsonLog, NarrowsTrainer, StopSignal

__all__ = ["AnswerObjective", "Cell", "build_run", "plan_run", "count_right"]

# Other numbers than any seed of a recipe gives to its training texts.
_TUNE_SEED, _TEST_SEED = -1, -2
_TUNE_TEXTS = 32
_INPUTS = ("input_ids", "attention_mask", "places")


class _Counts(NamedTuple):
    questions: Tensor


class AnswerObjective:
    """Cross entropy of the answers, a mean over the questions of the whole optimiser step."""

    def counts(self, batches: Sequence[Mapping[str, Tensor]]) -> _Counts:
        return _Counts(torch.tensor(sum(len(batch["answers"]) for batch in batches)))

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor], counts: _Counts) -> Tensor:
        logits = model(**{name: batch[name] for name in _INPUTS})
        return cross_entropy(logits.float(), batch["answers"], reduction="sum") / counts.questions


class Cell(NamedTuple):
    """Questions in test texts of one length, at one range of distances from their facts.

    Attributes:
        length: tokens of the texts.
        low, high: distances from `low` up to, but not with, `high`.
        questions: how many.
        right: how many were answered rightly.
    """

    length: int
    low: int
    high: int
    questions: int
    right: int


def plan_run(recipe: PlantedRecipe, *, data: Path, runs: Path | None = None) -> Plan:
    """Count texts, tokens and steps; no text is made."""
    lengths = _lengths(recipe)
    batches = _batches(recipe, lengths)
    return Plan(len(lengths), sum(lengths), -(-len(batches) // recipe.optimiser.accumulation), {})


def build_run(recipe: PlantedRecipe, *, data: Path, output: Path, quiet: bool = False, runs: Path | None = None) -> Run:
    """Everything a run needs, in `output`; `accuracy.json` stands beside the model at the end."""
    optimiser = recipe.optimiser
    torch.manual_seed(optimiser.seed)
    texts = read_texts(recipe.data, data)
    reader = build_reader(
        recipe.model,
        vocabulary_size=texts.train.vocabulary_size,
        values=texts.train.values,
        dropout=optimiser.dropout,
        start=None if recipe.model.start is None else find_checkpoint(recipe.model.start, runs),
    )
    rows = PlantedRows(texts.train, _lengths(recipe), seed=optimiser.seed)
    tune = PlantedRows(
        texts.train, [length for length in recipe.data.lengths for _ in range(_TUNE_TEXTS)], seed=_TUNE_SEED
    )

    def evaluate(model: nn.Module) -> dict[str, float]:
        return _summary(count_right(model, tune, recipe, quiet=True), recipe.reach)

    stop = StopSignal()
    trainer = NarrowsTrainer(
        objective=AnswerObjective(),
        plan=_batches(recipe, rows.lengths),
        collate=collate_texts,
        evaluate_model=evaluate,
        layer_decay=optimiser.layer_decay,
        model=reader,
        args=training_arguments(
            optimiser, output, evaluate_every=recipe.evaluate_every, metric="accuracy", quiet=quiet
        ),
        train_dataset=rows,
        eval_dataset=tune,
        callbacks=[stop, ClockCheckpoint(), JsonLog(output / "log.jsonl")],
    )

    def save(folder: Path) -> None:
        rows = PlantedRows(texts.test, recipe.data.test_lengths * recipe.data.tests, seed=_TEST_SEED)
        cells = count_right(reader, rows, recipe, quiet=quiet)
        _save(reader, cells, folder)

    return Run(trainer, stop, plan_run(recipe, data=data), save)


def count_right(model: nn.Module, rows: PlantedRows, recipe: PlantedRecipe, *, quiet: bool) -> list[Cell]:
    """How many questions are answered rightly, by length and distance.

    The ranges are up to what a layer of local attention sees, and twice as far from one to the next.
    """
    was_training = model.training
    model.eval()
    found: dict[tuple[int, int], list[int]] = {}
    device = next(model.parameters()).device
    batches = BatchPlan(rows.lengths, batch_tokens=max(rows.lengths, default=0) * 4, epochs=1, seed=0)
    for indices in tqdm(batches, desc="Testing", unit=" batches", disable=quiet):
        batch = collate_texts([rows[index] for index in indices])
        with torch.inference_mode():
            logits = model(**{name: batch[name].to(device) for name in _INPUTS})
        right = (logits.argmax(-1).cpu() == batch["answers"]).tolist()
        owners = [rows.lengths[indices[text]] for text in batch["places"][:, 0].tolist()]
        for length, distance, is_right in zip(owners, batch["distances"].tolist(), right, strict=True):
            cell = found.setdefault((length, _range_of(distance, recipe.model.local_radius)), [0, 0])
            cell[0] += 1
            cell[1] += is_right
    model.train(was_training)
    return [
        Cell(length, *_bounds(number, recipe.model.local_radius), *counts)
        for (length, number), counts in sorted(found.items())
    ]


def _range_of(distance: int, nearest: int) -> int:
    number = 0
    while distance > nearest * 2**number:
        number += 1
    return number


def _bounds(number: int, nearest: int) -> tuple[int, int]:
    return (0 if number == 0 else nearest * 2 ** (number - 1) + 1), nearest * 2**number + 1


def _summary(cells: Sequence[Cell], reach: int) -> dict[str, float]:
    """Shares in percent: of all questions, of those near their facts, of those beyond the reach of local attention."""

    def share(chosen: Sequence[Cell]) -> float:
        questions = sum(cell.questions for cell in chosen)
        return 100 * sum(cell.right for cell in chosen) / questions if questions else 0.0

    near = [cell for cell in cells if cell.high <= reach + 1]
    return {
        "accuracy": share(cells),
        "accuracy_near": share(near),
        "accuracy_far": share([cell for cell in cells if cell not in near]),
    }


def _lengths(recipe: PlantedRecipe) -> list[int]:
    lengths = recipe.data.lengths
    return [lengths[index % len(lengths)] for index in range(recipe.data.texts)]


def _batches(recipe: PlantedRecipe, lengths: Sequence[int]) -> BatchPlan:
    optimiser = recipe.optimiser
    return BatchPlan(lengths, batch_tokens=optimiser.batch_tokens, epochs=optimiser.epochs, seed=optimiser.seed)


def _save(reader: PlantedReader, cells: Sequence[Cell], folder: Path) -> None:
    save_reader(reader, folder)
    table: list[dict[str, Any]] = [cell._asdict() for cell in cells]
    (folder / "accuracy.json").write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
