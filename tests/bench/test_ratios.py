"""Sweeps over bottleneck ratios: what is trained, tables of finished runs, a tiny sweep by the command line."""

import json
import math
from pathlib import Path

import pytest
import yaml

from narrows.bench.ratios import Finding, find, load_findings, ratio_table, rule_table, save_findings
from narrows.bottleneck.config import BottleneckConfig
from narrows.bottleneck.cost import model_cost
from narrows.cli.main import main
from narrows.errors import UsageError
from narrows.training.ratios import Grid, Point, ratio_sweep
from narrows.training.sweep import cells_of

_RECIPE = {
    "name": "tiny",
    "task": "causal-lm",
    "model": {
        "family": "narrows-bottleneck",
        "tokenizer": "bytes",
        "config": {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "bottleneck_ratio": 2},
    },
    "data": {"train": [{"file": "text.txt"}], "split": [0.8, 0.1, 0.1], "length": 32},
    "optimiser": {"steps": 2, "batch_tokens": 64, "seed": 5},
    "evaluate": {"stride": 16},
}


@pytest.fixture
def recipe(tmp_path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(_RECIPE))
    (tmp_path / "text.txt").write_text("the river runs to the narrow sea. " * 60)
    return path


def test_the_grid_is_trained_beside_the_full_model(recipe) -> None:
    grid = Grid([2, 4], heads=[1, 2], matches=("width", "parameters", "flops"), seeds=2)
    sweep = ratio_sweep(recipe, grid)
    names = ["full"]
    for ratio in (2, 4):
        names += [f"r{ratio}-h1", f"r{ratio}-h2", f"r{ratio}-h1-parameters", f"r{ratio}-h1-flops"]
    assert list(sweep.variants) == names
    cells = {cell.settings["variant"]: cell.recipe for cell in cells_of(sweep, recipe)}
    assert {cell.settings["optimiser.seed"] for cell in cells_of(sweep, recipe)} == {5, 6}
    configs = {name: BottleneckConfig(**one.model.config) for name, one in cells.items()}
    assert configs["full"].kinds == ["full"] and configs["r4-h2"].inner_size == 16 and configs["r4-h2"].inner_heads == 2
    costs = {name: model_cost(config, length=32) for name, config in configs.items()}
    assert costs["r4-h1-parameters"].parameters == pytest.approx(costs["full"].parameters, rel=0.01)
    assert costs["r2-h1-flops"].macs == pytest.approx(costs["full"].macs, rel=0.01)


def test_other_lengths_keep_the_share_that_is_scored(recipe) -> None:
    cells = cells_of(ratio_sweep(recipe, Grid([2], lengths=[16, 128], seeds=1)), recipe)
    rows = [(cell.recipe.name, cell.recipe.data.length, cell.recipe.evaluate.stride) for cell in cells]
    assert rows == [
        ("tiny-full-16-5", 16, 8), ("tiny-r2-16-5", 16, 8), ("tiny-full-128-5", 128, 64), ("tiny-r2-128-5", 128, 64),
    ]  # fmt: skip
    assert cells[-1].recipe.optimiser.batch_tokens == 128


def test_a_tiny_sweep_is_trained_scored_shown_and_kept(recipe, tmp_path, capsys) -> None:
    words = ["sweep", str(recipe), "--ratios", "2,4", "--match", "width", "--seeds", "2", "--data", str(tmp_path)]
    places = ["--runs", str(tmp_path / "runs"), "--report", str(tmp_path / "found.json")]
    assert main([*words, *places, "--plot", str(tmp_path / "found.png"), "-q"]) == 0
    shown = capsys.readouterr().out
    assert "| r4 | 32 | 1 | width |" in shown and "| 32 | 2 |" in shown and (tmp_path / "found.png").stat().st_size
    findings = load_findings(tmp_path / "found.json")
    assert [one.name for one in findings] == ["full", "r2", "r4"] and all(len(one.test) == 2 for one in findings)
    assert findings[1].point == Point(2.0, 1, "width", 32, findings[1].point.macs, findings[1].point.parameters)
    card = (tmp_path / "runs" / "tiny-ratios" / "tiny-r4-5" / "model" / "README.md").read_text()
    assert "narrows sweep tiny.yaml --ratios 2,4 --match width --seeds 2" in card
    # The second time nothing is trained or scored again.
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("test.json")}
    assert main([*words, *places, "--json", "-q"]) == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 6


