"""Sweeps of one set of models over several tasks as figures: a row a model, a column a task, what a change is worth."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from narrows.bench.kept import load_report, save_report
from narrows.bench.results import describe_run
from narrows.errors import UsageError
from narrows.evaluation.bootstrap import Interval
from narrows.evaluation.class_scores import score_functions
from narrows.training.choosing import choose_runs
from narrows.training.kept import read_test
from narrows.training.sweep import Cell, ChooseSection, Sweep

__all__ = ["Findings", "Task", "check", "find", "load_findings", "save_findings", "task_table"]

_SAMPLES = 1000


class Task(NamedTuple):
    """What one sweep found.

    Attributes:
        name: of the sweep.
        score: by which it chose, such as `accuracy`; of the test data here.
        rows: of the test data.
        majority: the score of always saying the commonest label of the training data.
        scores: by model, one a repeat.
    """

    name: str
    score: str
    rows: int
    majority: float
    scores: dict[str, list[float]]


class Findings(NamedTuple):
    """What sweeps of the same models found.

    Attributes:
        base: the model that the others are compared with: the first.
        tasks: one a sweep.
        differences: of each other model, the mean over tasks of its score less the base's, and its 95 % interval: a
            paired bootstrap, in which test rows and repeats are drawn, the same ones for both models.
    """

    base: str
    tasks: list[Task]
    differences: dict[str, Interval]

    def mean(self, model: str) -> float:
        """The mean over the tasks of a model's mean over repeats."""
        return fmean(fmean(task.scores[model]) for task in self.tasks)


def check(sweeps: Sequence[tuple[Sweep, Sequence[Cell]]]) -> None:
    """Refuse, before anything is trained, sweeps that could not stand in one table.

    Raises:
        UsageError: none that chooses, one whose models are not told by the variant alone, or of other models than the
            one before.
    """
    if not sweeps:
        raise UsageError("expected sweeps with 'choose' to report test scores of, got none; add it to their files")
    first = None
    for sweep, cells in sweeps:
        choose = _choose(sweep)
        chosen = {"variant", *choose.keys, *choose.repeats}
        other = next((key for key in cells[0].settings if key not in chosen), None)
        if other is not None or "variant" not in cells[0].settings:
            got = "no variants" if other is None else repr(other)
            raise UsageError(
                f"expected {sweep.name} to vary nothing but its variants and what 'choose' names, got {got}; change "
                "the sweep"
            )
        models = list(dict.fromkeys(cell.settings["variant"] for cell in cells))
        if first is not None and models != first:
            raise UsageError(
                f"expected the same variants in all sweeps, in one order, got others in {sweep.name}; report it alone"
            )
        first = models


def find(sweeps: Sequence[tuple[Sweep, Sequence[Cell]]], runs: Path) -> Findings:
    """The findings of finished sweeps that chose: the test scores of their chosen runs.

    Args:
        sweeps: each with its runs, of `narrows.training.sweep.cells_of`.
        runs: the folder that the folders of the sweeps lie in.

    Raises:
        UsageError: see `check` and `choose_runs`; a test result without its predictions.
    """
    check(sweeps)
    found = [_tests(sweep, cells, runs / sweep.name) for sweep, cells in sweeps]
    tasks = [_task(sweep, tests) for (sweep, _), tests in zip(sweeps, found, strict=True)]
    base = next(iter(tasks[0].scores))
    return Findings(base, tasks, _differences(base, tasks, found))


def _choose(sweep: Sweep) -> ChooseSection:
    if sweep.choose is None:
        raise UsageError(f"expected a sweep with 'choose', whose test data is scored, got {sweep.name}; add it there")
    return sweep.choose


def _tests(sweep: Sweep, cells: Sequence[Cell], folder: Path) -> dict[str, list[dict[str, Any]]]:
    """By model, what each of its chosen runs said of the test data."""
    found = {}
    for choice in choose_runs(cells, _choose(sweep), folder):
        found[choice.settings["variant"]] = [_read(folder / cell.recipe.name) for cell in choice.cells]
    return found


def _read(run: Path) -> dict[str, Any]:
    content = read_test(run) or {}
    if "predictions" not in content:
        raise UsageError(
            f"expected a run's predictions of the test data in {run / 'test.json'}, got none; remove the "
            "file, and the same command scores the run again"
        )
    return content


