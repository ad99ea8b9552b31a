"""A classifier from a pretrained encoder has all of its weights, whatever the layout; the decoder is left behind."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

from narrows.training.classification.model import build_model
from narrows.training.classification.recipe import ClassRecipe
from narrows.training.electra.model import build_model as build_electra
from narrows.training.electra.model import save_model
from narrows.training.electra.recipe import ElectraRecipe
from narrows.training.pretraining.model import build_config
from narrows.training.pretraining.model import build_model as build_pretrained
from narrows.training.pretraining.recipe import PretrainingRecipe
from narrows.training.recipe import load_recipe
from narrows.training.sweep import cells_of, load_sweep

_SWEEPS = Path(__file__).resolve().parents[3] / "recipes" / "sweeps"
_TINY = {"d_model": 16, "n_head": 4, "d_head": 4, "d_inner": 24}
_PRETRAINED = {
    cell.settings["variant"]: cell.recipe
    for name in ("funnel-layouts.yaml", "funnel-electra.yaml")
    for cell in cells_of(load_sweep(_SWEEPS / name), _SWEEPS / name)
}


def _tiny(recipe, tokenizer):
    """The recipe of a variant at a tiny width, and its config."""
    assert isinstance(recipe, PretrainingRecipe)
    model = recipe.model.model_copy(update={"config": {**recipe.model.config, **_TINY}})
    recipe = recipe.model_copy(update={"model": model})
    return recipe, build_config(recipe, tokenizer)


@pytest.mark.parametrize("variant", _PRETRAINED)
def test_every_weight_of_the_encoder_is_taken_over(variant, tiny_bert, tmp_path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    recipe, config = _tiny(_PRETRAINED[variant], tokenizer)
    torch.manual_seed(3)
    if isinstance(recipe, ElectraRecipe):
        save_model(build_electra(recipe, config), tmp_path)
    else:
        build_pretrained(recipe, config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    settings = {"model.checkpoint": str(tmp_path)}
    classes = load_recipe(_SWEEPS.parent / "funnel-sst2.yaml", settings=settings)
    assert isinstance(classes, ClassRecipe)
    torch.manual_seed(4)
    model = build_model(classes, tokenizer, ["bad", "good"], runs=None)
    ours = model.state_dict()
    saved = {name: value for name, value in load_file(tmp_path / "model.safetensors").items() if "decoder" not in name}
    encoder = {name for name in saved if name.startswith(f"{model.base_model_prefix}.")}
    layers = len({name.split(".attention.")[0] for name in encoder if ".attention." in name})
    assert layers == sum(config.block_sizes)
    for name in encoder:
        torch.testing.assert_close(ours[name], saved[name], rtol=0, atol=0)
    # What is new is the head.
    assert not [name for name in ours if name not in encoder and name.startswith(f"{model.base_model_prefix}.")]
    assert not [name for name in ours if "decoder" in name]
    for key in ("block_sizes", "block_repeats", "pool_q_only", "separate_cls", "position_type", "pooling_type"):
        assert getattr(model.config, key) == getattr(config, key)
