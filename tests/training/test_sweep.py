"""Sweeps: every combination is a run of its own name, checked before the first one starts."""

import json
from pathlib import Path

import pytest

from narrows.errors import RecipeError
from narrows.training.sweep import cells_of, collect, load_sweep

_RECIPE = "name: a\nmodel: {checkpoint: b, split_layer: 1}\ndata: {train: [{format: squad, file: c}]}\n"
_SWEEP = "name: s\nrecipe: a.yaml\nover: {model.split_layer: [0, 2], optimiser.seed: [1, 2, 3]}\n"
_SHIPPED = sorted((Path(__file__).resolve().parents[2] / "recipes" / "sweeps").glob("*.yaml"))


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    (tmp_path / "a.yaml").write_text(_RECIPE)
    (tmp_path / "s.yaml").write_text(_SWEEP)
    return tmp_path / "s.yaml"


@pytest.mark.parametrize("name", ["../../evil", "/evil", ".hidden"])
def test_a_sweeps_folder_is_below_that_of_the_runs(name, sweep: Path) -> None:
    sweep.write_text(_SWEEP.replace("name: s", f"name: {name}"))
    with pytest.raises(RecipeError, match="expected a valid 'name' in .*; name a folder below that of the runs"):
        load_sweep(sweep)


def test_every_combination_is_a_run(sweep: Path) -> None:
    cells = cells_of(load_sweep(sweep), sweep)
    assert [cell.recipe.name for cell in cells] == ["a-0-1", "a-0-2", "a-0-3", "a-2-1", "a-2-2", "a-2-3"]
    assert [(cell.recipe.model.split_layer, cell.recipe.optimiser.seed) for cell in cells][3] == (2, 1)
    assert cells[3].settings == {"model.split_layer": 2, "optimiser.seed": 1}


def test_a_variant_is_several_settings_under_one_name(sweep: Path) -> None:
    variants = (
        "variants:\n  low: {model.split_layer: 0}\n  high and long: {model.split_layer: 2, optimiser.epochs: 3}\n"
    )
    sweep.write_text("name: s\nrecipe: a.yaml\nsettings: {optimiser.epochs: 0.5}\n" + variants)
    cells = cells_of(load_sweep(sweep), sweep)
    assert [cell.recipe.name for cell in cells] == ["a-low", "a-high_and_long"]
    assert [(cell.recipe.model.split_layer, cell.recipe.optimiser.epochs) for cell in cells] == [(0, 0.5), (2, 3)]
    assert [cell.settings for cell in cells] == [{"variant": "low"}, {"variant": "high and long"}]
    sweep.write_text(f"name: s\nrecipe: a.yaml\n{variants}over: {{optimiser.seed: [1, 2]}}\n")
    cells = cells_of(load_sweep(sweep), sweep)
    assert [cell.recipe.name for cell in cells] == ["a-low-1", "a-low-2", "a-high_and_long-1", "a-high_and_long-2"]
    assert cells[1].settings == {"variant": "low", "optimiser.seed": 2} and cells[1].recipe.optimiser.seed == 2


def test_a_variant_may_replace_a_whole_section(sweep: Path) -> None:
    sweep.write_text("name: s\nrecipe: a.yaml\nvariants: {other: {model: {checkpoint: z, split_layer: 3}}}\n")
    (cell,) = cells_of(load_sweep(sweep), sweep)
    assert (cell.recipe.model.checkpoint, cell.recipe.model.split_layer) == ("z", 3)


def test_what_other_sweeps_write_are_variants(sweep: Path) -> None:
    starts = {
        "b.yaml": "name: first\nrecipe: a.yaml\nvariants: {low: {model.split_layer: 0}, so high: {teacher: t}}",
        "c.yaml": "name: second\nrecipe: a.yaml\nover: {model.split_layer: [1, 3]}",
    }
    for name, text in starts.items():
        (sweep.parent / name).write_text(text)
    sweep.write_text("name: s\nrecipe: a.yaml\nstarts: [b.yaml, c.yaml]\nover: {optimiser.seed: [1, 2]}\n")
    cells = cells_of(load_sweep(sweep), sweep)
    assert [(cell.settings["variant"], cell.recipe.model.checkpoint) for cell in cells[::2]] == [
        ("low", "first/a-low/model"),
        ("so high", "first/a-so_high/model"),
        ("1", "second/a-1/model"),
        ("3", "second/a-3/model"),
    ]
    assert [cell.recipe.name for cell in cells[2:4]] == ["a-so_high-1", "a-so_high-2"]
    # Only the start is taken over.
    assert {cell.recipe.model.split_layer for cell in cells} == {1}
    sweep.write_text("name: s\nrecipe: a.yaml\nstarts: [b.yaml, b.yaml]\n")
    with pytest.raises(
        RecipeError, match="expected starts of different names in .*, got 'low' twice; rename it in b.y"
    ):
        cells_of(load_sweep(sweep), sweep)


