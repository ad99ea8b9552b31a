"""A run from start, or from where it stopped, to a saved model."""

import json
import time
from pathlib import Path

from transformers.trainer_utils import get_last_checkpoint

from narrows.errors import UsageError
from narrows.training.build import build_run
from narrows.training.recipe import Recipe, load_recipe, save_recipe

__all__ = ["train"]


def train(recipe: Recipe, *, data: Path, output: Path, quiet: bool = False) -> Path | None:
    """Train a recipe in a folder, resuming when the folder holds an unfinished run of the same recipe.

    Args:
        recipe: what to train.
        data: folder that the recipe's files lie in.
        output: folder of the run: `recipe.yaml`, `log.jsonl`, checkpoints, and `model/` at the end.
        quiet: no progress bar.

    Returns:
        The folder of the model; None when a signal stopped the run (it was saved; call again to go on).

    Raises:
        UsageError: the folder holds a run of another recipe.
    """
    output.mkdir(parents=True, exist_ok=True)
    model_folder = output / "model"
    if (output / "recipe.yaml").is_file():
        former = load_recipe(output / "recipe.yaml")
        if former != recipe:
            raise UsageError(
                f"expected {output} to hold a run of the same recipe, got one of {former.name!r} with other settings; "
                "choose another output folder"
            )
        if (model_folder / "config.json").is_file():
            return model_folder
    save_recipe(recipe, output / "recipe.yaml")
    run = build_run(recipe, data=data, output=output, quiet=quiet)
    began = time.time()
    run.trainer.train(resume_from_checkpoint=get_last_checkpoint(str(output)))
    if run.stop.stopped:
        return None
    scores = run.trainer.evaluate()
    run.trainer.model.save_pretrained(model_folder)
    run.tokenizer.save_pretrained(model_folder)
    summary = {
        "rows": run.rows,
        "truncated_questions": run.truncated_questions,
        "steps": run.trainer.state.global_step,
        "seconds": round(time.time() - began),
        "tune": scores,
    }
    (output / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    return model_folder