def _task(sweep: Sweep, tests: Mapping[str, Sequence[Mapping[str, Any]]]) -> Task:
    score, one = _choose(sweep).score, next(iter(tests.values()))[0]
    scores = {model: [run["scores"][score]["mean"] for run in repeats] for model, repeats in tests.items()}
    return Task(sweep.name, score, one["rows"], one["baseline"][score]["mean"], scores)


def _differences(
    base: str, tasks: Sequence[Task], found: Sequence[Mapping[str, Sequence[Mapping[str, Any]]]]
) -> dict[str, Interval]:
    models = list(tasks[0].scores)
    draws = np.zeros((_SAMPLES, len(models)))
    generator = np.random.default_rng(0)
    for task, tests in zip(tasks, found, strict=True):
        # Of each model and repeat the score as a function of the rows that are drawn.
        functions = [[_function(run, task.score) for run in tests[model]] for model in models]
        repeats = len(functions[0])
        for sample in range(_SAMPLES):
            rows = generator.integers(task.rows, size=task.rows)
            drawn = generator.integers(repeats, size=repeats)
            scores = np.array([[function(rows) for function in of_model] for of_model in functions])
            draws[sample] += scores[:, drawn].mean(axis=1) / len(tasks)
    draws -= draws[:, [models.index(base)]]
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    means = {model: fmean(fmean(task.scores[model]) for task in tasks) for model in models}
    return {
        model: Interval(means[model] - means[base], float(low[place]), float(high[place]))
        for place, model in enumerate(models)
        if model != base
    }


def _function(run: Mapping[str, Any], score: str) -> Any:
    return score_functions(run["problem"], run["predictions"], run["gold"], labels=run["labels"])[score]


def task_table(findings: Findings) -> str:
    """Markdown: a row a model, a column a task, the mean over tasks, and its difference to the base model's.

    A score is the mean over the repeats, and the least and the most of them.
    """
    heads = [f"{task.name}: {task.score} ({task.rows:,} rows)" for task in findings.tasks]
    lines = [
        "| " + " | ".join(["model", *heads, "mean", f"less {findings.base} [95 %]"]) + " |",
        "|---" * (len(heads) + 3) + "|",
    ]
    for model in findings.tasks[0].scores:
        cells = [_spread(task.scores[model]) for task in findings.tasks]
        difference = findings.differences.get(model)
        last = "" if difference is None else f"{difference[0]:+.1f} [{difference.low:+.1f}, {difference.high:+.1f}]"
        lines.append("| " + " | ".join([model, *cells, f"{findings.mean(model):.1f}", last]) + " |")
    majorities = [task.majority for task in findings.tasks]
    cells = [*(f"{value:.1f}" for value in majorities), f"{fmean(majorities):.1f}", ""]
    lines.append("| " + " | ".join(["_always the commonest label_", *cells]) + " |")
    return "\n".join(lines) + "\n"


def _spread(scores: Sequence[float]) -> str:
    mean, least, most = f"{fmean(scores):.1f}", f"{min(scores):.1f}", f"{max(scores):.1f}"
    return mean if least == most else f"{mean} ({least}–{most})"


def save_findings(path: Path, findings: Findings) -> None:
    """Keep findings as JSON, with the machine, the versions and the commit that wrote them."""
    run = describe_run(seed=0)
    tasks = [task._asdict() for task in findings.tasks]
    differences = {model: difference._asdict() for model, difference in findings.differences.items()}
    content = {"run": run, "base": findings.base, "tasks": tasks, "differences": differences}
    save_report(path, content)


def load_findings(path: Path) -> Findings | None:
    """What `save_findings` kept; None without a file.

    Raises:
        UsageError: the file holds something else.
    """
    if not path.is_file():
        return None
    content = load_report(path, "tasks")
    try:
        differences = {model: Interval(**difference) for model, difference in content["differences"].items()}
        return Findings(content["base"], [Task(**task) for task in content["tasks"]], differences)
    except (AttributeError, KeyError, TypeError) as error:
        raise UsageError(
            f"expected findings of `narrows sweep --report` in {path}, got other keys; write them again"
        ) from error
