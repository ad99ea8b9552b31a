"""A recipe of ELECTRA becomes two models in one, data, objective and trainer."""

from functools import partial
from pathlib import Path

import torch
from accelerate import PartialState

from narrows.training.electra.model import GENERATOR, build_model, save_model
from narrows.training.electra.objective import ElectraObjective, evaluate_electra
from narrows.training.electra.recipe import ElectraRecipe
from narrows.training.pretraining.build import plan_run
from narrows.training.pretraining.model import build_config, build_tokenizer
from narrows.training.pretraining.parts import collate_for, make_trainer, prepare
from narrows.training.tasks import Run

__all__ = ["build_run", "plan_run"]


def build_run(recipe: ElectraRecipe, *, data: Path, output: Path, quiet: bool = False, runs: Path | None = None) -> Run:
    """Everything a run needs, in `output`, token ids in `tokens/` among it.

    The last checkpoint is the model: the better the generator gets, the harder is what the discriminator is asked, and
    a lower loss is not a better encoder.

    Args:
        runs: where checkpoints that are the output of other runs are looked for first.
    """
    torch.manual_seed(recipe.optimiser.seed)
    tokenizer = build_tokenizer(recipe, data=data, runs=runs)
    config = build_config(recipe, tokenizer, runs=runs)
    model = build_model(recipe, config, runs=runs)
    processes = PartialState().num_processes
    prepared = prepare(recipe, tokenizer, data=data, folder=output / "tokens", tunes=True, processes=processes)
    evaluate = None
    if prepared.tune is not None:
        evaluate = partial(evaluate_electra, rows=prepared.tune, recipe=recipe, collate=collate_for(config))
    trainer, stop = make_trainer(
        recipe,
        prepared,
        model=model,
        objective=ElectraObjective(),
        evaluate_model=evaluate,
        output=output,
        quiet=quiet,
        keep_best=False,
    )

    def save(folder: Path) -> None:
        save_model(model, folder)
        for place in (folder, folder / GENERATOR):
            tokenizer.save_pretrained(place)

    return Run(trainer, stop, prepared.plan, save)
