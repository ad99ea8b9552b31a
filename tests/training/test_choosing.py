"""A sweep that chooses: by tune data, the mean over repeats; the choice alone sees the test data, once."""

import json
from pathlib import Path

import pytest

from narrows.errors import RecipeError, UsageError
from narrows.training import choosing
from narrows.training.sweep import cells_of, load_sweep
from narrows.training.tasks import score_on_test

_RECIPE = "name: a\nmodel: {checkpoint: b, split_layer: 1}\ndata: {train: [{format: squad, file: c}]}\n"
_SWEEP = """
name: s
recipe: a.yaml
over: {model.split_layer: [0, 2], optimiser.learning_rate: [0.1, 0.2], optimiser.seed: [1, 2]}
choose: {keys: [optimiser.learning_rate], repeats: [optimiser.seed], score: f1}
"""


@pytest.fixture
def sweep(tmp_path: Path):
    (tmp_path / "a.yaml").write_text(_RECIPE)
    (tmp_path / "s.yaml").write_text(_SWEEP)
    return tmp_path / "s.yaml"


def _finish(cells, folder: Path, scores) -> None:
    for cell, score in zip(cells, scores, strict=True):
        (folder / cell.recipe.name).mkdir(parents=True)
        (folder / cell.recipe.name / "summary.json").write_text(json.dumps({"tune": {"eval_f1": score, "epoch": 1}}))


def test_the_best_mean_over_repeats_is_chosen_for_each_of_the_other_settings(sweep, tmp_path) -> None:
    loaded = load_sweep(sweep)
    cells = cells_of(loaded, sweep)
    _finish(cells, tmp_path / "s", [90, 10, 60, 60, 70, 70, 70, 70])
    first, second = choosing.choose_runs(cells, loaded.choose, tmp_path / "s")
    assert (first.settings, first.chosen) == ({"model.split_layer": 0}, {"optimiser.learning_rate": 0.2})
    assert [score for _, score in first.tune] == [50, 60]
    assert [cell.recipe.optimiser.seed for cell in first.cells] == [1, 2]
    # Of equal ones the first.
    assert second.chosen == {"optimiser.learning_rate": 0.1}


@pytest.mark.parametrize(
    ("score", "lower"),
    [
        ("score: f1", False),
        ("score: accuracy, better: lower", True),
        ("score: loss", True),
        ("score: bits_per_byte", True),
        ("score: perplexity", True),
        ("score: generator_loss", True),
        ("score: loss, better: higher", False),
    ],
)
def test_of_losses_the_lowest_is_chosen(score, lower, sweep, tmp_path) -> None:
    sweep.write_text(_SWEEP.replace("score: f1", score))
    loaded = load_sweep(sweep)
    cells = cells_of(loaded, sweep)
    name = score.split(",")[0].removeprefix("score: ")
    for cell, value in zip(cells, [3, 3, 2, 2, 0.1, 0.1, 0.2, 0.2], strict=True):
        (tmp_path / "s" / cell.recipe.name).mkdir(parents=True)
        summary = {"tune": {f"eval_{name}": value}}
        (tmp_path / "s" / cell.recipe.name / "summary.json").write_text(json.dumps(summary))
    found = choosing.choose_runs(cells, loaded.choose, tmp_path / "s")
    rates = [choice.chosen["optimiser.learning_rate"] for choice in found]
    assert rates == ([0.2, 0.1] if lower else [0.1, 0.2])


def test_what_the_baseline_is_is_kept(sweep, tmp_path, monkeypatch) -> None:
    loaded = load_sweep(sweep)
    cells = cells_of(loaded, sweep)
    _finish(cells, tmp_path / "s", range(8))
    scores = {"loss": {"mean": 1.0, "low": 0.5, "high": 1.5}}
    told = {"scores": scores, "baseline": {"loss": {"mean": 3.0}}, "baseline_is": "guessing", "rows": 2}
    monkeypatch.setattr(choosing, "score_on_test", lambda recipe, **_: told)
    choices = choosing.choose_runs(cells, loaded.choose, tmp_path / "s")
    found = choosing.score_choices(choices, data=tmp_path, folder=tmp_path / "s")
    assert found[0]["baseline_is"] == "guessing" and found[0]["test"]["loss"]["majority"] == 3.0


def test_test_data_is_read_once_and_only_for_the_choice(sweep, tmp_path, monkeypatch) -> None:
    loaded = load_sweep(sweep)
    cells = cells_of(loaded, sweep)
    _finish(cells, tmp_path / "s", [1, 1, 2, 2, 4, 4, 3, 3])
    scored = []

    def score(recipe, *, data, model):
        scored.append(recipe.name)
        one = {"f1": {"mean": float(len(scored)), "low": 0.0, "high": 9.0}}
        return {"scores": one, "baseline": one, "rows": 5}

    monkeypatch.setattr(choosing, "score_on_test", score)
    choices = choosing.choose_runs(cells, loaded.choose, tmp_path / "s")
    found = choosing.score_choices(choices, data=tmp_path, folder=tmp_path / "s")
    assert scored == ["a-0-0.2-1", "a-0-0.2-2", "a-2-0.1-1", "a-2-0.1-2"]
    assert found[0]["test"]["f1"]["mean"] == found[0]["test"]["f1"]["median"] == 1.5 and found[0]["rows"] == 5
    assert found == json.loads((tmp_path / "s" / "chosen.json").read_text())
    assert choosing.score_choices(choices, data=tmp_path, folder=tmp_path / "s") == found and len(scored) == 4


def test_what_is_refused(sweep, tmp_path) -> None:
    loaded = load_sweep(sweep)
    cells = cells_of(loaded, sweep)
    with pytest.raises(
        UsageError, match="expected a tune score 'f1' of the run a-0-0.1-1 to choose by, got none; fini"
    ):
        choosing.choose_runs(cells, loaded.choose, tmp_path / "s")
    with pytest.raises(UsageError, match="expected a task with test data, such as classification, got question-answ"):
        score_on_test(cells[0].recipe, data=tmp_path, model=tmp_path)
    sweep.write_text(_SWEEP.replace("repeats: [optimiser.seed]", "repeats: [optimiser.sed]"))
    with pytest.raises(RecipeError, match="choose among keys of 'over', each once, and not 'optimiser.sed'"):
        load_sweep(sweep)
