"""What a sweep of planted facts says: only runs that learnt the task count, by distance and by length."""

import json

import pytest

from narrows.bench.planted import Accuracy, Finding, distance_table, find, length_table, load_findings, save_findings
from narrows.bench.planted_plot import write_plot
from narrows.bench.report import fill
from narrows.errors import UsageError
from narrows.training.planted.recipe import PlantedRecipe
from narrows.training.sweep import Cell


def _recipe(name: str, attention: str, seed: int) -> PlantedRecipe:
    return PlantedRecipe.model_validate(
        {
            "name": name,
            "task": "planted-facts",
            "model": {"attention": attention, "layers": 2, "local_radius": 15},
            "data": {"train_text": "a", "test_text": "b", "lengths": [64, 128], "test_lengths": [128, 512]},
            "optimiser": {"seed": seed},
        }
    )


def _runs(folder, accuracies):
    """Runs of some kinds and seeds; `accuracies` are right answers of 10, near and far, at 128 and 512 tokens."""
    runs = []
    for (kind, seed), counts in accuracies.items():
        recipe = _recipe(f"{kind}-{seed}", kind, seed)
        runs.append(Cell({"model.attention": kind, "optimiser.seed": seed}, recipe))
        if counts is None:
            continue
        places = [(128, 0, 16), (128, 31, 61), (512, 0, 16), (512, 31, 61)]
        rows = [
            {"length": length, "low": low, "high": high, "questions": 10, "right": right}
            for (length, low, high), right in zip(places, counts, strict=True)
        ]
        (folder / recipe.name / "model").mkdir(parents=True)
        (folder / recipe.name / "model" / "accuracy.json").write_text(json.dumps(rows))
    return runs


def test_only_runs_that_learnt_the_task_count(tmp_path) -> None:
    runs = _runs(
        tmp_path,
        {
            ("local", 1): (10, 2, 9, 0),
            ("local", 2): (8, 8, 8, 8),
            ("dynamic", 1): (10, 9, 10, 8),
            ("dynamic", 2): (9, 7, 9, 6),
            ("fixed", 1): (3, 3, 3, 3),
            ("tglobal", 1): None,
        },
    )
    local, dynamic, fixed = find(runs, tmp_path)
    assert local.settings == {"model.attention": "local"} and (local.nearest, local.reach, local.longest) == (
        15,
        30,
        128,
    )
    assert local.near == {"1": 1.0, "2": 0.8} and local.counted == 1
    assert local.accuracies[1] == Accuracy(128, 31, 61, 10, 0.2, 0.2, 0.2)
    assert dynamic.counted == 2 and dynamic.accuracies[1] == Accuracy(128, 31, 61, 20, 0.8, 0.7, 0.9)
    assert dynamic.share(512, beyond=True) == pytest.approx(0.7) and dynamic.share(512, beyond=False) == 0.95
    assert fixed.counted == 0 and fixed.accuracies == [] and fixed.share(512, beyond=True) is None
    table = distance_table([local, dynamic, fixed], 128).splitlines()
    assert table[0] == "| 128 tokens | 1–15 | 31–60 |"
    assert table[2:] == [
        "| attention local | 100 | 20 |",
        "| attention dynamic | 95 (90–100) | 80 (70–90) |",
        "| attention fixed | – | – |",
    ]
    lengths = length_table([local, dynamic, fixed]).splitlines()
    assert lengths[0] == "| within / beyond reach | runs that learnt it | 128 | 512 |"
    assert lengths[2:] == [
        "| attention local | 1 of 2 | 100 / 20 | 90 / 0 |",
        "| attention dynamic | 2 of 2 | 95 / 80 | 95 / 70 |",
        "| attention fixed | 0 of 1 | – / – | – / – |",
    ]


def test_findings_are_kept_drawn_and_put_into_pages(tmp_path) -> None:
    findings = find(_runs(tmp_path, {("local", 1): (10, 2, 9, 0), ("dynamic", 1): (10, 9, 10, 8)}), tmp_path)
    save_findings(tmp_path / "some-facts.json", "some-facts", findings)
    assert load_findings(tmp_path / "some-facts.json") == findings
    kept = json.loads((tmp_path / "some-facts.json").read_text())
    assert kept["sweep"] == "some-facts" and {"machine", "versions", "commit", "date"} <= set(kept["run"])
    page = fill(
        "<!-- planted:some-facts -->\n<!-- /planted -->\n<!-- planted:some-facts 128 512 -->\n<!-- /planted -->",
        tmp_path,
    )
    assert "| attention local | 1 of 1 | 100 / 20 | 90 / 0 |" in page
    assert "| 128 tokens |" in page and "| 512 tokens |" in page
    assert fill(page, tmp_path) == page
    assert "_Nothing was measured yet._" in fill("<!-- planted:other -->\n<!-- /planted -->", tmp_path)
    pytest.importorskip("matplotlib")
    write_plot(tmp_path / "accuracy.png", findings)
    assert (tmp_path / "accuracy.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_nothing_learnt_makes_empty_tables_and_a_picture(tmp_path) -> None:
    findings = [Finding({}, 15, 30, 128, {"1": 0.2}, [])]
    assert length_table(findings).splitlines()[2] == "| all | 0 of 1 |"
    pytest.importorskip("matplotlib")
    write_plot(tmp_path / "accuracy.png", findings)


def test_another_task_has_no_such_report(tmp_path, corruption_like) -> None:
    with pytest.raises(
        UsageError, match=r"expected a sweep of planted facts, got one of the task 'summarization'; name"
    ):
        find([Cell({}, corruption_like)], tmp_path)


@pytest.fixture
def corruption_like():
    from narrows.training.summaries.recipe import SummaryRecipe

    part = {"format": "jsonl", "file": "a"}
    return SummaryRecipe.model_validate(
        {"name": "a", "task": "summarization", "model": {"checkpoint": "b"}, "data": {"train": [part]}}
    )