def test_settings_hold_for_all_runs(sweep: Path) -> None:
    sweep.write_text(_SWEEP + "settings: {optimiser.epochs: 0.5, data.max_passage_tokens: 64}\n")
    recipes = [cell.recipe for cell in cells_of(load_sweep(sweep), sweep)]
    assert {(recipe.optimiser.epochs, recipe.data.max_passage_tokens) for recipe in recipes} == {(0.5, 64)}


def test_values_that_are_lists_or_paths_make_names(sweep: Path) -> None:
    sweep.write_text("name: s\nrecipe: a.yaml\nover: {model.checkpoint: [x/y, z], teacher: [null, 't t']}\n")
    names = [cell.recipe.name for cell in cells_of(load_sweep(sweep), sweep)]
    assert names == ["a-x_y-None", "a-x_y-t_t", "a-z-None", "a-z-t_t"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "expected YAML in .*; mend that place"),
        ("- a", "expected a recipe in .*, got list"),
        (_SWEEP + "ovr: 1", "expected only known keys in .*, got 'ovr'; did you mean 'over'?"),
        (
            "name: s\nrecipe: a.yaml\nover: {}",
            "expected a valid sweep in .*; name `variants`, or keys and their values",
        ),
        (
            _SWEEP + "variants: {a: {optimiser.seed: 3}}",
            "expected a valid sweep in .*; leave 'optimiser.seed' out of `over` or of the variants",
        ),
        (_SWEEP + "variants: {a: 3}", "expected a valid 'variants.a' in .*, got 3"),
        (_SWEEP + "variants: {a: {optimiser.sed: 3}}", "got 'optimiser.sed'; did you mean 'seed'?"),
        (_SWEEP + "variants: {a: {teacher: b}}\nstarts: [b.yaml]", "; name `variants` or `starts`, not both"),
        (
            "name: s\nrecipe: a.yaml\nstarts: [b.yaml]\nover: {model.checkpoint: [a]}",
            "leave 'model.checkpoint' out of `over`, as `starts` says it",
        ),
        (_SWEEP + "starts: [none.yaml]", "expected a recipe at .*none.yaml, got a file that cannot be read"),
        (
            _SWEEP + "starts: [s.yaml]",
            "expected other sweeps under `starts` in .*, got s.yaml, which leads back to itself; rem",
        ),
        ("name: s\nrecipe: a.yaml\nover: {optimiser.seed: []}", "give 'optimiser.seed' at least one value"),
        (_SWEEP.replace("a.yaml", "none.yaml"), "expected a recipe at .*none.yaml, got a file that cannot be read"),
        (_SWEEP.replace("optimiser.seed", "optimiser.sed"), "got 'optimiser.sed'; did you mean 'seed'?"),
        (_SWEEP.replace("[1, 2, 3]", "[1, 1]"), "expected runs of different names in .*, got 'a-0-1' twice"),
    ],
)
def test_a_mistake_is_one_sentence(text: str, message: str, sweep: Path) -> None:
    sweep.write_text(text)
    with pytest.raises(RecipeError, match=message) as caught:
        cells_of(load_sweep(sweep), sweep)
    assert "\n" not in str(caught.value)


def test_finished_runs_are_collected(sweep: Path, tmp_path: Path) -> None:
    cells = cells_of(load_sweep(sweep), sweep)
    (tmp_path / "s" / "a-2-1").mkdir(parents=True)
    (tmp_path / "s" / "a-2-1" / "summary.json").write_text('{"steps": 3, "tune": {}}')
    found = collect(cells, tmp_path / "s")
    expected = {"model.split_layer": 2, "optimiser.seed": 1}
    assert found == [{"name": "a-2-1", "settings": expected, "summary": {"steps": 3, "tune": {}}}]
    assert json.loads((tmp_path / "s" / "sweep.json").read_text()) == found


@pytest.mark.parametrize("path", _SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_sweep_loads(path: Path) -> None:
    sweep = load_sweep(path)
    assert sweep.name == path.stem and cells_of(sweep, path)
