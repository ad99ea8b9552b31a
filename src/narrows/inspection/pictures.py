"""Patterns into pictures: shares of visible pairs, the levels behind a token, and characters for both."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int32, Int64, UInt8

from narrows.inspection.patterns import Pattern, Runs, covered_runs

__all__ = [
    "REACH",
    "SHADES",
    "Grid",
    "finest_blocks",
    "fit",
    "grid",
    "reach_text",
    "shade_text",
    "text_picture",
    "visible_shares",
]

SHADES = " ░▒▓█"
"""None of a cell's pairs are visible, up to a third, up to two thirds, more, all."""
REACH = " █▓▒░5678" + "9abcdefghijklmnopqrstuvwxyz"
"""Not reached, then a character for each block from the first on; the last one stands for all beyond."""

_QUERIES_AT_ONCE = 1024
_MOST_ROWS = 24
_ROWS_A_NUMBER = 4


class Grid(NamedTuple):
    """How a pattern is cut into the cells of a picture."""

    rows: int
    columns: tuple[int, ...]
    """Cells of each block, from left to right."""
    stretch: int
    """Characters of a cell: 2 where every cell is a single pair and there is room, since characters are tall."""


def fit(keys: Sequence[int], room: int) -> tuple[int, ...]:
    """Columns of each block where `room` columns are shared out: alike, but none gets more than it has keys.

    Every block gets at least one.

    Example:
        >>> fit([1000, 500, 4], 50)
        (23, 23, 4)
    """
    columns, left = [0] * len(keys), room
    for done, index in enumerate(sorted(range(len(keys)), key=lambda index: keys[index])):
        columns[index] = max(1, min(keys[index], left // (len(keys) - done)))
        left -= columns[index]
    return tuple(columns)


def grid(pattern: Pattern, room: int, *, tokens_only: bool = False) -> Grid:
    """The cells of a picture in characters.

    Args:
        pattern: what is drawn.
        room: characters of a line that the blocks share, the lines between them not counted.
        tokens_only: one block of the tokens, as `finest_blocks` wants it.
    """
    keys = [pattern.tokens] if tokens_only else [block.keys for block in pattern.blocks]
    columns = fit(keys, room)
    rows = min(pattern.length, _MOST_ROWS)
    is_exact = rows == pattern.length and list(columns) == keys
    return Grid(rows, columns, 2 if is_exact and 2 * sum(columns) <= room else 1)


def visible_shares(
    pattern: Pattern, runs: Runs, *, rows: int, columns: Sequence[int]
) -> list[Float32[np.ndarray, "rows columns"]]:
    """For each block the share of visible pairs in each cell of a picture.

    Cells are as equal as whole queries and keys allow. Memory is that of the cells and of a strip of queries.

    Args:
        pattern: what is drawn.
        runs: of `runs_of`.
        rows: cells over the queries, at most as many as there are.
        columns: cells over the keys of each block, at most as many as it has.

    Example:
        >>> from narrows.inspection.registry import build
        >>> from narrows.inspection.patterns import runs_of
        >>> [pattern] = build("local", {"length": 4, "local_radius": 1}).patterns
        >>> visible_shares(pattern, runs_of(pattern), rows=2, columns=[2])[0].tolist()
        [[1.0, 0.25], [0.25, 1.0]]
    """
    heights = _borders(pattern.length, rows)
    shares = []
    for index, (block, cells) in enumerate(zip(pattern.blocks, columns, strict=True)):
        edges = _borders(block.keys, cells)
        visible = np.zeros((rows, cells), dtype=np.int64)
        for row, queries in _strips(heights):
            visible[row] += _overlaps(runs[index, queries], edges).sum(0)
        shares.append((visible / np.outer(np.diff(heights), np.diff(edges))).astype(np.float32))
    return shares


def finest_blocks(pattern: Pattern, runs: Runs, *, rows: int, columns: int) -> UInt8[np.ndarray, "rows columns"]:
    """The tokens behind the visible keys: for each cell over queries and tokens the first block that reaches into it.

    Returns:
        `[rows, columns]`, 1 for the first block, 2 for the second and so on; 0 where no query of the cell reaches any
        of its tokens.
    """
    covered = covered_runs(pattern, runs)
    heights, edges = _borders(pattern.length, rows), _borders(pattern.tokens, columns)
    finest = np.zeros((rows, columns), dtype=np.uint8)
    for index in range(len(pattern.blocks)):
        for row, queries in _strips(heights):
            is_reached = (_overlaps(covered[index, queries], edges) > 0).any(0)
            finest[row][is_reached & (finest[row] == 0)] = index + 1
    return finest


def shade_text(shares: Float32[np.ndarray, "rows columns"], *, stretch: int = 1) -> list[str]:
    """A line of `SHADES` for each row; whatever is visible at all leaves a trace, and only what is whole is full.

    Example:
        >>> shade_text(np.array([[0.0, 0.01, 0.5, 0.99, 1.0]], dtype=np.float32))
        [' ░▒▓█']
    """
    tones = np.where(shares == 0, 0, np.where(shares == 1, 4, 1 + np.minimum(shares * 3, 2).astype(int)))
    return ["".join(SHADES[tone] * stretch for tone in row) for row in tones]


def reach_text(finest: UInt8[np.ndarray, "rows columns"], *, stretch: int = 1) -> list[str]:
    """A line of `REACH` for each row."""
    return ["".join(REACH[min(block, len(REACH) - 1)] * stretch for block in row) for row in finest.tolist()]


def text_picture(pattern: Pattern, runs: Runs, *, width: int, reach: bool = False) -> list[str]:
    """A picture in characters: a line of names, then a line for each row, with the number of its first query.

    Args:
        pattern: what is drawn.
        runs: of `runs_of`.
        width: characters of a line; more are taken only where every block would not get one.
        reach: draw which block reaches each token, in place of the visible pairs of each block.

    Example:
        >>> from narrows.inspection.registry import build
        >>> from narrows.inspection.patterns import runs_of
        >>> [pattern] = build("mulla", {"length": 4, "local_radius": 1, "pooling_rate": 2}).patterns
        >>> print("\\n".join(text_picture(pattern, runs_of(pattern), width=40)))
          │level 1 │2   │3 │
        0 │████    │████│██│
        1 │██████  │████│██│
        2 │  ██████│████│██│
        3 │    ████│████│██│
    """
    blocks = 1 if reach else len(pattern.blocks)
    margin = max(len(f"{pattern.length - 1:,}") + 1, 2)
    cells = grid(pattern, width - margin - 1 - blocks, tokens_only=reach)
    if reach:
        finest = finest_blocks(pattern, runs, rows=cells.rows, columns=cells.columns[0])
        parts, names = [reach_text(finest, stretch=cells.stretch)], ["tokens"]
    else:
        shares = visible_shares(pattern, runs, rows=cells.rows, columns=cells.columns)
        parts = [shade_text(part, stretch=cells.stretch) for part in shares]
        names = [block.name for block in pattern.blocks]
    fitted = [_name(name, columns * cells.stretch) for name, columns in zip(names, cells.columns, strict=True)]
    lines = [f"{'':{margin}}│{'│'.join(fitted)}│"]
    for row, query in enumerate(_borders(pattern.length, cells.rows)[:-1].tolist()):
        number = f"{query:,}" if cells.rows == pattern.length or row % _ROWS_A_NUMBER == 0 else ""
        lines.append(f"{number:<{margin}}│{'│'.join(part[row] for part in parts)}│")
    return lines


def _name(name: str, room: int) -> str:
    """A block's name in its room: whole, or else its number alone, or nothing."""
    shown = next((shown for shown in (name, name.split()[-1]) if len(shown) <= room), "")
    return f"{shown:<{room}}"


def _borders(length: int, cells: int) -> Int64[np.ndarray, " cells_and_1"]:
    return np.arange(cells + 1, dtype=np.int64) * length // cells


def _strips(heights: Int64[np.ndarray, " rows_and_1"]) -> list[tuple[int, slice]]:
    """The queries of each row, a bounded number at a time."""
    return [
        (row, slice(start, min(start + _QUERIES_AT_ONCE, end)))
        for row, (begin, end) in enumerate(pairwise(heights.tolist()))
        for start in range(begin, end, _QUERIES_AT_ONCE)
    ]


def _overlaps(
    runs: Int32[np.ndarray, "queries 2"], edges: Int64[np.ndarray, " columns_and_1"]
) -> Int64[np.ndarray, "queries columns"]:
    """How many keys of each run lie in each cell."""
    starts, stops = np.maximum(runs[:, :1], edges[:-1]), np.minimum(runs[:, 1:], edges[1:])
    return np.maximum(stops - starts, 0)
