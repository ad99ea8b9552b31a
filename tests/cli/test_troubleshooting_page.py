"""The commands of docs/mulla-troubleshooting.md work as they are written."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from narrows.cli import inspect
from narrows.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "mulla-troubleshooting.md"
COMMANDS = sorted(set(re.findall(r"`(?:time )?(narrows \w+ [^`]+)`", PAGE.read_text(encoding="utf-8"))))
# Its rows take a minute; tests/bench has them.
TRIED = [command for command in COMMANDS if not command.startswith("narrows bench")]


def test_the_page_has_a_command_for_each_way_to_look() -> None:
    for verb in ("train", "evaluate", "summarize", "bench mulla", "inspect mask", "inspect levels", "inspect memory"):
        assert any(command.startswith(f"narrows {verb} ") for command in COMMANDS), verb


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_seq2seq) -> Path:
    """What the page's commands name: a recipe, data, two models and a text."""
    folder = tmp_path_factory.mktemp("wrong")
    for name, kind in (("my-model", "mulla"), ("other-model", "t5")):
        shutil.copytree(tiny_seq2seq(kind), folder / name)
        config = folder / name / "config.json"
        trained = {"narrows_inputs": {"max_input_tokens": 32, "truncation": {"name": "head"}}}
        config.write_text(json.dumps(json.loads(config.read_text()) | trained))
    (folder / "report.txt").write_text("The old mill near the river was built by the king. " * 20)
    (folder / "data").mkdir()
    (folder / "data" / "mine.txt").write_text(
        "in the year the old mill was near the river and the boat was new .\n" * 9
    )
    record = '{"document": "a child found the old mill near the water .", "summary": "the old mill was found ."}\n'
    for name in ("train", "tune"):
        (folder / "data" / f"{name}.jsonl").write_text(record * 4)
    sizes = {"max_input_tokens": 16, "max_output_tokens": 8}
    parts = {name: [{"format": "jsonl", "file": f"{name}.jsonl"}] for name in ("train", "tune")}
    recipe = {
        "name": "my-summaries",
        "task": "summarization",
        "model": {"checkpoint": str(tiny_seq2seq("tglobal")), "family": "mulla"},
        "data": {**parts, **sizes},
        "optimiser": {"batch_tokens": 200},
        "generation": {"max_new_tokens": 4},
        "evaluate": {"limit": 2},
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    # The shipped one, at the size of the test's model.
    shipped = yaml.safe_load((ROOT / "recipes" / "mulla-continue.yaml").read_text())
    shipped["model"] = recipe["model"]
    shipped["data"] |= {"max_input_tokens": 64, "max_output_tokens": 32, "lengths": [32, 64]}
    (folder / "recipes").mkdir()
    (folder / "recipes" / "mulla-continue.yaml").write_text(yaml.safe_dump(shipped))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("command", TRIED)
def test_a_command_works_as_it_is_written(command, folder, monkeypatch, capsys) -> None:
    words = shlex.split(command)[1:]
    if words[:2] == ["inspect", "memory"] and not hasattr(inspect, "memory"):
        pytest.skip("inspect memory is not here yet")
    monkeypatch.chdir(folder)
    assert main(words) == 0, capsys.readouterr().err
    assert capsys.readouterr().out or words[0] == "train"
