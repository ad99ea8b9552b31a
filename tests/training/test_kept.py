"""What runs left behind, damaged: one sentence that names the file and says how the same command goes on."""

import json
from pathlib import Path

import pytest

from narrows.errors import UsageError
from narrows.training.choosing import choose_runs
from narrows.training.kept import read_summary, read_test
from narrows.training.sweep import cells_of, load_sweep

_DAMAGED = [
    b"",
    b"{",
    b"[]",
    b"3",
    b"\xff",
    b'{"tune": []}',
    b'{"scores": {}}',
    b'{"scores": {"a": 1}, "baseline": {}}',
]


@pytest.mark.parametrize("content", _DAMAGED)
def test_damaged_files(tmp_path: Path, content: bytes) -> None:
    assert read_summary(tmp_path) is None and read_test(tmp_path) is None
    (tmp_path / "summary.json").write_bytes(content)
    (tmp_path / "test.json").write_bytes(content)
    with pytest.raises(UsageError, match="expected the summary of a run in .*; remove the folder .* trains it again"):
        read_summary(tmp_path)
    with pytest.raises(UsageError, match="expected the test scores of a run in .*; remove the file, .* scores the run"):
        read_test(tmp_path)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "x"])
def test_nothing_is_chosen_by_what_is_no_number(tmp_path: Path, value) -> None:
    (tmp_path / "a.yaml").write_text(
        "name: a\nmodel: {checkpoint: b, split_layer: 1}\ndata: {train: [{format: squad, file: c}]}\n"
    )
    path = tmp_path / "s.yaml"
    path.write_text(
        "name: s\nrecipe: a.yaml\nover: {optimiser.seed: [1, 2]}\nchoose: {keys: [optimiser.seed], score: f1}"
    )
    sweep = load_sweep(path)
    cells = cells_of(sweep, path)
    for cell, tune in zip(cells, (value, 50.0), strict=True):
        (tmp_path / cell.recipe.name).mkdir()
        (tmp_path / cell.recipe.name / "summary.json").write_text(json.dumps({"tune": {"eval_f1": tune}}))
    with pytest.raises(UsageError, match="expected a finite tune score 'f1' of the run a-1 to choose by, got .*; remo"):
        choose_runs(cells, sweep.choose, tmp_path)
    (tmp_path / "a-1" / "summary.json").unlink()
    (tmp_path / "a-1" / "model").mkdir()
    with pytest.raises(
        UsageError, match="expected the summary of the finished run a-1 in .*, got none; remove the fol"
    ):
        choose_runs(cells, sweep.choose, tmp_path)
