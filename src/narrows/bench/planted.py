"""Sweeps of planted facts as figures: accuracy by distance and by length, over the seeds that learnt the task."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from narrows._plural import count
from narrows.bench.kept import load_report, save_report
from narrows.bench.results import describe_run
from narrows.errors import UsageError
from narrows.training.planted.recipe import PlantedRecipe
from narrows.training.sweep import Cell as Run

__all__ = ["Accuracy", "Finding", "distance_table", "find", "length_table", "load_findings", "save_findings"]

_SEED = "optimiser.seed"
# Share of the nearest facts, which one layer sees, from which a run has learnt what is asked. Below, it says nothing of
# how far it sees.
_LEARNT = 0.9


class Accuracy(NamedTuple):
    """Questions at one range of distances in texts of one length.

    Attributes:
        length: tokens of the texts.
        low, high: distances from `low` up to, but not with, `high`.
        questions: of all counted runs.
        mean, least, most: shares that were answered rightly, over the runs.
    """

    length: int
    low: int
    high: int
    questions: int
    mean: float
    least: float
    most: float


class Finding(NamedTuple):
    """What the runs of one setting found.

    Attributes:
        settings: the varied keys but the seed.
        nearest: tokens to each side that a query of one layer sees: the first range of distances.
        reach: tokens that local attention of all layers carries.
        longest: tokens of the longest text in training.
        near: by seed, the share of facts no farther than `nearest` in texts of trained lengths.
        accuracies: of the runs that learnt the task, by length and distance; none when no run did.
    """

    settings: dict[str, Any]
    nearest: int
    reach: int
    longest: int
    near: dict[str, float]
    accuracies: list[Accuracy]

    @property
    def counted(self) -> int:
        """Runs that learnt the task."""
        return sum(near >= _LEARNT for near in self.near.values())

    def share(self, length: int, *, beyond: bool) -> float | None:
        """Questions answered rightly in texts of a length, within the reach of local attention or beyond it."""
        chosen = [
            row
            for row in self.accuracies
            if row.length == length and (row.low > self.reach) == beyond and row.questions
        ]
        total = sum(row.questions for row in chosen)
        return sum(row.mean * row.questions for row in chosen) / total if total else None


def find(runs: Iterable[Run], folder: Path) -> list[Finding]:
    """The findings of a sweep's finished runs, in the sweep's order.

    Args:
        runs: of `narrows.training.sweep.cells_of`.
        folder: that the runs lie in.

    Raises:
        UsageError: the sweep is of another task.
    """
    groups: dict[str, list[tuple[str, PlantedRecipe, Path]]] = {}
    settings: dict[str, dict[str, Any]] = {}
    for run in runs:
        recipe = run.recipe
        if not isinstance(recipe, PlantedRecipe):
            raise UsageError(
                f"expected a sweep of planted facts, got one of the task {recipe.task!r}; name another sweep"
            )
        own = {key: value for key, value in run.settings.items() if key != _SEED}
        key = json.dumps(own)
        settings[key] = own
        table = folder / recipe.name / "model" / "accuracy.json"
        if table.is_file():
            groups.setdefault(key, []).append((str(recipe.optimiser.seed), recipe, table))
    return [_finding(settings[key], found) for key, found in groups.items()]


def _finding(settings: dict[str, Any], runs: Sequence[tuple[str, PlantedRecipe, Path]]) -> Finding:
    recipe = runs[0][1]
    near, learnt = {}, []
    for seed, _, path in runs:
        rows = json.loads(path.read_text(encoding="utf-8"))
        near[seed] = _near(rows, recipe)
        if near[seed] >= _LEARNT:
            learnt.append({(row["length"], row["low"], row["high"]): (row["questions"], row["right"]) for row in rows})
    places = sorted(set().union(*learnt)) if learnt else []
    accuracies = [_accuracy(place, [run[place] for run in learnt if place in run]) for place in places]
    return Finding(settings, recipe.model.local_radius, recipe.reach, max(recipe.data.lengths), near, accuracies)


def _near(rows: Sequence[Mapping[str, int]], recipe: PlantedRecipe) -> float:
    longest = max(recipe.data.lengths)
    near = [row for row in rows if row["length"] <= longest and row["high"] <= recipe.model.local_radius + 1]
    questions = sum(row["questions"] for row in near)
    return sum(row["right"] for row in near) / questions if questions else 0.0


def _accuracy(place: tuple[int, int, int], counts: Sequence[tuple[int, int]]) -> Accuracy:
    shares = [right / questions for questions, right in counts]
    return Accuracy(
        *place, sum(questions for questions, _ in counts), sum(shares) / len(shares), min(shares), max(shares)
    )


def distance_table(findings: Sequence[Finding], length: int) -> str:
    """Markdown: accuracy in percent by distance, in texts of one length; a spread where the seeds differ.

    Settings whose ranges of distances differ, since their reach does, have a dash where another has a figure.
    """
    ranges = sorted({(row.low, row.high) for finding in findings for row in finding.accuracies if row.length == length})
    lines = [
        f"| {count(length, 'token')} | " + " | ".join(f"{max(low, 1):,}–{high - 1:,}" for low, high in ranges) + " |",
        "|---" * (len(ranges) + 1) + "|",
    ]
    for finding in findings:
        rows = {(row.low, row.high): row for row in finding.accuracies if row.length == length}
        cells = [_spread(rows[place]) if place in rows else "–" for place in ranges]
        lines.append(f"| {_name(finding)} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def length_table(findings: Sequence[Finding]) -> str:
    """Markdown: accuracy in percent by length, of facts that local attention can carry and of those beyond."""
    lengths = sorted({row.length for finding in findings for row in finding.accuracies})
    lines = [
        "| "
        + " | ".join(["within / beyond reach", "runs that learnt it", *(f"{length:,}" for length in lengths)])
        + " |",
        "|---" * (len(lengths) + 2) + "|",
    ]
    for finding in findings:
        cells = [
            f"{_percent(finding.share(length, beyond=False))} / {_percent(finding.share(length, beyond=True))}"
            for length in lengths
        ]
        cells = [_name(finding), f"{finding.counted} of {len(finding.near)}", *cells]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _name(finding: Finding) -> str:
    return ", ".join(f"{key.rpartition('.')[2]} {value}" for key, value in finding.settings.items()) or "all"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f}"


def _spread(row: Accuracy) -> str:
    text = _percent(row.mean)
    ends = _percent(row.least), _percent(row.most)
    return text if ends[0] == ends[1] else f"{text} ({ends[0]}–{ends[1]})"


def save_findings(path: Path, name: str, findings: Sequence[Finding]) -> None:
    """Keep a sweep's findings as JSON, with the machine, the versions and the commit that wrote them."""
    run = describe_run(seed=0)
    del run["seed"]
    rows = [{**finding._asdict(), "accuracies": [row._asdict() for row in finding.accuracies]} for finding in findings]
    save_report(path, {"sweep": name, "run": run, "findings": rows})


def load_findings(path: Path) -> list[Finding]:
    """What `save_findings` kept; nothing without a file.

    Raises:
        UsageError: the file holds something else.
    """
    if not path.is_file():
        return []
    rows = load_report(path, "findings")["findings"]
    try:
        return [Finding(**{**row, "accuracies": [Accuracy(**cell) for cell in row["accuracies"]]}) for row in rows]
    except (KeyError, TypeError) as error:
        raise UsageError(
            f"expected findings of `narrows sweep --report` in {path}, got other keys; write them again"
        ) from error
