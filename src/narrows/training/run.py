"""A run from start, or from where it stopped, to a saved model."""

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from narrows._lock import hold
from narrows.errors import NarrowsError, UsageError
from narrows.hf.checkpoints import not_finite
from narrows.training.card import write_card
from narrows.training.recipe import load_recipe, save_recipe
from narrows.training.sections import Recipe
from narrows.training.tasks import Run, build_run
from narrows.training.writing import room_for, written_whole

__all__ = ["last_checkpoint", "train"]


def train(
    recipe: Recipe,
    *,
    data: Path,
    output: Path,
    quiet: bool = False,
    runs: Path | None = None,
    command: str | None = None,
) -> Path | None:
    """Train a recipe in a folder, resuming when the folder holds an unfinished run of the same recipe.

    Args:
        recipe: what to train.
        data: folder that the recipe's files lie in.
        output: folder of the run: `recipe.yaml`, `log.jsonl`, checkpoints, and `model/` at the end.
        quiet: no progress bar.
        runs: where `model.checkpoint` and `teacher` are looked for first.
        command: the line that repeats the run, for the model card.

    Returns:
        The folder of the model; None when a signal stopped the run (it was saved; call again to go on).

    Raises:
        UsageError: the folder holds a run of another recipe, cannot be written, or another process trains in it.
        NarrowsError: the weights are no numbers any more.
        OutputError: the disk is full.
    """
    _make(output)
    with _alone(output), room_for(output):
        return _train(recipe, data=data, output=output, quiet=quiet, runs=runs, command=command)


def _train(
    recipe: Recipe, *, data: Path, output: Path, quiet: bool, runs: Path | None, command: str | None
) -> Path | None:
    model_folder = output / "model"
    if (output / "recipe.yaml").is_file():
        former = load_recipe(output / "recipe.yaml")
        if former != recipe:
            raise UsageError(
                f"expected {output} to hold a run of the same recipe, got one of {former.name!r} with other "
                "settings; choose another output folder"
            )
        if (model_folder / "config.json").is_file():
            return model_folder
    if model_folder.exists():
        # Refused now: the model of hours of training could not take its place.
        raise UsageError(
            f"expected {output} to hold a whole run or none, got {model_folder} without its "
            f"{'config.json' if (output / 'recipe.yaml').is_file() else 'recipe.yaml beside it'}; move that folder "
            "away, and the same command trains it again"
        )
    run = build_run(recipe, data=data, output=output, quiet=quiet, runs=runs)
    reached = last_checkpoint(output)
    if reached is None:
        remedy = "copy the checkpoint that it starts from again, or name another"
        _require_finite(run, f"the start of {recipe.name}", remedy=remedy)
    # Only now: a recipe that could not be built does not hold the folder against its corrected form.
    if run.trainer.is_world_process_zero():
        with written_whole(output / "recipe.yaml") as partial:
            save_recipe(recipe, partial)
    began = time.time()
    run.trainer.train(resume_from_checkpoint=reached)
    if run.stop.stopped:
        return None
    summary = {
        "rows": run.plan.rows,
        "truncated": dict(run.plan.truncated),
        "steps": run.trainer.state.global_step,
        "seconds": round(time.time() - began),
        "tune": run.trainer.evaluate(),
    }
    if run.trainer.is_world_process_zero():
        remedy = "train anew under another name with a lower optimiser.learning_rate"
        _require_finite(run, f"the end of {recipe.name}", remedy=remedy)
        _save(run, recipe, model_folder, summary, command=command or f"narrows train {recipe.name}.yaml")
    return model_folder


def last_checkpoint(output: Path) -> str | None:
    """The newest whole checkpoint of a run; one that a killed process left half-written is passed over."""
    found = []
    for folder in output.glob(f"{PREFIX_CHECKPOINT_DIR}-*"):
        number = folder.name.removeprefix(f"{PREFIX_CHECKPOINT_DIR}-")
        # The trainer's state is written last.
        if number.isdecimal() and _is_json(folder / "trainer_state.json"):
            found.append((int(number), str(folder)))
    return max(found)[1] if found else None


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return False
    return True


@contextmanager
def _alone(output: Path) -> Iterator[None]:
    """Hold the folder for this run: two would take each other's checkpoints. The system lets go of it at any end."""
    if int(os.environ.get("RANK", "0")) != 0:
        # The first of several processes holds it for all of them.
        yield
        return
    handle = os.open(output, os.O_RDONLY)
    try:
        if not hold(handle):
            raise UsageError(
                f"expected {output} for this run alone, got another process that trains in it; wait for its end, or "
                "choose another output folder"
            )
        yield
    finally:
        os.close(handle)


def _require_finite(run: Run, when: str, *, remedy: str) -> None:
    model = run.trainer.model
    name = None if model is None else not_finite(model.state_dict())
    if name is not None:
        raise NarrowsError(f"expected finite weights at {when}, got NaN or infinity in {name}; {remedy}")


def _make(output: Path) -> None:
    try:
        output.mkdir(parents=True, exist_ok=True)
        writable = os.access(output, os.W_OK)
    except OSError as error:
        raise UsageError(
            f"expected a folder to write to at {output}, got {error.strerror}; choose another one"
        ) from error
    if not writable:
        raise UsageError(f"expected a folder to write to at {output}, got one without permission; choose another one")


def _save(run: Run, recipe: Recipe, folder: Path, summary: dict, *, command: str) -> None:
    """Everything into a folder beside, then under its name: a model folder that exists is whole."""
    partial = folder.with_name("model.partial")
    shutil.rmtree(partial, ignore_errors=True)
    run.save(partial)
    write_card(partial, recipe, command=command, summary=summary)
    with written_whole(folder.parent / "summary.json") as unfinished:
        unfinished.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    os.replace(partial, folder)
    # Gigabytes that only the steps needed; a run that was stopped finds them again.
    for name in ("states", "tokens"):
        shutil.rmtree(folder.parent / name, ignore_errors=True)
