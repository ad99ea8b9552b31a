"""Pictures beside what the whole square would show."""

import re
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrows.errors import MissingExtraError, OutputError, UsageError
from narrows.inspection.patterns import Block, Pattern, runs_of
from narrows.inspection.pictures import (
    finest_blocks,
    fit,
    grid,
    reach_text,
    shade_text,
    text_picture,
    visible_shares,
)
from narrows.inspection.plot import check_place, write_png
from narrows.inspection.registry import build


def _of(family: str, **given_options: object):
    [pattern] = build(family, given_options).patterns
    return pattern, runs_of(pattern)


def _squares(pattern: Pattern, runs: np.ndarray) -> list[np.ndarray]:
    squares = []
    for block, own in zip(pattern.blocks, runs, strict=True):
        keys = np.arange(block.keys)
        squares.append((keys >= own[:, :1]) & (keys < own[:, 1:]))
    return squares


def _cells(square: np.ndarray, rows: int, columns: int):
    """The parts of a square, row by row."""
    heights = [row * square.shape[0] // rows for row in range(rows + 1)]
    edges = [column * square.shape[1] // columns for column in range(columns + 1)]
    return [
        [square[heights[row] : heights[row + 1], edges[column] : edges[column + 1]] for column in range(columns)]
        for row in range(rows)
    ]


@given(st.integers(1, 60), st.integers(1, 9), st.integers(2, 5), st.data())
def test_a_cell_is_the_share_of_its_pairs(length, radius, rate, data) -> None:
    pattern, runs = _of("mulla", length=length, local_radius=radius, pooling_rate=rate)
    rows = data.draw(st.integers(1, length))
    columns = [data.draw(st.integers(1, block.keys)) for block in pattern.blocks]
    shares = visible_shares(pattern, runs, rows=rows, columns=columns)
    for square, share, cells in zip(_squares(pattern, runs), shares, columns, strict=True):
        expected = [[cell.mean() for cell in row] for row in _cells(square, rows, cells)]
        np.testing.assert_allclose(share, expected, atol=1e-6)


@given(st.integers(1, 60), st.integers(1, 9), st.integers(2, 5), st.integers(1, 3), st.data())
def test_the_finest_block_is_the_first_that_reaches_into_a_cell(length, radius, rate, levels, data) -> None:
    options = {"variant": "fixed", "num_levels": levels, "local_radius": radius, "pooling_rate": rate}
    pattern, runs = _of("mulla", length=length, **options)
    rows, columns = data.draw(st.integers(1, length)), data.draw(st.integers(1, length))
    expected = np.zeros((rows, columns), dtype=int)
    for index in reversed(range(len(pattern.blocks))):
        level = _squares(pattern, runs)[index]
        tokens = level.repeat(rate**index, axis=1)[:, :length]
        reached = np.array([[cell.any() for cell in row] for row in _cells(tokens, rows, columns)])
        expected[reached] = index + 1
    assert (finest_blocks(pattern, runs, rows=rows, columns=columns) == expected).all()


def test_rows_of_many_queries_are_counted_in_strips() -> None:
    pattern, runs = _of("local", length=5000, local_radius=10)
    [shares] = visible_shares(pattern, runs, rows=2, columns=[2])
    square = _squares(pattern, runs)[0]
    np.testing.assert_allclose(shares, [[cell.mean() for cell in row] for row in _cells(square, 2, 2)], rtol=1e-6)


def test_room_is_shared_out_and_every_block_gets_some() -> None:
    assert fit([100], 40) == (40,)
    assert fit([10, 10], 40) == (10, 10)
    assert fit([1000, 4, 500], 50) == (23, 4, 23)
    assert fit([9, 9, 9, 9], 2) == (1, 1, 1, 1)


@given(st.lists(st.integers(1, 300), min_size=1, max_size=6), st.integers(6, 200))
def test_room_is_never_exceeded_nor_wasted(keys, room) -> None:
    columns = fit(keys, room)
    assert sum(columns) <= room and all(1 <= own <= most for own, most in zip(columns, keys, strict=True))
    # The division may leave a rest that is smaller than the number of blocks.
    assert sum(columns) > room - len(keys) or list(columns) == keys


def test_cells_of_single_pairs_are_stretched_where_there_is_room() -> None:
    pattern, _ = _of("full", length=10)
    assert grid(pattern, 19) == (10, (10,), 1)
    assert grid(pattern, 20) == (10, (10,), 2)
    assert grid(_of("full", length=100)[0], 300) == (24, (100,), 1)


def test_shades_keep_traces_and_are_full_only_where_all_is_visible() -> None:
    shares = np.array([[0, 1e-6, 0.3, 0.34, 0.6, 0.67, 0.999999, 1]], dtype=np.float32)
    assert shade_text(shares) == [" ░░▒▒▓▓█"]
    assert shade_text(shares[:, :2], stretch=2) == ["  ░░"]


def test_levels_have_a_character_each() -> None:
    assert reach_text(np.array([[0, 1, 2, 3, 4, 5, 9, 10, 200]], dtype=np.uint8)) == [" █▓▒░59az"]


def test_the_picture_of_a_small_text() -> None:
    pattern, runs = _of("mulla", length=6, local_radius=1, pooling_rate=3)
    assert text_picture(pattern, runs, width=40) == [
        "  │level 1     │2   │3 │",
        "0 │████        │████│██│",
        "1 │██████      │████│██│",
        "2 │  ██████    │████│██│",
        "3 │    ██████  │████│██│",
        "4 │      ██████│████│██│",
        "5 │        ████│████│██│",
    ]
    assert text_picture(pattern, runs, width=40, reach=True)[:3] == [
        "  │tokens      │",
        "0 │████▓▓▓▓▓▓▓▓│",
        "1 │██████▓▓▓▓▓▓│",
    ]


@pytest.mark.parametrize("reach", [False, True])
@pytest.mark.parametrize("width", [30, 80, 211])
def test_lines_are_as_wide_as_asked_and_alike(width: int, reach: bool) -> None:
    pattern, runs = _of("mulla", length=3000)
    lines = text_picture(pattern, runs, width=width, reach=reach)
    assert {len(line) for line in lines} <= set(range(width - 4, width + 1)) and len({len(line) for line in lines}) == 1
    assert len(lines) == 25 and lines[5].startswith("500 ")


@pytest.mark.parametrize("reach", [False, True])
@pytest.mark.parametrize("family", ["mulla", "tglobal", "deformer"])
def test_a_picture_is_written_whole(tmp_path, family: str, reach: bool) -> None:
    patterns = build(family, {} if family == "deformer" else {"length": 200, "local_radius": 7}).patterns
    path = tmp_path / "picture.PNG"
    check_place(path)
    write_png(path, "a title " * 30, patterns, [runs_of(pattern) for pattern in patterns], reach=reach)
    assert path.read_bytes().startswith(b"\x89PNG") and list(tmp_path.iterdir()) == [path]


def test_the_pixels_of_a_picture_are_the_shares(tmp_path) -> None:
    """One block of two tokens of which each sees itself: dark on the diagonal, light beside it."""
    from matplotlib.image import imread

    pattern = Pattern("own", 2, (Block("tokens", np.arange(3)),), lambda query: [range(query, query + 1)])
    write_png(tmp_path / "p.png", "own", [pattern], [runs_of(pattern)])
    pixels = imread(tmp_path / "p.png")[..., 0]
    height, width = pixels.shape
    upper, lower, left, right = height // 3, 2 * height // 3, width // 4, width // 2
    assert pixels[upper, left] < 0.3 < 0.9 < pixels[upper, right]
    assert pixels[lower, right] < 0.3 < 0.9 < pixels[lower, left]


def test_places_that_take_no_picture(tmp_path, monkeypatch) -> None:
    with pytest.raises(UsageError, match=r"expected a file name that ends in \.png, got p\.svg; the picture is a PNG"):
        check_place(tmp_path.__class__("p.svg"))
    missing = tmp_path / "none" / "p.png"
    with pytest.raises(UsageError, match=re.escape(f"expected a folder to write to, got {missing.parent}, which is")):
        check_place(missing)
    (tmp_path / "p.png").mkdir()
    pattern, runs = _of("full", length=2)
    with pytest.raises(OutputError, match="expected room and permission to write"):
        write_png(tmp_path / "p.png", "", [pattern], [runs])
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        MissingExtraError, match=r"`matplotlib` is needed to write a picture, but .*'narrows\[report\]'"
    ):
        check_place(tmp_path / "q.png")


def test_a_block_without_room_for_its_name_has_none() -> None:
    pattern, runs = _of("mulla", length=5000, local_radius=1, pooling_rate=2)
    names = text_picture(pattern, runs, width=10)[0].split("│")[1:-1]
    assert names == [*"123456789", *" " * (len(pattern.blocks) - 9)]
