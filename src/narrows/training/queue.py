"""Recipes that are trained one after another, of which one may start from what another writes."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from narrows.errors import UsageError
from narrows.training.sections import Recipe
from narrows.training.tasks import find_checkpoint

__all__ = ["Queued", "read_queue"]

# What these tasks write is an encoder, from which these others start. Any other start is of the recipe's own task.
_ENCODERS = ("masked-lm", "electra", "encoder-distillation")
_OF_ENCODERS = ("classification", "question-answering")


class Queued(NamedTuple):
    """A recipe at its place in a queue.

    Attributes:
        recipe: what is trained.
        awaits: its checkpoints that are not there yet, each with the folder, among the runs, of the recipe before it
            that writes it.
        counted: the same recipe with a model whose tokenizer is there already, to count with: that of the recipe it
            waits for, which hands its tokenizer on. The recipe itself where it waits for none; None where the one that
            it waits for is of another task, whose model it cannot name.
    """

    recipe: Recipe
    awaits: Mapping[str, str]
    counted: Recipe | None


def read_queue(recipes: Mapping[str, Recipe], runs: Path) -> list[Queued]:
    """Find which recipes wait for which.

    Args:
        recipes: by the folder of their run, among the runs, in the order in which they are trained.
        runs: folder of the runs; a recipe writes its model to RUNS/FOLDER/model.

    Raises:
        UsageError: a recipe waits for one after it, for itself, or for one of a task that it cannot start from.

    Example:
        `read_queue({"words": words, "summaries": summaries}, Path("runs"))[1].awaits` is `{"words/model": "words"}`
    """
    writers = {_place(f"{folder}/model", runs): folder for folder in recipes}
    done: dict[str, Queued] = {}
    for folder, recipe in recipes.items():
        awaits, counted = {}, recipe
        for checkpoint in recipe.checkpoints():
            writer = writers.get(_place(checkpoint, runs))
            if writer is None or Path(find_checkpoint(checkpoint, runs)).is_dir():
                continue
            if writer not in done:
                raise UsageError(
                    f"expected {checkpoint!r}, which {folder!r} starts from, to be there or to be written before "
                    f"it, got {writer!r} no earlier than {folder!r}; name its recipe first"
                )
            task = recipes[writer].task
            if task != recipe.task and not (task in _ENCODERS and recipe.task in _OF_ENCODERS):
                raise UsageError(
                    f"expected {folder!r} to start from a run of its own task, {recipe.task}, got {writer!r} "
                    f"of {task}; name another checkpoint"
                )
            awaits[checkpoint] = writer
            if checkpoint == recipe.checkpoints()[0]:
                counted = _with_model(recipe, recipes[writer].task, done[writer].counted)
        done[folder] = Queued(recipe, awaits, counted)
    return list(done.values())


def _with_model(recipe: Recipe, task: str, writer: Recipe | None) -> Recipe | None:
    """A recipe with the model of the one that it waits for, where both are of one task."""
    if writer is None or task != recipe.task:
        return None
    return recipe.model_copy(update={"model": dict(writer)["model"]})


def _place(checkpoint: str, runs: Path) -> Path:
    """Where a checkpoint of that name would lie: among the runs, or the path itself where it leads there."""
    path, folder = Path(checkpoint).absolute(), runs.absolute()
    return path if path.is_relative_to(folder) else folder / checkpoint
