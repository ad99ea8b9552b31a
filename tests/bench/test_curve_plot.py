"""The picture of rows from short to long."""

from pathlib import Path

import pytest

from narrows.bench.curve_plot import Point, read_curves, write_curves
from narrows.bench.results import load_results
from narrows.cli.main import main
from narrows.errors import UsageError

ROWS = {
    "curve-time-local-4096": {"value": 0.9, "detail": {"seconds": {"local/forward/4096 tokens": 0.9}}},
    "curve-time-local-2048": {"value": 0.4, "detail": {"seconds": {"local/forward/2048 tokens": 0.4}}},
    "curve-time-dynamic-2048": {"value": 0.5, "detail": {"seconds": {"dynamic/forward": 0.2, "local/forward": 0.4}}},
    "curve-memory-dynamic-2048": {"value": 0.5, "detail": {"mib": {"dynamic/forward": 50, "local/forward": 100}}},
    "forward-16k-time": {"value": 2.2, "detail": {"seconds": {"dynamic/forward": 1.0}}},
}


def test_a_line_is_what_a_model_took_itself() -> None:
    assert read_curves(ROWS) == {
        "time": {"local": [Point(2048, 0.4), Point(4096, 0.9)], "dynamic": [Point(2048, 0.2)]},
        "memory": {"dynamic": [Point(2048, 50)]},
    }


def test_without_such_rows_there_is_nothing_to_draw() -> None:
    with pytest.raises(
        UsageError, match=r"expected rows from short to long to draw, got none; measure `curve-\*` of mulla first"
    ):
        read_curves({"help": {"value": 0.1}})


def test_the_stored_rows_are_drawn(tmp_path, repository_root: Path) -> None:
    pytest.importorskip("matplotlib")
    rows = load_results(repository_root / "benchmarks" / "results" / "mulla.json")["rows"]
    curves = read_curves(rows)
    assert set(curves) == {"time", "memory"} and {"local", "dynamic", "fixed"} <= set(curves["memory"])
    write_curves(tmp_path / "curves.png", rows)
    assert (tmp_path / "curves.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_picture_is_refused_before_anything_is_measured(tmp_path, capsys) -> None:
    assert main(["bench", "deformer", "--plot", str(tmp_path / "a.png")]) == 2
    assert "expected no --plot for deformer" in capsys.readouterr().err
    pytest.importorskip("matplotlib")
    assert main(["bench", "mulla", "--plot", str(tmp_path / "a.jpg")]) == 2
    assert "expected a file name that ends in .png" in capsys.readouterr().err
