"""A whole run: resumed as if never stopped, saved by its best step, and never trained twice."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainerControl, TrainerState, TrainingArguments

from narrows.deformer import DeformerForQuestionAnswering
from narrows.errors import NarrowsError, OutputError, UsageError
from narrows.training import run as run_module
from narrows.training.recipe import load_recipe
from narrows.training.run import last_checkpoint, train
from narrows.training.spans.build import build_run
from narrows.training.trainer import FewCheckpoints, JsonLog


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model" / "model.safetensors")


@pytest.mark.parametrize("what", ["all", "lora"])
def test_a_run_stopped_twice_equals_the_straight_one(what, make_recipe, squad_folder, tmp_path, stop_at) -> None:
    recipe = make_recipe(tune={"what": what, "lora_rank": 2}, optimiser={"accumulation": 2, "epochs": 3})
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    assert train(recipe, data=squad_folder, output=straight, quiet=True) == straight / "model"
    for step in (2, 6):
        stop_at(step)
        assert train(recipe, data=squad_folder, output=stopped, quiet=True) is None
        assert last_checkpoint(stopped) == str(stopped / f"checkpoint-{step + 1}")
    stop_at(None)
    assert train(recipe, data=squad_folder, output=stopped, quiet=True) == stopped / "model"

    expected, found = _weights(straight), _weights(stopped)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert not any("lora" in name for name in found)
    assert not (stopped / "states").exists()


def test_a_stop_at_the_last_step_leaves_only_the_saving(make_recipe, squad_folder, tmp_path, stop_at) -> None:
    recipe = make_recipe(optimiser={"epochs": 1})
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    train(recipe, data=squad_folder, output=straight, quiet=True)
    steps = json.loads((straight / "summary.json").read_text())["steps"]
    stop_at(steps - 1)
    assert train(recipe, data=squad_folder, output=stopped, quiet=True) is None
    stop_at(None)
    train(recipe, data=squad_folder, output=stopped, quiet=True)
    expected, found = _weights(straight), _weights(stopped)
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_the_saved_model_is_the_best_by_tune(make_recipe, squad_folder, tmp_path, monkeypatch, capfd) -> None:
    scores = iter([1.0, 9.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    kept = {}

    def build(*args, **kwargs):
        run = build_run(*args, **kwargs)

        def evaluate(model):
            score = next(scores)
            kept[score] = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            return {"f1": score}

        run.trainer._evaluate_model = evaluate
        return run

    monkeypatch.setattr(run_module, "build_run", build)
    train(make_recipe(evaluate_every=3), data=squad_folder, output=tmp_path, quiet=True)
    found = _weights(tmp_path)
    assert len(kept) > 3
    assert all(torch.equal(found[name], tensor) for name, tensor in kept[9.0].items())
    assert not torch.equal(found["qa_outputs.weight"], kept[2.0]["qa_outputs.weight"])
    assert "mtime" not in capfd.readouterr().err


@pytest.mark.parametrize("best", [None, 2])
def test_the_last_and_the_best_checkpoint_are_kept_whatever_the_times_of_files(best, tmp_path) -> None:
    saved = [1, 2, 9, 10]
    # As a copy of a run may have them: the last step's is the oldest.
    for step, age in zip(saved, (40, 30, 20, 50), strict=True):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        os.utime(folder, (1e9 - age, 1e9 - age))
    state = TrainerState(best_model_checkpoint=None if best is None else str(tmp_path / f"checkpoint-{best}"))
    FewCheckpoints().on_save(TrainingArguments(output_dir=str(tmp_path), use_cpu=True), state, TrainerControl())
    kept = sorted(int(path.name.split("-")[1]) for path in tmp_path.iterdir())
    assert kept == sorted({best or 9, 10})


def test_what_a_run_leaves(make_recipe, squad_folder, tmp_path, monkeypatch, capsys) -> None:
    recipe = make_recipe(description="A reader for a test.", licence="cc-by-sa-4.0")
    model_folder = train(recipe, data=squad_folder, output=tmp_path, quiet=True, command="narrows train tiny.yaml")
    assert capsys.readouterr().out == ""
    entries = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert {"step", "of", "time"} <= entries[0].keys()
    assert [entry["step"] for entry in entries if "eval_f1" in entry][:2] == [5, 10]
    card = (model_folder / "README.md").read_text()
    for part in (
        "A reader for a test.",
        "license: cc-by-sa-4.0",
        "train.json",
        "narrows train tiny.yaml",
        "eval_f1",
    ):
        assert part in card
    model = DeformerForQuestionAnswering.from_pretrained(model_folder)
    assert (model.config.split_layer, model.config.max_passage_tokens) == (3, 40)

    def never(*args, **kwargs):
        raise AssertionError("a finished run is not built again")

    monkeypatch.setattr(run_module, "build_run", never)
    assert train(recipe, data=squad_folder, output=tmp_path, quiet=True) == model_folder
    with pytest.raises(UsageError, match=r"expected .* to hold a run of the same recipe, got one of 'tiny'"):
        train(make_recipe(optimiser={"seed": 4}), data=squad_folder, output=tmp_path, quiet=True)


def _kept(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("place", [-2, -1], ids=["weights", "optimiser"])
def test_a_disk_that_is_full_is_told_and_the_same_command_goes_on(
    place, make_recipe, squad_folder, tmp_path, stop_at, full_disk
) -> None:
    recipe, output = make_recipe(optimiser={"epochs": 2}), tmp_path / "run"
    stop_at(2)
    assert train(recipe, data=squad_folder, output=output, quiet=True) is None
    first = output / "checkpoint-3"
    sizes = sorted(path.stat().st_size for path in first.iterdir())
    # One of the two largest files, the weights and the optimiser's two moments of them, does not fit.
    room = sizes[place] - 1000
    before = _kept(first)
    stop_at(4)
    sentence = f"expected room to write to {output}, got .*; make room, and the same command goes on from"
    with pytest.raises(OutputError, match=sentence), full_disk(room):
        train(recipe, data=squad_folder, output=output, quiet=True)
    assert last_checkpoint(output) == str(first) and _kept(first) == before
    stop_at(None)
    assert train(recipe, data=squad_folder, output=output, quiet=True) == output / "model"


def test_a_half_written_recipe_does_not_hold_the_folder(make_recipe, squad_folder, tmp_path, full_disk) -> None:
    recipe, output = make_recipe(optimiser={"epochs": 0.3}), tmp_path / "run"
    with pytest.raises(OutputError, match="expected room and permission to write .*recipe.yaml, got"), full_disk(20):
        train(recipe, data=squad_folder, output=output, quiet=True)
    assert list(output.glob("*recipe*")) == []
    assert train(recipe, data=squad_folder, output=output, quiet=True) == output / "model"
    assert load_recipe(output / "recipe.yaml") == recipe and not list(output.glob(".*"))


def test_a_half_written_checkpoint_is_passed_over(tmp_path) -> None:
    for step, text in ((5, "{}"), (10, '{"cut'), (15, None)):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        if text is not None:
            (folder / "trainer_state.json").write_text(text)
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-5")
    shutil.rmtree(tmp_path / "checkpoint-5")
    assert last_checkpoint(tmp_path) is None


def test_an_output_that_is_a_file_is_refused(make_recipe, squad_folder, tmp_path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(UsageError, match="expected a folder to write to at .*taken, got File exists"):
        train(make_recipe(), data=squad_folder, output=tmp_path / "taken", quiet=True)


def test_an_output_without_permission_is_refused(make_recipe, squad_folder, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(run_module.os, "access", lambda *_: False)
    with pytest.raises(UsageError, match="got one without permission; choose another one"):
        train(make_recipe(), data=squad_folder, output=tmp_path, quiet=True)


def test_a_checkpoint_is_looked_for_among_the_runs_first(make_recipe, squad_folder, tmp_path, tiny_bert) -> None:
    runs = tmp_path / "runs"
    shutil.copytree(tiny_bert, runs / "first" / "model")
    recipe = make_recipe(model={"checkpoint": "first/model"}, optimiser={"epochs": 0.2})
    assert train(recipe, data=squad_folder, output=tmp_path / "out", quiet=True, runs=runs) is not None


def test_two_runs_in_one_folder_are_refused_and_an_ended_one_lets_go(make_recipe, squad_folder, tmp_path) -> None:
    recipe, output = make_recipe(optimiser={"epochs": 1}), tmp_path / "run"
    output.mkdir()
    hold = "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], 0), fcntl.LOCK_EX); print(1, flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(output)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None and other.stdout.readline()
        with pytest.raises(UsageError, match="expected .* for this run alone, got another process that trains in it;"):
            train(recipe, data=squad_folder, output=output, quiet=True)
        assert list(output.iterdir()) == []
        other.kill()
    assert train(recipe, data=squad_folder, output=output, quiet=True) == output / "model"


@pytest.mark.parametrize(
    ("lost", "text"),
    [
        (
            "before",
            "expected finite weights at the start of .*, got NaN or infinity in .*; copy the checkpoint that it",
        ),
        ("after", "expected finite weights at the end of .*, got NaN or infinity in .*; train anew under another name"),
    ],
)
def test_weights_that_are_lost_make_no_model(lost, text, make_recipe, squad_folder, tmp_path, monkeypatch) -> None:
    def spoil(model) -> dict[str, float]:
        with torch.no_grad():
            next(iter(model.parameters())).fill_(float("nan"))
        return {"f1": 0.0}

    def build(*args, **kwargs):
        run = build_run(*args, **kwargs)
        if lost == "before":
            spoil(run.trainer.model)
        run.trainer._evaluate_model = spoil
        return run

    monkeypatch.setattr(run_module, "build_run", build)
    # The only evaluation is the one at the end.
    recipe, output = make_recipe(optimiser={"epochs": 1}, evaluate_every=1000), tmp_path / "run"
    with pytest.raises(NarrowsError, match=text):
        train(recipe, data=squad_folder, output=output, quiet=True)
    assert not (output / "model").exists()
    # A start that was refused does not hold the folder against the corrected recipe.
    assert (output / "recipe.yaml").exists() == (lost == "after")


@pytest.mark.parametrize("name", ["loss", "grad_norm"])
def test_a_loss_that_is_no_number_is_told_at_its_step(name, tmp_path) -> None:
    log = JsonLog(tmp_path / "log.jsonl")
    state = TrainerState(global_step=1_200, is_world_process_zero=True)
    log.on_log(TrainingArguments(tmp_path), state, TrainerControl(), logs={name: 0.5})
    with pytest.raises(NarrowsError, match=f"expected a finite {name} at step 1,200, got nan: the weights are lost;"):
        log.on_log(TrainingArguments(tmp_path), state, TrainerControl(), logs={name: float("nan")})
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 1
