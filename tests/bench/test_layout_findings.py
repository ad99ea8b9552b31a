"""What sweeps of the same models over several tasks say: means, spreads, and paired intervals of differences."""

import json
from statistics import fmean

import numpy as np
import pytest

from narrows.bench.layouts import check, find, load_findings, save_findings, task_table
from narrows.bench.report import fill
from narrows.errors import UsageError
from narrows.evaluation.class_scores import accuracy, matthews
from narrows.training.sweep import cells_of, load_sweep

_RECIPE = "name: NAME\ntask: classification\nmodel: {checkpoint: b}\ndata: {train: [{format: rte, file: c}]}\n"
_SWEEP = """
name: NAME
recipe: NAME-recipe.yaml
variants: {plain: {model.checkpoint: p}, better: {model.checkpoint: q}}
over: {optimiser.learning_rate: [0.1], optimiser.seed: [1, 2]}
choose: {keys: [optimiser.learning_rate], repeats: [optimiser.seed], score: SCORE}
"""


@pytest.fixture
def sweep(tmp_path):
    def make(name: str, score: str = "accuracy", text: str = _SWEEP):
        (tmp_path / f"{name}-recipe.yaml").write_text(_RECIPE.replace("NAME", name))
        path = tmp_path / f"{name}.yaml"
        path.write_text(text.replace("NAME", name).replace("SCORE", score))
        loaded = load_sweep(path)
        return loaded, cells_of(loaded, path)

    return make


def _finish(one, runs, right: dict[str, float], rows: int = 200, seed: int = 0) -> dict[str, list[list[int]]]:
    """Runs that answer a share of the rows rightly; what they said."""
    loaded, cells = one
    generator = np.random.default_rng(seed)
    gold = generator.integers(2, size=rows)
    said: dict[str, list[list[int]]] = {}
    for cell in cells:
        hit = generator.random(rows) < right[cell.settings["variant"]]
        predicted = np.where(hit, gold, 1 - gold)
        folder = runs / loaded.name / cell.recipe.name
        folder.mkdir(parents=True)
        score = loaded.choose.score
        (folder / "summary.json").write_text(json.dumps({"tune": {f"eval_{score}": 50.0}}))
        value = accuracy(predicted, gold) if score == "accuracy" else matthews(predicted, gold, classes=2)
        content = {"scores": {score: {"mean": value}}, "baseline": {score: {"mean": 40.0}}, "rows": rows}
        content |= {"problem": "classes", "labels": ["no", "yes"]}
        content |= {"predictions": predicted.tolist(), "gold": gold.tolist()}
        (folder / "test.json").write_text(json.dumps(content))
        said.setdefault(cell.settings["variant"], []).append((predicted == gold).tolist())
    return said


def test_the_better_model_is_beyond_chance_and_an_equal_one_is_not(sweep, tmp_path) -> None:
    first, second = sweep("first"), sweep("second", "matthews")
    _finish(first, tmp_path, {"plain": 0.6, "better": 0.9})
    _finish(second, tmp_path, {"plain": 0.6, "better": 0.9}, seed=1)
    findings = find([first, second], tmp_path)
    assert findings.base == "plain" and [task.score for task in findings.tasks] == ["accuracy", "matthews"]
    difference = findings.differences["better"]
    assert list(findings.differences) == ["better"] and 20 < difference.low < difference[0] < difference.high
    assert difference[0] == pytest.approx(findings.mean("better") - findings.mean("plain"))
    third = sweep("third")
    _finish(third, tmp_path, {"plain": 0.7, "better": 0.7})
    equal = find([third], tmp_path).differences["better"]
    assert equal.low < 0 < equal.high


