"""Recipes of language models: what does not go together is one sentence."""

import pytest
import yaml

from narrows.errors import RecipeError
from narrows.training.recipe import load_recipe, save_recipe

_GOOD = {
    "name": "x",
    "task": "causal-lm",
    "model": {"family": "gpt2", "tokenizer": "bytes"},
    "data": {"train": [{"file": "a.txt"}], "split": [0.9, 0.05, 0.05], "length": 64},
    "optimiser": {"steps": 5, "learning_rate": 1e-3},
}


def _load(tmp_path, **sections):
    raw = {
        name: {**value, **sections.get(name, {})} if isinstance(value, dict) else value for name, value in _GOOD.items()
    }
    raw |= {name: value for name, value in sections.items() if name not in raw}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(raw))
    return load_recipe(tmp_path / "recipe.yaml")


def test_a_recipe_survives_saving(tmp_path) -> None:
    recipe = _load(tmp_path)
    assert (recipe.optimiser.beta2, recipe.optimiser.warmup, recipe.batch_rows) == (0.95, 0.05, 128)
    save_recipe(recipe, tmp_path / "saved.yaml")
    assert load_recipe(tmp_path / "saved.yaml") == recipe
    assert recipe.checkpoints() == ()
    going_on = _load(tmp_path, model={"family": None, "tokenizer": None, "checkpoint": "a/model"})
    assert going_on.checkpoints() == ("a/model",)


@pytest.mark.parametrize(
    ("sections", "text"),
    [
        ({"model": {"family": None}}, "expected model.checkpoint or model.family in .*, got neither; name one of them"),
        ({"model": {"checkpoint": "a"}}, "expected model.checkpoint or model.family in .*, got both; name one of them"),
        (
            {"model": {"tokenizer": None}},
            "expected model.tokenizer in .* beside model.family, got none; name one, or 'b",
        ),
        (
            {"model": {"family": None, "checkpoint": "a", "config": {"n_layer": 2}}},
            "expected no model.config in .* beside model.checkpoint, which has its own; leave it out",
        ),
        (
            {"data": {"tune": [{"file": "b"}]}},
            "expected data.split or data.tune in .*, got both; cut the train files or",
        ),
        (
            {"data": {"test": [{"file": "b"}]}},
            "expected data.split or data.test in .*, got both; cut the train files or",
        ),
        (
            {"data": {"split": [0.9, 0.1, 0.1]}},
            "expected data.split in .* as three shares above 0, 1 together, got .0.9",
        ),
        ({"data": {"split": [1.1, -0.2, 0.1]}}, "expected data.split in .* as three shares above 0, 1 together, got"),
        (
            {"data": {"split": [0.9, 0.1]}},
            "expected a valid 'data.split' in .*, got .0.9, 0.1.; list should have at lea",
        ),
        (
            {"model": {"tokenizer": "a"}},
            "expected model.tokenizer 'bytes' in .* beside data.split, which cuts bytes, got",
        ),
        (
            {"optimiser": {"epochs": 1}},
            "expected optimiser.steps or optimiser.epochs in .*, got both; leave one of them",
        ),
        (
            {"optimiser": {"batch_tokens": 63}},
            "expected optimiser.batch_tokens in .* of at least a row, 64, got 63; rai",
        ),
        ({"evaluate": {"stride": 65}}, "expected evaluate.stride in .* of at most data.length, 64, got 65; lower it"),
        (
            {"evaluate": {"limit": 1.5}},
            "expected a valid 'evaluate.limit' in .*, got 1.5; input should be less than or",
        ),
        ({"optimiser": {"learning_rat": 1}}, "got 'optimiser.learning_rat'; did you mean 'learning_rate'?"),
    ],
)
def test_a_mistake_is_one_sentence(sections, text, tmp_path) -> None:
    with pytest.raises(RecipeError, match=text) as caught:
        _load(tmp_path, **sections)
    assert "\n" not in str(caught.value)


def test_a_model_that_goes_on_learns_more_slowly(tmp_path) -> None:
    rates = {"optimiser": {"learning_rate": None}}
    further = {"model": {"family": None, "tokenizer": None, "checkpoint": "a"}}
    assert _load(tmp_path, **rates).learning_rate == 1e-3
    assert _load(tmp_path, **rates, **further).learning_rate == 5e-5
    assert _load(tmp_path, **further, optimiser={"learning_rate": 0.5}).learning_rate == 0.5
