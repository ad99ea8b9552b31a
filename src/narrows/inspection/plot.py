"""Pictures as PNG files, by matplotlib (extra `report`)."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from narrows._optional import require
from narrows.errors import UsageError
from narrows.inspection.patterns import Pattern, Runs
from narrows.inspection.pictures import finest_blocks, visible_shares
from narrows.training.writing import written_whole

__all__ = ["check_place", "write_png"]

_PURPOSE = "write a picture"
_MOST_CELLS = 512
# Up to here the keys of a block are drawn apart.
_MOST_LINES = 64
# Inches.
_BLOCK_WIDTH = 3.6
_EDGE_WIDTH = 1.9
_CHARACTERS_AN_INCH = 10


def check_place(path: Path) -> None:
    """Refuse what no picture can be written to, before the work.

    Raises:
        UsageError: the name does not end in .png, or there is no such folder.
        MissingExtraError: matplotlib is not installed.
    """
    if path.suffix.lower() != ".png":
        raise UsageError(f"expected a file name that ends in .png, got {path}; the picture is a PNG, name it so")
    if not path.parent.is_dir():
        raise UsageError(f"expected a folder to write to, got {path.parent}, which is none; make it first")
    require("matplotlib", extra="report", purpose=_PURPOSE)


def write_png(
    path: Path, title: str, patterns: Sequence[Pattern], runs: Sequence[Runs], *, reach: bool = False
) -> None:
    """Draw patterns side by side, each block by itself, or the tokens that they reach.

    Args:
        path: checked by `check_place`.
        title: above all.
        patterns: those of a subject.
        runs: of each pattern.
        reach: draw which block reaches each token, in place of the visible pairs.

    Raises:
        OutputError: the file cannot be written; nothing of it is left.
    """
    figures = require("matplotlib.figure", extra="report", purpose=_PURPOSE)
    blocks = len(patterns) if reach else sum(len(pattern.blocks) for pattern in patterns)
    width = _EDGE_WIDTH + _BLOCK_WIDTH * blocks
    figure = figures.Figure(figsize=(width, 4.8), layout="constrained")
    axes = iter(figure.subplots(1, blocks, squeeze=False)[0])
    for pattern, own in zip(patterns, runs, strict=True):
        name = pattern.name if len(patterns) > 1 else ""
        if reach:
            _draw_reach(next(axes), pattern, own, name)
        else:
            _draw_shares([next(axes) for _ in pattern.blocks], pattern, own, name)
    figure.suptitle("\n".join(wrap(title, int(_CHARACTERS_AN_INCH * width))), fontsize=10)
    if reach:
        figure.legend(handles=_keys_of(patterns), loc="outside right center", fontsize=8)
    else:
        figure.colorbar(figure.axes[0].images[0], ax=figure.axes, label="share of visible pairs")
    with written_whole(path) as partial:
        figure.savefig(partial, format="png", dpi=120)


def _draw_shares(axes: Sequence[Any], pattern: Pattern, runs: Runs, name: str) -> None:
    colors = require("matplotlib.colors", extra="report", purpose=_PURPOSE)
    columns = [min(block.keys, _MOST_CELLS) for block in pattern.blocks]
    shares = visible_shares(pattern, runs, rows=min(pattern.length, _MOST_CELLS), columns=columns)
    for axis, block, image in zip(axes, pattern.blocks, shares, strict=True):
        axis.imshow(
            image,
            extent=(0, block.keys, pattern.length, 0),
            aspect="auto",
            # A power below 1, so that a narrow window in a long text still leaves a trace.
            norm=colors.PowerNorm(0.5, vmin=0, vmax=1),
            cmap="Blues",
            interpolation="nearest",
        )
        axis.set_title(": ".join(part for part in (name, block.name) if part), fontsize=9)
        axis.set_xlabel("token" if block.keys == pattern.tokens else f"slot, of {block.keys:,}")
        axis.set_ylabel("query")
        for border in range(1, block.keys) if block.keys <= _MOST_LINES else ():
            axis.axvline(border, color="0.7", linewidth=0.5)


def _draw_reach(axis: Any, pattern: Pattern, runs: Runs, name: str) -> None:
    colors = require("matplotlib.colors", extra="report", purpose=_PURPOSE)
    rows, columns = (min(number, _MOST_CELLS) for number in (pattern.length, pattern.tokens))
    axis.imshow(
        finest_blocks(pattern, runs, rows=rows, columns=columns),
        extent=(0, pattern.tokens, pattern.length, 0),
        vmin=-0.5,
        vmax=len(pattern.blocks) + 0.5,
        cmap=colors.ListedColormap(_palette(len(pattern.blocks))),
        interpolation="nearest",
    )
    axis.set_title(name, fontsize=9)
    axis.set_xlabel("token")
    axis.set_ylabel("query")


def _keys_of(patterns: Sequence[Pattern]) -> list[Any]:
    """What the colours of a reach stand for."""
    patches = require("matplotlib.patches", extra="report", purpose=_PURPOSE)
    names = max(([block.name for block in pattern.blocks] for pattern in patterns), key=len)
    return [
        patches.Patch(facecolor=color, edgecolor="0.5", label=name)
        for color, name in zip(_palette(len(names)), ["not reached", *names], strict=True)
    ]


def _palette(blocks: int) -> list[Any]:
    maps = require("matplotlib", extra="report", purpose=_PURPOSE).colormaps
    return ["white", *maps["viridis"](np.linspace(0, 0.95, blocks))]
