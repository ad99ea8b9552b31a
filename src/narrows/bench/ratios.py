"""Sweeps over bottleneck ratios as figures: what each costs and loses, and which the article would take."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

from narrows.bench.kept import load_report, save_report
from narrows.bench.results import describe_run
from narrows.bottleneck.presets import article_ratio
from narrows.errors import UsageError
from narrows.training.choosing import test_scores
from narrows.training.language.recipe import LanguageRecipe
from narrows.training.ratios import MATCHES, Point, point_of
from narrows.training.sweep import Cell

__all__ = ["Finding", "find", "load_findings", "ratio_table", "rule_table", "save_findings", "score"]

MOST_LOST = 5.0
"""Percent of perplexity that the article lets a ratio cost."""


class Finding(NamedTuple):
    """One model of a grid, over its seeds.

    Attributes:
        name: of the variant.
        point: what it is and costs.
        tune: nats a token of the part of the tune text that the recipe's `evaluate` names, a seed each.
        test: the same of the whole test text; none where it was not scored.
        speeds: tokens a second of training.
        memory: peak of the process in MB.
    """

    name: str
    point: Point
    tune: list[float]
    test: list[float]
    speeds: list[float]
    memory: list[float]


def score(cells: Sequence[Cell], *, data: Path, folder: Path) -> None:
    """Score the finished runs on their test text, once each; kept in each run's `test.json`."""
    for cell in cells:
        if isinstance(cell.recipe, LanguageRecipe) and cell.recipe.data.tests:
            test_scores(cell, data, folder)


def find(cells: Sequence[Cell], folder: Path) -> list[Finding]:
    """The findings of a sweep's finished runs, in the sweep's order.

    Args:
        cells: of `narrows.training.sweep.cells_of`.
        folder: that the runs lie in.

    Raises:
        UsageError: the sweep is of another task.
    """
    found: dict[str, Finding] = {}
    for cell in cells:
        recipe = cell.recipe
        if not isinstance(recipe, LanguageRecipe):
            raise UsageError(f"expected a sweep of causal-lm, got one of the task {recipe.task!r}; name another")
        run, name = folder / recipe.name, str(cell.settings["variant"])
        if not (run / "summary.json").is_file():
            continue
        if name not in found:
            found[name] = Finding(name, point_of(recipe, match=_match(name)), [], [], [], [])
        one = found[name]
        one.tune.append(_json(run / "summary.json")["tune"]["eval_loss"])
        if (run / "test.json").is_file():
            one.test.append(_json(run / "test.json")["scores"]["loss"]["mean"])
        speeds, peaks = _logged(run / "log.jsonl")
        # A run of a few steps logs none.
        one.speeds.extend([median(speeds)] if speeds else [])
        one.memory.extend([max(peaks)] if peaks else [])
    return list(found.values())


def _match(name: str) -> str:
    return next((match for match in MATCHES if f"-{match}" in name), "width")


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _logged(path: Path) -> tuple[list[float], list[float]]:
    """The tokens a second, and the peaks of memory, that a run logged."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    speeds, peaks = ([line[name] for line in lines if name in line] for name in ("tokens_per_second", "peak_memory_mb"))
    return speeds, peaks


def change(finding: Finding, full: Finding, *, test: bool = False) -> tuple[float, float, float]:
    """Perplexity against the full model's in percent: by the mean over seeds, and the least and most of a seed's."""
    ours, theirs = (one.test if test else one.tune for one in (finding, full))
    apart = [mine - other for mine, other in zip(ours, theirs, strict=False)]
    if not apart:
        return math.nan, math.nan, math.nan
    percents = [100 * (math.exp(one) - 1) for one in (fmean(apart), min(apart), max(apart))]
    return percents[0], percents[1], percents[2]


def full_of(findings: Sequence[Finding], length: int) -> Finding | None:
    """The full model of a length."""
    return next((one for one in findings if one.point.ratio == 1 and one.point.length == length), None)


def ratio_table(findings: Sequence[Finding]) -> str:
    """Markdown: a row a model, with what it costs and what it loses against the full one of its length."""
    heads = ["model", "length", "heads", "like full by", "parameters", "arithmetic", "tokens/s", "bits a byte",
             "perplexity against full", "the same, test text", "within 5 %"]  # fmt: skip
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for one in findings:
        full = full_of(findings, one.point.length)
        cells = [one.name, f"{one.point.length:,}", str(one.point.heads)]
        cells += ["" if one.point.ratio == 1 else one.point.match]
        if full is None or one is full:
            cells += [
                f"{one.point.parameters:,}",
                "1",
                f"{median(one.speeds):,.0f}" if one.speeds else "–",
                _bits(one),
                "",
                "",
                "",
            ]
        else:
            tune = change(one, full)
            cells += [
                f"{one.point.parameters / full.point.parameters:.2f}×",
                f"{one.point.macs / full.point.macs:.2f}×",
                f"{median(one.speeds) / median(full.speeds):.2f}×" if one.speeds and full.speeds else "–",
                _bits(one),
                _percent(tune),
                _percent(change(one, full, test=True)) if one.test and full.test else "",
                "yes" if tune[0] <= MOST_LOST else "no",
            ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def rule_table(findings: Sequence[Finding]) -> str:
    """Markdown: by length, the ratio that the article names, and the largest that loses no more than 5 % here."""
    lines = ["| length | the article's ratio | it loses | largest within 5 %, same width |", "|---|---|---|---|"]
    for length in dict.fromkeys(one.point.length for one in findings):
        full = full_of(findings, length)
        if full is None:
            continue
        same = [one for one in findings if one.point.length == length and one.point.ratio > 1]
        same = [one for one in same if one.point.match == "width"]
        named = [one for one in same if one.point.ratio == article_ratio(length)]
        lost = _percent(change(named[0], full)) if named else "not measured"
        within = [one for one in same if change(one, full)[0] <= MOST_LOST]
        best = f"{max(one.point.ratio for one in within):g}" if within else "none"
        lines.append(f"| {length:,} | {article_ratio(length)} | {lost} | {best} |")
    return "\n".join(lines) + "\n"


def _bits(one: Finding) -> str:
    bits = [loss / math.log(2) for loss in one.tune]
    mean = f"{fmean(bits):.3f}"
    return mean if len(bits) == 1 else f"{mean} ({min(bits):.3f}–{max(bits):.3f})"


def _percent(values: tuple[float, float, float]) -> str:
    mean, least, most = (f"{value:+.1f} %" for value in values)
    return mean if least == most else f"{mean} ({least} to {most})"


def save_findings(path: Path, findings: Sequence[Finding]) -> None:
    """Keep findings as JSON, with the machine, the versions and the commit that wrote them."""
    rows = [{**one._asdict(), "point": one.point._asdict()} for one in findings]
    save_report(path, {"run": describe_run(seed=0), "findings": rows})


def load_findings(path: Path) -> list[Finding]:
    """What `save_findings` kept; none without a file.

    Raises:
        UsageError: the file holds something else.
    """
    if not path.is_file():
        return []
    found = load_report(path, "findings")["findings"]
    try:
        return [Finding(**{**row, "point": Point(**row["point"])}) for row in found]
    except (KeyError, TypeError) as error:
        raise UsageError(
            f"expected findings of a sweep over ratios in {path}, got those of another; name another file"
        ) from error