def test_the_interval_is_that_of_paired_rows_and_repeats(sweep, tmp_path) -> None:
    one = sweep("first")
    said = _finish(one, tmp_path, {"plain": 0.6, "better": 0.7}, rows=400)
    # Of two repeats, both are the same one in half of the draws; the spread of rows is the rest.
    table = np.array([said["better"], said["plain"]], dtype=float)
    each = 100 * (table[0] - table[1])
    generator = np.random.default_rng(7)
    draws = [each[generator.integers(2, size=2)][:, generator.integers(400, size=400)].mean() for _ in range(4000)]
    low, high = np.quantile(draws, [0.025, 0.975])
    found = find([one], tmp_path).differences["better"]
    assert found.low == pytest.approx(low, abs=0.8) and found.high == pytest.approx(high, abs=0.8)


def test_findings_are_kept_and_put_into_pages(sweep, tmp_path) -> None:
    one = sweep("first")
    _finish(one, tmp_path, {"plain": 0.6, "better": 0.9})
    findings = find([one], tmp_path)
    save_findings(tmp_path / "some.json", findings)
    assert load_findings(tmp_path / "some.json") == findings
    assert {"machine", "versions", "commit", "date"} <= set(json.loads((tmp_path / "some.json").read_text())["run"])
    page = fill("<!-- tasks:some -->\n<!-- /tasks -->\n<!-- tasks:other -->\n<!-- /tasks -->", tmp_path)
    heading, lines = page.splitlines()[1], page.splitlines()[2:]
    assert "commit" in heading and "torch" in heading
    scores = findings.tasks[0].scores["plain"]
    assert lines[1] == "| model | first: accuracy (200 rows) | mean | less plain [95 %] |"
    mean, spread = f"{fmean(scores):.1f}", f"{min(scores):.1f}–{max(scores):.1f}"
    assert lines[3] == f"| plain | {mean} ({spread}) | {mean} |  |"
    assert lines[4].startswith("| better | ") and f"{findings.differences['better'][0]:+.1f} [" in lines[4]
    assert lines[5] == "| _always the commonest label_ | 40.0 | 40.0 |  |"
    assert lines[8] == "_Nothing was measured yet._"
    assert fill(page, tmp_path) == page and task_table(findings) in page


def test_equal_repeats_have_no_spread(sweep, tmp_path) -> None:
    one = sweep("first")
    _finish(one, tmp_path, {"plain": 0.0, "better": 1.0})
    assert "| better | 100.0 | 100.0 | +100.0 [+100.0, +100.0] |" in task_table(find([one], tmp_path))


def test_what_cannot_stand_in_a_table(sweep, tmp_path) -> None:
    one = sweep("first")
    with pytest.raises(UsageError, match="expected sweeps with 'choose' to report test scores of, got none; add it"):
        check([])
    plain = sweep("second", text=_SWEEP[: _SWEEP.index("choose")])
    with pytest.raises(UsageError, match="expected a sweep with 'choose', whose test data is scored, got second; add"):
        check([one, plain])
    more = sweep("third", text=_SWEEP.replace("over: {", "over: {optimiser.epochs: [1, 2], "))
    with pytest.raises(UsageError, match="vary nothing but its variants and what 'choose' names, got 'optimiser.epoc"):
        check([one, more])
    without = sweep(
        "fourth", text=_SWEEP.replace("variants: {plain: {model.checkpoint: p}, better: {model.checkpoint: q}}", "")
    )
    with pytest.raises(UsageError, match="expected fourth to vary nothing but .*, got no variants; change the sweep"):
        check([without])
    other = sweep("fifth", text=_SWEEP.replace("better", "best"))
    with pytest.raises(UsageError, match="expected the same variants in all sweeps, in one order, got others in fifth"):
        check([one, other])
    _finish(one, tmp_path, {"plain": 0.5, "better": 0.5})
    path = next((tmp_path / "first").glob("*/test.json"))
    path.write_text(json.dumps({"scores": {}, "baseline": {}, "rows": 1}))
    with pytest.raises(UsageError, match="expected a run's predictions of the test data in .*test.json, got none; rem"):
        find([one], tmp_path)
