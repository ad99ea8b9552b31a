"""Recipes: wrong keys and values are one sentence that says what to do."""

import pytest

from narrows.errors import RecipeError
from narrows.training.recipe import load_recipe

_RECIPE = "name: a\nmodel: {checkpoint: b, split_layer: 1}\ndata: {train: [{format: squad, file: c}]}\n"


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text(_RECIPE)
    return file


@pytest.mark.parametrize("name", ["../../evil", "..", ".hidden", "a/b", "a\\\\b", "a\\nb", " "])
def test_a_name_is_a_folder_below_that_of_the_runs(name, path) -> None:
    with pytest.raises(RecipeError, match="expected a valid 'name' in .*; name a folder below that of the runs"):
        load_recipe(path, settings={"name": f'"{name}"'})


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("optimiser.epochs", ".inf", "got inf; input should be a finite number"),
        ("optimiser.epochs", "1.0e+30", "got 1e\\+30; input should be less than or equal to 1000"),
        ("optimiser.learning_rate", ".nan", "got nan; input should be a finite number"),
        ("optimiser.seed", "-5", "got -5; input should be greater than or equal to 0"),
        ("model", "{checkpoint: b}", "expected a key 'model.split_layer' in .*, got none; add it"),
        ("model", "{checkpont: b, split_layer: 1}", "got 'model.checkpont'; did you mean 'checkpoint'?"),
    ],
)
def test_wrong_values_are_named(key, value, text, path) -> None:
    with pytest.raises(RecipeError, match=text):
        load_recipe(path, settings={key: value})


@pytest.mark.parametrize(
    ("task", "text"),
    [
        ("question-answerin", "got 'question-answerin'; did you mean 'question-answering'?"),
        ("xyz", "expected a valid 'task' in .*, one of question-answering.*, got 'xyz'; choose one of these"),
        ("[1]", "got \\[1\\]; "),
    ],
)
def test_an_unknown_task_is_named(task, text, path) -> None:
    with pytest.raises(RecipeError, match=text):
        load_recipe(path, settings={"task": task})
