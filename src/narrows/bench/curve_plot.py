"""The picture of a family's rows from short to long, by matplotlib (extra `report`)."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from narrows._optional import require
from narrows.errors import UsageError
from narrows.training.writing import written_whole

__all__ = ["Point", "read_curves", "write_curves"]

_ROW = re.compile(r"curve-(time|memory)-(\w+)-(\d+)")
_DETAIL = {"time": "seconds", "memory": "mib"}
_LABEL = {"time": "seconds a forward pass", "memory": "MiB above the weights"}


class Point(NamedTuple):
    """What a model took for a text: seconds, or MiB, by tokens."""

    tokens: int
    value: float


def read_curves(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, list[Point]]]:
    """Seconds and MiB by model, from rows `curve-time-MODEL-TOKENS` and `curve-memory-MODEL-TOKENS` of a results file.

    Their values are ratios to a peer; what each side took itself lies in their details.

    Raises:
        UsageError: there are no such rows.

    Example:
        >>> row = {"detail": {"seconds": {"dynamic/forward": 0.4, "local/forward": 0.5}}}
        >>> read_curves({"curve-time-dynamic-2048": row})
        {'time': {'dynamic': [Point(tokens=2048, value=0.4)]}}
    """
    curves: dict[str, dict[str, list[Point]]] = {}
    for name, row in rows.items():
        found = _ROW.fullmatch(name)
        if found is None:
            continue
        what, model, tokens = found[1], found[2], int(found[3])
        sides = row.get("detail", {}).get(_DETAIL[what], {})
        own = [value for side, value in sides.items() if side.split("/")[0] == model]
        if own:
            curves.setdefault(what, {}).setdefault(model, []).append(Point(tokens, own[0]))
    if not curves:
        raise UsageError("expected rows from short to long to draw, got none; measure `curve-*` of mulla first")
    return {what: {model: sorted(points) for model, points in models.items()} for what, models in curves.items()}


def write_curves(path: Path, rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw time and memory by tokens, a panel each, a line a model.

    Raises:
        MissingExtraError: matplotlib is not installed.
        UsageError: as of `read_curves`.
        OutputError: the file cannot be written; nothing of it is left.
    """
    figures = require("matplotlib.figure", extra="report", purpose="write a picture")
    curves = read_curves(rows)
    figure = figures.Figure(figsize=(1 + 4 * len(curves), 3.2), layout="constrained")
    panels = figure.subplots(1, len(curves), squeeze=False)[0]
    for axis, (what, models) in zip(panels, sorted(curves.items(), reverse=True), strict=True):
        for model, points in sorted(models.items()):
            axis.plot(*zip(*points, strict=True), marker="o", markersize=3, linewidth=1.2, label=model)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        tokens = sorted({point.tokens for points in models.values() for point in points})
        axis.set_xticks(tokens, [f"{number // 1024}k" for number in tokens])
        axis.set_xlabel("tokens", fontsize=8)
        axis.set_ylabel(_LABEL[what], fontsize=8)
        axis.tick_params(labelsize=7)
    panels[0].legend(fontsize=8)
    with written_whole(path) as partial:
        figure.savefig(partial, format="png", dpi=110)
