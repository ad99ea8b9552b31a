"""Recipes that are trained one after another, of which one may start from what another writes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from narrows.errors import UsageError
from narrows.training.sections import Recipe
from narrows.training.tasks import find_checkpoint

__all__ = ["Queued", "read_queue"]


class Queued(NamedTuple):
    """A recipe at its place in a queue.

    Attributes:
        recipe: what is trained.
        awaits: its checkpoints that are not there yet, each with the name of the recipe before it that writes it.
        counted: the same recipe with a model whose tokenizer is there already, to count with: that of the recipe it
            waits for, which hands its tokenizer on. The recipe itself where it waits for none.
    """

    recipe: Recipe
    awaits: Mapping[str, str]
    counted: Recipe


def read_queue(recipes: Sequence[Recipe], runs: Path) -> list[Queued]:
    """Find which recipes wait for which.

    Args:
        recipes: of different names, in the order in which they are trained.
        runs: folder of the runs; a recipe writes its model to RUNS/NAME/model.

    Raises:
        UsageError: a recipe waits for one after it, for itself, or for one of another task.

    Example:
        `read_queue([words, summaries], Path("runs"))[1].awaits` is `{"words/model": "words"}`
    """
    writers = {_place(f"{recipe.name}/model", runs): recipe for recipe in recipes}
    done: dict[str, Queued] = {}
    for recipe in recipes:
        awaits, counted = {}, recipe
        for checkpoint in recipe.checkpoints():
            writer = writers.get(_place(checkpoint, runs))
            if writer is None or Path(find_checkpoint(checkpoint, runs)).is_dir():
                continue
            if writer.name not in done:
                raise UsageError(
                    f"expected {checkpoint!r}, which {recipe.name!r} starts from, to be there or to be written before "
                    f"it, got {writer.name!r} no earlier than {recipe.name!r}; name its recipe first"
                )
            if writer.task != recipe.task:
                raise UsageError(
                    f"expected {recipe.name!r} to start from a run of its own task, {recipe.task}, got {writer.name!r} "
                    f"of {writer.task}; name another checkpoint"
                )
            awaits[checkpoint] = writer.name
            if checkpoint == recipe.checkpoints()[0]:
                counted = recipe.model_copy(update={"model": dict(done[writer.name].counted)["model"]})
        done[recipe.name] = Queued(recipe, awaits, counted)
    return list(done.values())


def _place(checkpoint: str, runs: Path) -> Path:
    """Where a checkpoint of that name would lie: among the runs, or the path itself where it leads there."""
    path, folder = Path(checkpoint).absolute(), runs.absolute()
    return path if path.is_relative_to(folder) else folder / checkpoint
