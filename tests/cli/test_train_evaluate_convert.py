"""The verbs of a model's life: convert, train, evaluate; and what each says when it is used wrongly."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from narrows.cli.main import main
from narrows.deformer import DeformerForQuestionAnswering


@pytest.fixture
def squad(tmp_path: Path) -> Path:
    paragraphs = []
    for number in range(16):
        context = f"in the year {number} the king found gold near the old mill."
        answer = {"text": "gold", "answer_start": context.index("gold")}
        qas = [
            {"id": f"a{number}", "question": "what was found?", "answers": [answer]},
            {"id": f"n{number}", "question": "who read the book?", "answers": [], "is_impossible": True},
        ]
        paragraphs.append({"title": f"t{number}", "paragraphs": [{"context": context, "qas": qas}]})
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "dev.json").write_text(json.dumps({"data": paragraphs}))
    (folder / "split.json").write_text(json.dumps({"test": ["t0", "t1"], "tune": ["t2", "t3", "t4"]}))
    return folder


@pytest.fixture
def recipe(tmp_path: Path, tiny_bert: Path) -> Path:
    path = tmp_path / "small.yaml"
    content = {
        "name": "small",
        "model": {"checkpoint": str(tiny_bert), "split_layer": 3},
        "data": {"train": [{"format": "squad", "file": "dev.json"}], "max_passage_tokens": 40, "overlap": 8},
        "optimiser": {"batch_tokens": 128},
    }
    path.write_text(yaml.safe_dump(content))
    return path


def _refused(capsys, *arguments: str) -> str:
    assert main(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def test_convert_writes_a_model_and_refuses_to_overwrite(tiny_bert, tmp_path, capsys) -> None:
    out = tmp_path / "out"
    arguments = ["convert", str(tiny_bert), str(out), "--to", "deformer", "--split-layer", "3"]
    assert main([*arguments, "--json"]) == 0
    output = capsys.readouterr()
    report = json.loads(output.out)
    assert report["split_layer"] == 3 and report["used"] and "tensors used" in output.err
    assert {"config.json", "model.safetensors", "tokenizer.json", "conversion.json"} <= {p.name for p in out.iterdir()}
    assert DeformerForQuestionAnswering.from_pretrained(out).config.split_layer == 3
    assert "which holds files; pass --force" in _refused(capsys, *arguments)
    assert main([*arguments[:-1], "2", "--force", "--task", "question-answering", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert DeformerForQuestionAnswering.from_pretrained(out).config.split_layer == 2
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_convert_splits_a_deformer_elsewhere(tiny_bert, tmp_path, capsys) -> None:
    first, second = str(tmp_path / "first"), tmp_path / "second"
    assert main(["convert", str(tiny_bert), first, "-k", "3", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["convert", first, str(second), "-k", "1", "--json", "--quiet"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["split_layer"] == 1 and not report["dropped"] and not report["new"]
    assert DeformerForQuestionAnswering.from_pretrained(second).config.split_layer == 1


@pytest.fixture
def tiny_longt5(tmp_path: Path, tiny_bert: Path) -> Path:
    """A random transient-global LongT5 with the tokenizer of the tiny BERT."""
    import torch
    from transformers import AutoTokenizer, LongT5Config, LongT5ForConditionalGeneration

    folder = tmp_path / "longt5"
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    tokenizer.save_pretrained(folder)
    sizes = {"vocab_size": len(tokenizer), "d_model": 12, "d_kv": 4, "d_ff": 16, "num_layers": 2, "num_heads": 3}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = LongT5Config(**sizes, encoder_attention_type="transient-global", decoder_start_token_id=0)
        LongT5ForConditionalGeneration(config).save_pretrained(folder)
    return folder


def test_convert_makes_a_mulla_that_writes(tiny_longt5, tmp_path, capsys) -> None:
    from transformers import AutoTokenizer

    from narrows.mulla import MullaT5ForConditionalGeneration

    out = tmp_path / "out"
    arguments = ["convert", str(tiny_longt5), str(out), "--to", "mulla", "--variant", "dynamic", "--pooling-rate", "8"]
    assert main([*arguments, "--json"]) == 0
    output = capsys.readouterr()
    report = json.loads(output.out)
    assert (report["variant"], report["pooling_rate"], report["num_levels"]) == ("dynamic", 8, None)
    assert report["local_radius"] == 127 and "global_input_layer_norm" in output.err
    assert json.loads((out / "conversion.json").read_text())["used"] == report["used"]
    model = MullaT5ForConditionalGeneration.from_pretrained(out)
    inputs = AutoTokenizer.from_pretrained(out)("the boat went down the river.", return_tensors="pt")
    assert model.generate(inputs.input_ids, max_new_tokens=3).shape[0] == 1
    fixed = ["--variant", "fixed", "--num-levels", "2", "--local-radius", "5", "--new-tables", "global"]
    head = ["--task", "question-answering", "--force", "--json", "--quiet"]
    assert main(["convert", str(tiny_longt5), str(out), "--to", "mulla", *fixed, *head]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["pooling_rate"], report["num_levels"], report["local_radius"]) == (4, 2, 5)
    assert sorted(report["new"]) == ["qa_outputs.bias", "qa_outputs.weight"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["--to", "mulla", "-k", "2"],
            "expected options of mulla, got --split-layer, which it does not have; leave it",
        ),
        (
            ["--to", "mulla", "--passage-positions", "restart"],
            "expected options of mulla, got --passage-positions, which it does not have; leave it out",
        ),
        (
            ["-k", "2", "--variant", "fixed"],
            "expected options of deformer, got --variant, which it does not have; leave",
        ),
        (
            ["-k", "2", "--pooling-rate", "8"],
            "expected options of deformer, got --pooling-rate, which it does not have",
        ),
        (
            ["-k", "2", "--task", "generation"],
            "--task must be one of question-answering, sequence-classification, encoder for deformer, got generation",
        ),
        ([], "expected --split-layer (-k) for deformer, got none; 0 is the joint model"),
        (["--to", "mulla", "--num-levels", "2"], "`num_levels` must be None for the dynamic variant"),
    ],
)
def test_options_of_another_family_are_refused_by_name(arguments, text, tiny_longt5, tmp_path, capsys) -> None:
    assert text in _refused(capsys, "convert", str(tiny_longt5), str(tmp_path / "out"), *arguments)
    assert not (tmp_path / "out").exists()


def test_a_config_with_a_field_of_another_type_is_one_sentence(tiny_bert, squad, tmp_path, capsys) -> None:
    model, out = tmp_path / "model", str(tmp_path / "out")
    assert main(["convert", str(tiny_bert), str(model), "-k", "3", "--quiet"]) == 0
    capsys.readouterr()
    path = model / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "split_layer": "two"}))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("The boat.")
    for arguments in (
        ["convert", str(model), out, "-k", "1"],
        ["evaluate", str(model), str(squad / "dev.json"), "--quiet"],
        ["index", str(tmp_path / "notes"), "-o", out, "--model", str(model), "--quiet"],
    ):
        assert "`split_layer` must be of type int, got 'two'; change it in config.json" in _refused(capsys, *arguments)


def test_convert_used_wrongly(tiny_bert, tmp_path, capsys) -> None:
    out = str(tmp_path / "out")
    assert "from 0 to 4 for 5 layers, got 9" in _refused(capsys, "convert", str(tiny_bert), out, "-k", "9")
    assert "(nothing there); check the path" in _refused(capsys, "convert", str(tmp_path / "no"), out, "-k", "1")
    assert "without config.json" in _refused(capsys, "convert", str(tmp_path), out, "-k", "1")
    (tmp_path / "file").write_text("")
    own = ["convert", str(tiny_bert), str(tiny_bert / ".." / tiny_bert.name), "-k", "1", "--force"]
    assert "expected another folder than the checkpoint's own" in _refused(capsys, *own)
    assert "(a file)" in _refused(capsys, "convert", str(tmp_path / "file"), out, "-k", "1")
    assert "got the file" in _refused(capsys, "convert", str(tiny_bert), str(tmp_path / "file"), "-k", "1")
    below = str(tmp_path / "file" / "x")
    assert "which cannot be made" in _refused(capsys, "convert", str(tiny_bert), below, "-k", "1")
    assert not (tmp_path / "out").exists()


def test_train_shows_a_plan_trains_and_evaluates(recipe, squad, tmp_path, capsys) -> None:
    runs = tmp_path / "runs"
    common = ["train", str(recipe), "--data", str(squad), "--runs", str(runs)]
    assert main([*common, "--dry-run", "--set", "optimiser.accumulation=2", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["recipe"]["optimiser"]["accumulation"] == 2
    assert plan["plan"]["rows"] == 32 and plan["plan"]["tokens"] > 32 * 10
    assert not runs.exists()
    assert main([*common, "--dry-run", "--set", "data.max_question_tokens=3"]) == 0
    shown = capsys.readouterr().out
    assert "split_layer: 3" in shown and "# 32 rows of" in shown and "questions cut to the recipe's room: 32" in shown

    assert main([*common, "--json", "--quiet"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["model"] == str(runs / "small" / "model") and made["steps"] > 1
    assert "narrows train small.yaml" in (runs / "small" / "model" / "README.md").read_text()

    # Another recipe starts from that run by its name.
    second = ["--set", "name=second", "--set", "model.checkpoint=small/model", "--set", "model.split_layer=4"]
    assert main([*common, *second, "--set", "optimiser.epochs=0.2"]) == 0
    assert capsys.readouterr().out == ""
    assert DeformerForQuestionAnswering.from_pretrained(runs / "second" / "model").config.split_layer == 4
    _evaluate(runs, squad, tmp_path, capsys)


def _evaluate(runs: Path, squad: Path, tmp_path: Path, capsys) -> None:
    model, dev = runs / "small" / "model", squad / "dev.json"
    part = ["--split", str(squad / "split.json"), "--part", "tune", "--quiet"]
    assert main(["evaluate", str(model), str(dev), *part, "--calibrate", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    config = json.loads((model / "config.json").read_text())
    assert figures["scores"]["total"] == 6
    assert figures["rule"]["scale"] == config["no_answer_scale"] != 1.0
    assert json.loads((model / "evaluation" / "dev-tune.jsonl.scores.json").read_text()) == figures

    chosen = ["--predictions", str(tmp_path / "p.jsonl")]
    assert main(["evaluate", str(model), str(dev), "--against", str(runs / "second" / "model"), *chosen]) == 0
    output = capsys.readouterr()
    assert "F1 over the other" in output.out and "balanced accuracy" in output.out
    assert "p.jsonl" in output.err
    assert len((tmp_path / "p.jsonl").read_text().splitlines()) == 32
    against = ["--against", str(tmp_path / "p.jsonl"), "--json", "--quiet"]
    assert main(["evaluate", str(model), str(dev), *against]) == 0
    assert "f1_difference" in json.loads(capsys.readouterr().out)["against"]


def test_train_used_wrongly(recipe, squad, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.delenv("NARROWS_DATA", raising=False)
    plain = ["train", str(recipe), "--runs", str(tmp_path / "runs")]
    assert "pass --data DIR or set NARROWS_DATA" in _refused(capsys, *plain)
    with_data = [*plain, "--data", str(squad)]
    assert "did you mean 'epochs'?" in _refused(capsys, *with_data, "--set", "optimiser.epoch=2")
    assert "expected --set a.b=value, got 'x'" in _refused(capsys, *with_data, "--set", "x")
    assert "(nothing there)" in _refused(capsys, *with_data, "--set", f"model.checkpoint={tmp_path / 'no'}")
    assert "from 0 to 4 for 5 layers, got 7" in _refused(capsys, *with_data, "--set", "model.split_layer=7")
    assert "expected data at" in _refused(capsys, *plain, "--data", str(tmp_path / "none"))
    assert "expected a recipe at" in _refused(capsys, "train", "none.yaml", "--data", str(squad))
    (tmp_path / "taken").write_text("")
    assert "expected a folder to write to" in _refused(capsys, *with_data, "-o", str(tmp_path / "taken"))


def test_several_recipes_are_a_queue(recipe, squad, tmp_path, capsys) -> None:
    second = tmp_path / "second.yaml"
    text = recipe.read_text().replace("name: small", "name: second")
    second.write_text(text)
    third = tmp_path / "third.yaml"
    third.write_text(text.replace("name: second", "name: third"))
    runs = tmp_path / "runs"
    common = ["--data", str(squad), "--runs", str(runs), "--quiet"]
    assert main(["train", str(recipe), str(second), *common]) == 0
    written = (runs / "second" / "log.jsonl").stat().st_mtime_ns
    # What is done is passed over.
    assert main(["train", str(recipe), str(second), str(third), *common]) == 0
    assert (runs / "second" / "log.jsonl").stat().st_mtime_ns == written
    assert (runs / "third" / "model" / "config.json").is_file()
    capsys.readouterr()
    assert main(["train", str(recipe), str(second), *common, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [run["model"] for run in told["runs"]] == [str(runs / name / "model") for name in ("small", "second")]
    assert main(["train", str(recipe), str(second), *common, "--json", "--dry-run"]) == 0
    assert [run["recipe"]["name"] for run in json.loads(capsys.readouterr().out)["runs"]] == ["small", "second"]
    (runs / "small" / "summary.json").unlink()
    assert main(["train", str(recipe), *common, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"model": str(runs / "small" / "model")}
    assert main(["train", str(recipe), str(second), *common]) == 0
    assert capsys.readouterr().out == ""
    one_folder = _refused(capsys, "train", str(recipe), str(second), *common, "-o", str(tmp_path / "o"))
    assert "expected one recipe with --output, got 2; leave out --output" in one_folder
    assert "expected recipes of different names, got 'small' twice" in _refused(
        capsys, "train", str(recipe), str(recipe), *common
    )


def test_a_queue_is_shown_before_its_checkpoints_are_there(recipe, squad, tmp_path, capsys) -> None:
    content = yaml.safe_load(recipe.read_text())
    second, third = tmp_path / "second.yaml", tmp_path / "third.yaml"
    for path, name, checkpoint in ((second, "b", "small/model"), (third, "c", str(tmp_path / "no"))):
        model = {"checkpoint": checkpoint, "split_layer": 3}
        path.write_text(yaml.safe_dump({**content, "name": name, "model": model}))
    common = ["--data", str(squad), "--runs", str(tmp_path / "runs"), "--dry-run"]
    assert main(["train", str(recipe), str(second), *common]) == 0
    assert "# small/model is not there yet: small writes it before\n" in capsys.readouterr().out
    assert main(["train", str(recipe), str(second), *common, "--json"]) == 0
    first, then = json.loads(capsys.readouterr().out)["runs"]
    assert (first["awaits"], then["awaits"]) == ({}, {"small/model": "small"})
    assert first["plan"] == then["plan"]
    assert "'b' starts from, to be there or to be written before it" in _refused(
        capsys, "train", str(second), str(recipe), *common
    )
    # Nothing is trained before it is known that the last one can be.
    assert "(nothing there)" in _refused(capsys, "train", str(recipe), str(second), str(third), *common[:-1])
    assert not (tmp_path / "runs").exists()


def test_evaluate_used_wrongly(tiny_bert, squad, tmp_path, capsys) -> None:
    model, dev = str(tiny_bert), str(squad / "dev.json")
    assert "(nothing there)" in _refused(capsys, "evaluate", str(tmp_path / "no"), dev)
    assert "expected a file, got nothing" in _refused(capsys, "evaluate", model, str(squad / "none.json"))
    assert "expected a key 'data'" in _refused(capsys, "evaluate", model, str(squad / "split.json"))
    assert "expected --split and --part together" in _refused(capsys, "evaluate", model, dev, "--part", "x")
    split = ["--split", str(squad / "split.json"), "--part", "x"]
    assert "expected --part to be one of test, tune, got 'x'" in _refused(capsys, "evaluate", model, dev, *split)
    assert "expected a model's folder to calibrate" in _refused(capsys, "evaluate", "a/b", dev, "--calibrate")
    into_folder = _refused(capsys, "evaluate", model, dev, "--predictions", str(squad))
    assert "expected a file for --predictions, got the folder" in into_folder
    twice = squad / "twice.json"
    twice.write_text(Path(dev).read_text().replace('"a1"', '"a0"'))
    assert "got 'a0' twice; give each question its own" in _refused(capsys, "evaluate", model, str(twice))
    damaged = squad.parent / "damaged"
    damaged.mkdir()
    (damaged / "config.json").write_text('{"model_type": ')
    assert main(["evaluate", str(damaged), dev, "--calibrate"]) == 1
    assert "expected a JSON object in" in capsys.readouterr().err


def test_a_deformer_without_a_span_head_is_one_sentence(tiny_bert, squad, tmp_path, capsys) -> None:
    model, dev = str(tmp_path / "classifier"), str(squad / "dev.json")
    task = ["--task", "sequence-classification", "--quiet"]
    assert main(["convert", str(tiny_bert), model, "-k", "1", *task]) == 0
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("The boat.")
    capsys.readouterr()
    for arguments in (
        ["evaluate", model, dev, "--quiet"],
        ["evaluate", model, dev, "--candidates", "2", "--quiet"],
        ["index", str(tmp_path / "notes"), "-o", str(tmp_path / "s"), "--model", model, "--quiet"],
    ):
        assert main(arguments) == 1
        out, err = capsys.readouterr()
        assert out == "" and err == (
            f"narrows: error: expected a checkpoint with a trained span head, got {model} without one; train it first "
            "with `narrows train`\n"
        )
    assert not (tmp_path / "s").exists() and not (Path(model) / "evaluation").exists()


@pytest.mark.slow
def test_a_killed_training_goes_on(recipe, squad, tmp_path) -> None:
    runs = tmp_path / "runs"
    code = "import sys; from narrows.cli.main import main; sys.exit(main(sys.argv[1:]))"
    line = [
        sys.executable,
        "-c",
        code,
        "train",
        str(recipe),
        "--data",
        str(squad),
        "--runs",
        str(runs),
        "--quiet",
    ]
    line += ["--set", "optimiser.epochs=12"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    process = subprocess.Popen(line, env=environment, stderr=subprocess.PIPE, text=True)
    log = runs / "small" / "log.jsonl"
    while not log.is_file() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 130, process.stderr.read()
    assert list((runs / "small").glob("checkpoint-*"))
    assert not (runs / "small" / "model").exists()
    assert subprocess.run(line, env=environment, check=False).returncode == 0
    assert (runs / "small" / "model" / "model.safetensors").is_file()
