"""Recipes: wrong keys and values are one sentence that says what to do."""

import pytest
from pydantic import ValidationError

from narrows.errors import RecipeError
from narrows.training.recipe import RECIPES, load_recipe

_RECIPE = "name: a\nmodel: {checkpoint: b, split_layer: 1}\ndata: {train: [{format: squad, file: c}]}\n"

_CLASSES = "name: a\ntask: classification\nmodel: {checkpoint: b}\n"


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
        ("optimiser.warmup", "1", "got 1; input should be less than 1"),
        ("model", "{checkpont: b, split_layer: 1}", "got 'model.checkpont'; did you mean 'checkpoint'?"),
    ],
)
def test_wrong_values_are_named(key, value, text, path) -> None:
    with pytest.raises(RecipeError, match=text):
        load_recipe(path, settings={key: value})


@pytest.mark.parametrize("task", RECIPES)
def test_a_whole_run_of_warming_up_is_refused_whatever_the_task(task) -> None:
    # transformers takes a warm-up of 1 for a single step.
    section = RECIPES[task].model_fields["optimiser"].annotation
    with pytest.raises(ValidationError, match="less than 1"):
        section(warmup=1.0)
    assert section(warmup=0.99).warmup == 0.99


_SUMMARIES = "name: a\ntask: summarization\nmodel: {checkpoint: b}\n"
_ENCODERS = "name: a\ntask: encoder-distillation\nmodel: {checkpoint: b}\nteacher: {checkpoint: c}\n"


@pytest.mark.parametrize(
    ("use", "kind", "rest", "sections"),
    [
        ("tune", "squad", "", "name: a\nmodel: {checkpoint: b, split_layer: 1}\n"),
        ("tune", "jsonl", "", _SUMMARIES),
        ("tune", "rte", "", _CLASSES),
        ("test", "rte", "", _CLASSES),
        ("tune", "text", "lengths: [8], ", _ENCODERS),
    ],
)
def test_data_to_evaluate_on_are_read_once_whatever_the_task(use, kind, rest, sections, path) -> None:
    train, evaluated = (f"{{format: {kind}, file: {name}, times: %d}}" for name in "cd")
    text = f"{sections}data: {{{rest}train: [{train}], {use}: [{evaluated}]}}\n"
    path.write_text(text % (2, 1))
    load_recipe(path)
    path.write_text(text % (1, 2))
    with pytest.raises(
        RecipeError, match=f"expected `times` of training data only in .*, got 2 for d of data.{use}; lea"
    ):
        load_recipe(path)
    path.write_text(text % (10**12, 1))
    with pytest.raises(RecipeError, match=r"times.*got 1000000000000; input should be less than or equal to 1000"):
        load_recipe(path)


NO_YAML = [
    ("2020-13-45", "a value that is not of the kind it is written as, such as a date that is none or a number of m"),
    ("1" * 5000, "a value that is not of the kind"),
    ("[" * 3000 + "]" * 3000, "lists or sections that are nested too deep"),
    ('!!float "x"', "a value that is not of the kind"),
    ('!!float ""', "a value that is not of the kind"),
    ('!!int "x"', "a value that is not of the kind"),
    ('!!int ""', "a value that is not of the kind"),
    ('!!bool "x"', "a value that is not of the kind"),
    ('!!timestamp "x"', "a value that is not of the kind"),
    ("{a: b", "while parsing a flow mapping"),
    ("!!python/name:os.system x", "could not determine a constructor"),
]


@pytest.mark.parametrize(("value", "text"), NO_YAML, ids=[value[:20] for value, _ in NO_YAML])
def test_what_yaml_cannot_make_is_named(value, text, path) -> None:
    with pytest.raises(
        RecipeError, match="^expected YAML as the value of the setting 'description', got .*; quote it$"
    ):
        load_recipe(path, settings={"description": value})
    path.write_text(f"{_RECIPE}description: {value}\n")
    with pytest.raises(RecipeError, match=f"^expected YAML in .*a.yaml, got .*{text}.*; mend that place$"):
        load_recipe(path)


@pytest.mark.parametrize("value", [f"0x{'f' * 5000}", "[" * 100 + "]" * 100, "2020-01-01", "&a [*a]", "{1: 2}"])
@pytest.mark.parametrize("key", ["description", "task", "optimiser.seed", "model"])
def test_values_that_no_sentence_can_hold_are_refused_in_one(key, value, path) -> None:
    with pytest.raises(RecipeError, match="^expected ") as caught:
        load_recipe(path, settings={key: value})
    assert len(str(caught.value)) < 600 and "set_int_max_str_digits" not in str(caught.value)


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
