"""`narrows sweep`: shows its runs, makes them, and goes on."""

import json
from pathlib import Path

import pytest
import yaml

from narrows.cli.main import main


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("It rained on the old mill. " * 300)
    recipe = {
        "name": "tiny",
        "task": "planted-facts",
        "model": {"attention": "local", "layers": 1, "width": 8, "heads": 1, "feed_forward": 8, "local_radius": 4},
        "data": {
            "train_text": "text.txt",
            "test_text": "text.txt",
            "facts": 1,
            "lengths": [32],
            "texts": 8,
            "test_lengths": [32],
            "tests": 4,
        },
        "optimiser": {"batch_tokens": 64},
    }
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(recipe))
    over = {"model.attention": ["local", "dynamic"]}
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump({"name": "both", "recipe": "tiny.yaml", "over": over}))
    return tmp_path / "sweep.yaml"


def test_a_sweep_is_shown_made_and_not_made_again(sweep: Path, tmp_path: Path, capsys) -> None:
    call = ["sweep", str(sweep), "--data", str(tmp_path), "--runs", str(tmp_path / "runs"), "-q"]
    assert main([*call, "--dry-run"]) == 0
    assert "model.attention dynamic: 8 rows of 256 tokens an epoch, 4 steps in all" in capsys.readouterr().out
    assert not (tmp_path / "runs").exists()
    assert main([*call, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["name"] == "both"
    assert [run["settings"]["model.attention"] for run in found["runs"]] == ["local", "dynamic"]
    model = tmp_path / "runs" / "both" / "tiny-dynamic" / "model" / "model.safetensors"
    made = model.stat().st_mtime_ns
    assert main(call) == 0
    assert "model.attention local: eval_accuracy" in capsys.readouterr().out
    assert model.stat().st_mtime_ns == made


def test_a_sweep_of_planted_facts_is_told_by_distance_kept_and_drawn(sweep: Path, tmp_path: Path, capsys) -> None:
    pytest.importorskip("matplotlib")
    call = ["sweep", str(sweep), "--data", str(tmp_path), "--runs", str(tmp_path / "runs"), "-q"]
    report, plot = tmp_path / "facts.json", tmp_path / "facts.png"
    assert main([*call, "--report", str(report), "--plot", str(plot)]) == 0
    assert "| within / beyond reach | runs that learnt it |" in capsys.readouterr().out
    assert [found["settings"]["model.attention"] for found in json.loads(report.read_text())["findings"]] == [
        "local",
        "dynamic",
    ]
    assert plot.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--report", "no/facts.json"], "expected a folder to write to, got no, which is none; make it first"),
        (["--plot", "facts.jpg"], "expected a file name that ends in .png, got facts.jpg"),
    ],
)
def test_places_are_checked_before_the_training(sweep: Path, tmp_path: Path, capsys, options, text) -> None:
    call = ["sweep", str(sweep), "--data", str(tmp_path), "--runs", str(tmp_path / "runs"), "-q"]
    assert main([*call, *options]) == 2
    assert text in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_sweep_wants_data(sweep: Path, capsys, monkeypatch) -> None:
    monkeypatch.delenv("NARROWS_DATA", raising=False)
    assert main(["sweep", str(sweep)]) == 2
    assert "expected a data folder, got none; pass --data DIR or set NARROWS_DATA" in capsys.readouterr().err
