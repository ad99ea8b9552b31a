"""The picture of a sweep over bottleneck ratios, by matplotlib (extra `report`)."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from narrows._optional import require
from narrows.bench.ratios import MOST_LOST, Finding
from narrows.training.writing import written_whole

__all__ = ["write_plot"]


def write_plot(path: Path, findings: Sequence[Finding]) -> None:
    """Draw what is lost by what is paid: perplexity by arithmetic, a panel a length, a line for each way to match.

    Raises:
        MissingExtraError: matplotlib is not installed.
        OutputError: the file cannot be written; nothing of it is left.
    """
    figures = require("matplotlib.figure", extra="report", purpose="write a picture")
    lengths = list(dict.fromkeys(one.point.length for one in findings)) or [0]
    figure = figures.Figure(figsize=(1.5 + 3.2 * len(lengths), 3.4), layout="constrained")
    panels = figure.subplots(1, len(lengths), sharey=True, squeeze=False)[0]
    for axis, length in zip(panels, lengths, strict=True):
        here = [one for one in findings if one.point.length == length]
        full = [one for one in here if one.point.ratio == 1]
        for match in dict.fromkeys(one.point.match for one in here if one.point.ratio > 1):
            points = sorted(
                (one for one in here if one.point.match == match and one.point.ratio > 1),
                key=lambda one: one.point.macs,
            )
            places = [one.point.macs / length / 1e6 for one in points]
            losses = [[math.exp(loss) for loss in one.tune] for one in points]
            means = [fmean(one) for one in losses]
            spread = [[mean - min(one) for mean, one in zip(means, losses, strict=True)]]
            spread += [[max(one) - mean for mean, one in zip(means, losses, strict=True)]]
            axis.errorbar(places, means, yerr=spread, marker="o", markersize=3, linewidth=1, label=f"same {match}")
            for one, place, mean in zip(points, places, means, strict=True):
                axis.annotate(one.name.removesuffix(f"-{length}"), (place, mean), fontsize=6)
        for one in full:
            mean = fmean(math.exp(loss) for loss in one.tune)
            axis.plot(
                [one.point.macs / length / 1e6], [mean], marker="s", color="black", linestyle="none", label="full"
            )
            axis.axhline((1 + MOST_LOST / 100) * mean, color="0.6", linewidth=0.8, linestyle=":")
        axis.set_title(f"{length:,} tokens", fontsize=9)
        axis.set_xlabel("million multiplications a token", fontsize=8)
        axis.tick_params(labelsize=7)
    panels[0].set_ylabel("perplexity of a token", fontsize=8)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=8)
    with written_whole(path) as partial:
        figure.savefig(partial, format="png", dpi=110)
