"""`narrows sweep A B`: what the first pretrains, the second fine-tunes and scores; all of it checked before."""

import json
from pathlib import Path

import pytest
import yaml

from narrows.cli.main import main

_MODEL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
_PRETRAINING = {
    "name": "words",
    "task": "masked-lm",
    "model": {"family": "bert", "config": _MODEL},
    "data": {"train": [{"file": "text.txt"}], "length": 16},
    "optimiser": {"steps": 2, "batch_tokens": 64},
}
_CLASSES = {
    "name": "classes",
    "task": "classification",
    "model": {"checkpoint": "start"},
    "data": {part: [{"format": "jsonl", "file": "rows.jsonl"}] for part in ("train", "tune", "test")},
    "optimiser": {"epochs": 1, "batch_rows": 4, "batch_tokens": 128},
    "evaluate_every": 100,
}
_FIRST = {
    "name": "first",
    "recipe": "../words.yaml",
    "variants": {"one": {}, "two": {"model.config.num_hidden_layers": 2}},
}
_SECOND = {
    "name": "second",
    "recipe": "../classes.yaml",
    "starts": ["first.yaml"],
    "over": {"optimiser.learning_rate": [0.01], "optimiser.seed": [1, 2]},
    "choose": {"keys": ["optimiser.learning_rate"], "repeats": ["optimiser.seed"], "score": "accuracy"},
}


@pytest.fixture
def queue(tiny_bert, tmp_path: Path) -> list[str]:
    """The two sweeps and where their data and runs lie."""
    (tmp_path / "text.txt").write_text("the king found a boat in the old mill.\n\n" * 40)
    rows = [{"text": f"{'green' if n % 2 else 'white'} boat", "label": "yes" if n % 2 else "no"} for n in range(16)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    (tmp_path / "sweeps").mkdir()
    words = {**_PRETRAINING, "model": {**_PRETRAINING["model"], "tokenizer": str(tiny_bert)}}
    for name, content in (
        ("words", words),
        ("classes", _CLASSES),
        ("sweeps/first", _FIRST),
        ("sweeps/second", _SECOND),
    ):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(content))
    files = [str(tmp_path / "sweeps" / name) for name in ("first.yaml", "second.yaml")]
    return [*files, "--data", str(tmp_path), "--runs", str(tmp_path / "runs"), "-q"]


def test_a_queue_is_shown_made_reported_and_not_made_again(queue, tmp_path, capsys) -> None:
    assert main(["sweep", *queue, "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "first:\nvariant one: " in shown and ", 2 steps in all\n" in shown
    waits = (
        "learning_rate 0.01, optimiser.seed 2: not counted, as it starts from first/words-two, which is trained before"
    )
    assert waits in shown
    assert main(["sweep", *queue, "--dry-run", "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["sweeps"]
    assert (first["name"], first["runs"][0]["plan"]["steps"]) == ("first", 2)
    assert second["runs"][0]["plan"] is None
    assert second["runs"][0]["awaits"] == {"first/words-one/model": "first/words-one"}
    assert not (tmp_path / "runs").exists()
    report = tmp_path / "tasks.json"
    assert main(["sweep", *queue, "--report", str(report), "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["sweeps"]
    assert [len(first["runs"]), len(second["runs"]), len(second["chosen"])] == [2, 4, 2] and "chosen" not in first
    assert [choice["settings"] for choice in second["chosen"]] == [{"variant": "one"}, {"variant": "two"}]
    config = json.loads((tmp_path / "runs/second/classes-two-0.01-1/model/config.json").read_text())
    assert config["num_hidden_layers"] == 2
    kept = json.loads(report.read_text())
    assert kept["base"] == "one" and list(kept["tasks"][0]["scores"]) == ["one", "two"]
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*/*/model/model.safetensors")}
    assert len(times) == 6
    assert main(["sweep", *queue, "--report", str(report)]) == 0
    shown = capsys.readouterr().out
    assert "second:\nvariant one, optimiser.learning_rate 0.01, optimiser.seed 1: eval_accuracy" in shown
    assert "| model | second: accuracy (16 rows) | mean | less one [95 %] |" in shown
    assert times == {path: path.stat().st_mtime_ns for path in times}


def test_what_is_refused_before_the_first_run(queue, tmp_path, capsys) -> None:
    first, second, *common = queue
    third = Path(second).with_name("third.yaml")
    third.write_text(yaml.safe_dump({**_SECOND, "name": "third", "starts": ["second.yaml"]}))
    for sweeps, options, text in (
        ([second], [], "got 'first/words-one/model' (nothing there); check the path"),
        (
            [second, first],
            [],
            "'second/classes-one-0.01-1' starts from, to be there or to be written before it, got 'fir",
        ),
        ([first, first], [], "expected sweeps of different names, got 'first' twice; rename one of them"),
        ([first, second], ["--plot", "a.png"], "expected one sweep with --plot, got 2; draw them one by one"),
        ([first, second], ["--report", "no/a.json"], "expected a folder to write to, got no, which is none"),
        ([first], ["--report", "a.json"], "expected a sweep of planted facts, got one of the task 'masked-lm'"),
        ([first, second, str(third)], ["--report", "a.json"], "expected the same variants in all sweeps"),
    ):
        assert main(["sweep", *sweeps, *common, *options]) == 2
        assert text in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_train_shows_a_classifier_that_waits_for_its_encoder(queue, tmp_path, capsys) -> None:
    classes = {**_CLASSES, "model": {"checkpoint": "words/model"}}
    (tmp_path / "classes.yaml").write_text(yaml.safe_dump(classes))
    recipes = [str(tmp_path / f"{name}.yaml") for name in ("words", "classes")]
    assert main(["train", *recipes, *queue[2:], "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "# words/model is not there yet: words writes it before\n# not counted, as its tokenizer is not" in shown
    assert "2 steps in all" in shown
