"""A recipe of pretraining becomes model, data, objective and trainer."""

import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from torch import Tensor

from narrows.data import evenly_spread
from narrows.data.masking import IGNORED
from narrows.losses import token_loss
from narrows.training.pretraining.data import Item, MaskedRows
from narrows.training.pretraining.model import build_config, build_model, build_tokenizer
from narrows.training.pretraining.objective import MaskedTokens, MaskedTokensObjective
from narrows.training.pretraining.parts import collate_for, make_trainer, prepare
from narrows.training.pretraining.recipe import PretrainingRecipe
from narrows.training.tasks import Plan, Run

__all__ = ["build_run", "plan_run"]


def plan_run(recipe: PretrainingRecipe, *, data: Path, runs: Path | None = None) -> Plan:
    """Tokenize a recipe's text, and count; no model is built and nothing is kept."""
    tokenizer = build_tokenizer(recipe, data=data, runs=runs)
    build_config(recipe, tokenizer, runs=runs)
    with tempfile.TemporaryDirectory() as folder:
        return prepare(recipe, tokenizer, data=data, folder=Path(folder), tunes=False).plan


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
    processes = PartialState().num_processes
    prepared = prepare(recipe, tokenizer, data=data, folder=output / "tokens", tunes=True, processes=processes)
    model = build_model(recipe, config, runs=runs)
    ask = MaskedTokens(model, segments=recipe.data.segments, hide_keys=recipe.masking.hide_keys)
    evaluate = None
    if prepared.tune is not None:
        evaluate = partial(evaluate_rows, rows=prepared.tune, recipe=recipe, ask=ask, collate=collate_for(config))
    trainer, stop = make_trainer(
        recipe,
        prepared,
        model=model,
        objective=MaskedTokensObjective(ask),
        evaluate_model=evaluate,
        output=output,
        quiet=quiet,
        keep_best=recipe.data.tunes,
    )

    def save(folder: Path) -> None:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)

    return Run(trainer, stop, prepared.plan, save)


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
