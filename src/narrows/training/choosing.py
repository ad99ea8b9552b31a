"""Of the runs of a sweep the best by tune data, and their scores on test data, which nothing was chosen by."""

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from narrows._text import shown
from narrows.errors import UsageError
from narrows.training.kept import read_summary, read_test
from narrows.training.sweep import Cell, ChooseSection
from narrows.training.tasks import score_on_test
from narrows.training.writing import written_whole

__all__ = ["Choice", "choose_runs", "score_choices", "test_scores"]


class Choice(NamedTuple):
    """What was chosen for one combination of the keys that are not chosen.

    Attributes:
        settings: that combination.
        chosen: the values of the chosen keys.
        tune: of each candidate its values, and the mean score on tune data over repeats.
        cells: the runs of the choice, one a repeat.
    """

    settings: Mapping[str, Any]
    chosen: Mapping[str, Any]
    tune: Sequence[tuple[Mapping[str, Any], float]]
    cells: Sequence[Cell]


def choose_runs(cells: Sequence[Cell], choose: ChooseSection, folder: Path) -> list[Choice]:
    """The best values of the chosen keys by the mean tune score; of equal ones the first.

    Args:
        cells: all runs of the sweep, finished.
        choose: what is chosen, and by which score.
        folder: of the sweep.

    Raises:
        UsageError: a run that is not finished, or has no such score.
    """
    groups: dict[str, dict[str, list[Cell]]] = {}
    for cell in cells:
        others = {k: v for k, v in cell.settings.items() if k not in (*choose.keys, *choose.repeats)}
        candidate = {key: cell.settings[key] for key in choose.keys}
        groups.setdefault(json.dumps(others), {}).setdefault(json.dumps(candidate), []).append(cell)
    choices = []
    for others, candidates in groups.items():
        tune = {name: fmean(_tuned(cell, choose.score, folder) for cell in own) for name, own in candidates.items()}
        best = (min if choose.lower_is_better else max)(tune, key=tune.__getitem__)
        scores = [(json.loads(name), score) for name, score in tune.items()]
        choices.append(Choice(json.loads(others), json.loads(best), scores, candidates[best]))
    return choices


def score_choices(choices: Sequence[Choice], *, data: Path, folder: Path) -> list[dict[str, Any]]:
    """The test scores of the chosen runs, kept in each run's `test.json` and together in `chosen.json`.

    A run that was scored before is not scored again.

    Returns:
        For each choice its settings, the tune scores of all candidates, and `test`: by score the values of the repeats,
        their mean, median, and the commonest label's.
    """
    found = []
    for choice in choices:
        tests = [test_scores(cell, data, folder) for cell in choice.cells]
        test = {}
        for name in tests[0]["scores"]:
            values = [one["scores"][name]["mean"] for one in tests]
            test[name] = {
                "mean": fmean(values),
                "median": median(values),
                "runs": [one["scores"][name] for one in tests],
                "majority": tests[0]["baseline"][name]["mean"],
            }
        found.append(
            {
                "settings": dict(choice.settings),
                "chosen": dict(choice.chosen),
                **({"baseline_is": tests[0]["baseline_is"]} if "baseline_is" in tests[0] else {}),
                "tune": [{"values": dict(values), "mean": score} for values, score in choice.tune],
                "rows": tests[0]["rows"],
                "test": test,
            }
        )
    _write(folder / "chosen.json", found)
    return found


def _tuned(cell: Cell, score: str, folder: Path) -> float:
    run = folder / cell.recipe.name
    summary = read_summary(run)
    if summary is None and (run / "model").is_dir():
        raise UsageError(
            f"expected the summary of the finished run {cell.recipe.name} in {run / 'summary.json'}, got none; remove "
            f"the folder {run}, and the same command trains it again"
        )
    tune = {} if summary is None else summary["tune"]
    if f"eval_{score}" not in tune:
        got = ", ".join(name.removeprefix("eval_") for name in tune) or "none"
        raise UsageError(
            f"expected a tune score {score!r} of the run {cell.recipe.name} to choose by, got {got}; finish the run, "
            "name tune data, or another score"
        )
    value = tune[f"eval_{score}"]
    # No number is greater than NaN: the choice would hang on the order of the runs.
    if not isinstance(value, int | float) or not isfinite(value):
        raise UsageError(
            f"expected a finite tune score {score!r} of the run {cell.recipe.name} to choose by, got {shown(value)}; "
            f"remove the folder {run} and train it again, or leave its values out of the sweep"
        )
    return float(value)


def test_scores(cell: Cell, data: Path, folder: Path) -> dict[str, Any]:
    """What a finished run scores on test data, scored once and kept in its `test.json`."""
    run = folder / cell.recipe.name
    found = read_test(run)
    if found is None:
        found = score_on_test(cell.recipe, data=data, model=run / "model")
        _write(run / "test.json", found)
    return found


def _write(path: Path, content: Any) -> None:
    with written_whole(path) as partial:
        partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
