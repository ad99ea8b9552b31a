"""Recipes: each one that is shipped loads, and each mistake is one sentence that says where."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from narrows.errors import RecipeError
from narrows.training.recipe import load_recipe, save_recipe

ROOT = Path(__file__).resolve().parents[2]
RECIPES = sorted((ROOT / "recipes").glob("*.yaml"))

GOOD = """
name: x
model: {checkpoint: some/model, split_layer: 2}
data: {train: [{format: squad, file: a.json}]}
"""


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_every_shipped_recipe_loads_and_survives_saving(path: Path, tmp_path: Path) -> None:
    recipe = load_recipe(path)
    assert recipe.name == path.stem
    save_recipe(recipe, tmp_path / "saved.yaml")
    assert load_recipe(tmp_path / "saved.yaml") == recipe
    assert not [text for text in _strings(recipe.model_dump()) if Path(text).is_absolute()]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


def test_every_shipped_recipe_starts_from_what_another_recipe_or_the_page_writes() -> None:
    recipes = [load_recipe(path) for path in RECIPES]
    page = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    written = {f"{recipe.name}/model" for recipe in recipes}
    # A command of the page whose first folder of a run is what it writes.
    written |= set(re.findall(r"python -m narrows\.training\.(?:average|ship --export \w+) runs/(\S+)", page))
    wanted = {name for recipe in recipes for name in recipe.checkpoints() if name.endswith("/model")}
    assert "shipped-reader/model" in wanted and wanted <= written


def test_there_are_recipes() -> None:
    assert RECIPES


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "expected YAML in .*; mend that place"),
        ("- a", "expected a recipe in .*, got list; write `key: value` lines"),
        (GOOD + "loses: {kd: 1}", "expected only known keys in .*, got 'loses'; did you mean 'losses'?"),
        (
            GOOD + "optimiser: {lerning_rate: 1}",
            "got 'optimiser.lerning_rate'; did you mean 'learning_rate'?",
        ),
        (GOOD.replace("file: a", "fille: a"), "'data.train.0.f"),
        (
            GOOD + "losses: {qqqqq: 1}",
            "got 'losses.qqqqq'; known keys are distance, kd, lrs, task, temperature",
        ),
        (
            GOOD + "evaluate_every: soon",
            "expected a valid 'evaluate_every' in .*, got 'soon'; input should be",
        ),
        (
            GOOD + "losses: {kd: 1}",
            "expected `teacher` in .* since losses.kd or losses.lrs is above 0, got none",
        ),
        (
            GOOD + "losses: {task: 0}",
            "expected a loss above 0 in .*, got 0 for task, kd and lrs; raise one of them",
        ),
        (GOOD.replace("model:", "modell:"), "expected"),
    ],
)
def test_a_mistake_is_one_sentence(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    with pytest.raises(RecipeError, match=message) as caught:
        load_recipe(path)
    assert "\n" not in str(caught.value)


def test_a_recipe_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="expected a recipe at .*, got a file that cannot be read .*; check the path"):
        load_recipe(tmp_path / "none.yaml")


def test_settings_replace_single_keys(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(GOOD)
    recipe = load_recipe(path, settings={"optimiser.epochs": "3", "model.split_layer": "4", "name": "y"})
    assert (recipe.optimiser.epochs, recipe.model.split_layer, recipe.name) == (3.0, 4, "y")
    assert recipe.model.checkpoint == "some/model"
    with pytest.raises(RecipeError, match="expected a section at 'name' of the setting 'name.first', got a value"):
        load_recipe(path, settings={"name.first": "1"})
    with pytest.raises(RecipeError, match="expected YAML as the value of the setting 'name', got '\\['; quote it"):
        load_recipe(path, settings={"name": "["})
    with pytest.raises(RecipeError, match="got 'optimiser.epoch'; did you mean 'epochs'?"):
        load_recipe(path, settings={"optimiser.epoch": "1"})