def _finding(name: str, ratio: float, losses: list[float], *, length: int = 1024, match: str = "width") -> Finding:
    return Finding(name, Point(ratio, 1, match, length, 100, 100), losses, losses, [1000.0], [5.0])


def test_tables_say_what_is_lost_and_which_ratio_is_within_five_percent(tmp_path) -> None:
    small, large = math.log(1.04), math.log(1.08)
    findings = [
        _finding("full", 1, [2.0, 2.1]),
        _finding("r2", 2, [2.0 + small, 2.1 + small]),
        _finding("r4", 4, [2.0 + large, 2.1 + large]),
        _finding("r4-flops", 4, [2.0, 2.1], match="flops"),
    ]
    table = ratio_table(findings).splitlines()
    assert "| r2 | 1,024 | 1 | width |" in table[3] and "| +4.0 % |" in table[3] and table[3].endswith("| yes |")
    assert "+8.0 %" in table[4] and table[4].endswith("| no |") and table[5].endswith("| yes |")
    assert rule_table(findings).splitlines()[2] == "| 1,024 | 2 | +4.0 % | 2 |"
    assert "not measured" in rule_table([findings[0], findings[2]])
    save_findings(tmp_path / "a.json", findings)
    assert load_findings(tmp_path / "a.json") == findings and load_findings(tmp_path / "b.json") == []
    (tmp_path / "c.json").write_text('{"run": {}, "findings": [{"settings": {}}]}')
    with pytest.raises(UsageError, match="expected findings of a sweep over ratios in .*c.json, got those of another;"):
        load_findings(tmp_path / "c.json")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--ratios", "1"], "expected --ratios above 1, got 1; leave it out"),
        (["--ratios", "2,2"], "expected each of --ratios once, got 2, 2; mend it"),
        (["--ratios", "two"], "expected numbers with commas between them for --ratios, such as 2,4,8, got 'two'; mend"),
        (["--ratios", "2", "--heads", "0"], "expected --heads from 1, got 0; leave it out"),
        (["--ratios", "2", "--match", "depth"], "expected --match of width, parameters, flops, got 'depth'; choose"),
        (["--ratios", "2", "--seeds", "0"], "expected at least 1 seed, got 0; raise --seeds"),
        (["--ratios", "3"], "`bottleneck_ratio` must divide hidden_size, 64, got 3; choose another ratio"),
        (["--heads", "1"], "expected --ratios beside --heads, got --heads alone; add it or leave this out"),
        (["again.yaml", "--ratios", "2"], "expected one recipe with --ratios, got 2; sweep them one by one"),
    ],
)
def test_grids_that_cannot_be(recipe, tmp_path, capsys, given, message) -> None:
    assert main(["sweep", str(recipe), *given, "--data", str(tmp_path)]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_recipes_of_other_models_are_named(tmp_path, recipe) -> None:
    other = {**_RECIPE, "model": {"family": "gpt2", "tokenizer": "bytes", "config": {"n_positions": 64}}}
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(other))
    with pytest.raises(UsageError, match="of the family narrows-bottleneck with --ratios, got the family gpt2 in .*ot"):
        ratio_sweep(tmp_path / "other.yaml", Grid([2]))
    shipped = Path(__file__).parents[2] / "recipes" / "pretrain-funnel-small.yaml"
    with pytest.raises(UsageError, match="with --ratios, got the task masked-lm in .*pretrain-funnel-small.yaml; name"):
        ratio_sweep(shipped, Grid([2]))
    with pytest.raises(UsageError, match="expected at least one of --ratios and of --match, got none; name one"):
        ratio_sweep(recipe, Grid([]))
    layouts = Path(__file__).parents[2] / "recipes" / "sweeps" / "funnel-layouts.yaml"
    from narrows.training.sweep import load_sweep

    with pytest.raises(UsageError, match="expected a sweep of causal-lm, got one of the task 'masked-lm'; name anoth"):
        find(cells_of(load_sweep(layouts), layouts), tmp_path)
