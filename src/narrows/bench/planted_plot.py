"""The picture of a sweep of planted facts, by matplotlib (extra `report`)."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from narrows._optional import require
from narrows.bench.planted import Finding
from narrows.training.writing import written_whole

__all__ = ["write_plot"]

_PURPOSE = "write a picture"


def write_plot(path: Path, findings: Sequence[Finding]) -> None:
    """Draw accuracy by distance: a panel a length, a line a setting, a band over its seeds.

    Raises:
        MissingExtraError: matplotlib is not installed.
        OutputError: the file cannot be written; nothing of it is left.
    """
    figures = require("matplotlib.figure", extra="report", purpose=_PURPOSE)
    lengths = sorted({row.length for finding in findings for row in finding.accuracies})
    figure = figures.Figure(figsize=(1 + 2.4 * max(1, len(lengths)), 3.2), layout="constrained")
    panels = figure.subplots(1, max(1, len(lengths)), sharey=True, squeeze=False)[0]
    for axis, length in zip(panels, lengths, strict=False):
        for finding in findings:
            _draw(axis, finding, length)
        axis.axvline(findings[0].reach, color="0.6", linewidth=0.8, linestyle=":")
        trained = ", trained" if length <= findings[0].longest else ""
        axis.set_title(f"{length:,} tokens{trained}", fontsize=9)
        axis.set_xscale("log", base=2)
        axis.set_xlabel("distance of the fact", fontsize=8)
        axis.set_ylim(-3, 103)
        axis.tick_params(labelsize=7)
    panels[0].set_ylabel("answered rightly, %", fontsize=8)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=8)
    with written_whole(path) as partial:
        figure.savefig(partial, format="png", dpi=110)


def _draw(axis: Any, finding: Finding, length: int) -> None:
    rows = [row for row in finding.accuracies if row.length == length]
    middles = [math.sqrt(max(row.low, 8) * (row.high - 1)) for row in rows]
    name = ", ".join(str(value) for value in finding.settings.values())
    (line,) = axis.plot(middles, [100 * row.mean for row in rows], marker="o", markersize=3, linewidth=1.2, label=name)
    axis.fill_between(
        middles, [100 * row.least for row in rows], [100 * row.most for row in rows], color=line.get_color(), alpha=0.15
    )
