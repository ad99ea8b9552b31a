"""The one knot's register: the builder of each task, and what a builder gives."""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from narrows.errors import UsageError
from narrows.training.sections import Recipe
from narrows.training.trainer import NarrowsTrainer, StopSignal

__all__ = ["Plan", "Run", "build_run", "find_checkpoint", "plan_run", "score_on_test"]

# A module with `build_run` and `plan_run` a task; it is loaded when its task is asked for.
_BUILDERS = {
    "question-answering": "narrows.training.spans.build",
    "summarization": "narrows.training.summaries.build",
    "masked-lm": "narrows.training.pretraining.build",
    "electra": "narrows.training.electra.build",
    "planted-facts": "narrows.training.planted.build",
    "encoder-distillation": "narrows.training.encoders.build",
    "classification": "narrows.training.classification.build",
    "causal-lm": "narrows.training.language.build",
}


class Plan(NamedTuple):
    """How large a run is.

    Attributes:
        rows: of an epoch.
        tokens: of an epoch.
        steps: of the optimiser, in all.
        truncated: what was cut and how often, such as `{"questions": 3}`; only what was.
    """

    rows: int
    tokens: int
    steps: int
    truncated: Mapping[str, int]


class Run(NamedTuple):
    """A trainer ready to go, the signal it heeds, its size, and what saves the model and its tokenizer."""

    trainer: NarrowsTrainer
    stop: StopSignal
    plan: Plan
    save: Callable[[Path], Any]


def plan_run(recipe: Recipe, *, data: Path, runs: Path | None = None) -> Plan:
    """Read and cut a recipe's data, and count; no model is built."""
    return _builder(recipe).plan_run(recipe, data=data, runs=runs)


def build_run(recipe: Recipe, *, data: Path, output: Path, quiet: bool = False, runs: Path | None = None) -> Run:
    """Everything a run needs, in `output`.

    Args:
        recipe: what to train.
        data: folder that the recipe's files lie in.
        output: folder of the run.
        quiet: no progress bar.
        runs: where checkpoints that are the output of other runs are looked for first.
    """
    return _builder(recipe).build_run(recipe, data=data, output=output, quiet=quiet, runs=runs)


def score_on_test(recipe: Recipe, *, data: Path, model: Path) -> dict[str, Any]:
    """The scores of a recipe's trained model on its test data.

    Raises:
        UsageError: a task without test data.
    """
    found = getattr(_builder(recipe), "score_on_test", None)
    if found is None:
        raise UsageError(
            f"expected a task with test data, such as classification, got {recipe.task}; leave out 'choose'"
        )
    return found(recipe, data=data, model=model)


def find_checkpoint(name: str, runs: Path | None) -> str:
    """The folder of that name among the runs when there is one, otherwise the name itself."""
    return str(runs / name) if runs is not None and (runs / name).is_dir() else name


def _builder(recipe: Recipe) -> ModuleType:
    return import_module(_BUILDERS[recipe.task])
