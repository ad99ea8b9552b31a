"""Whole runs of summarisers: resumed as if never stopped, of every kind of model, and what they leave."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from narrows.hf.seq2seq import load_seq2seq
from narrows.hf.trained_inputs import trained_inputs
from narrows.training import run as run_module
from narrows.training.recipe import load_recipe, save_recipe
from narrows.training.run import last_checkpoint, train
from narrows.training.summaries.build import build_run, plan_run


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model" / "model.safetensors")


GROWING = {"lengths": [16, 24, 32], "shares": [0.4, 0.4, 0.2]}


@pytest.mark.parametrize("optimizer", ["adafactor", pytest.param("adamw", marks=pytest.mark.slow)])
def test_a_run_stopped_twice_equals_the_straight_one(
    optimizer, summary_recipe, summaries_folder, tmp_path, stop_at
) -> None:
    recipe = summary_recipe(optimiser={"optimizer": optimizer, "accumulation": 2}, data=GROWING)
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    assert train(recipe, data=summaries_folder, output=straight, quiet=True) == straight / "model"
    for step in (1, 4):
        stop_at(step)
        assert train(recipe, data=summaries_folder, output=stopped, quiet=True) is None
        assert last_checkpoint(stopped) == str(stopped / f"checkpoint-{step + 1}")
    stop_at(None)
    assert train(recipe, data=summaries_folder, output=stopped, quiet=True) == stopped / "model"
    expected, found = _weights(straight), _weights(stopped)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_span_corruption_stopped_equals_the_straight_run(
    corruption_recipe, summaries_folder, tmp_path, stop_at
) -> None:
    recipe = corruption_recipe(optimiser={"epochs": 1})
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    train(recipe, data=summaries_folder, output=straight, quiet=True)
    stop_at(2)
    assert train(recipe, data=summaries_folder, output=stopped, quiet=True) is None
    stop_at(None)
    train(recipe, data=summaries_folder, output=stopped, quiet=True)
    expected, found = _weights(straight), _weights(stopped)
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert json.loads((straight / "summary.json").read_text())["tune"].keys() == {"eval_loss"}


@pytest.mark.parametrize("kind", ["mulla", "longt5", "tglobal", "t5"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_kind_trains_and_says_what_it_reads(
    kind, dtype, summary_recipe, summaries_folder, tmp_path, tiny_seq2seq, capsys
) -> None:
    recipe = summary_recipe(
        model={"checkpoint": str(tiny_seq2seq(kind))},
        optimiser={"dtype": dtype, "epochs": 1, "gradient_checkpointing": True},
        data={"truncation": {"name": "head+tail", "head_share": 0.25}},
    )
    folder = train(recipe, data=summaries_folder, output=tmp_path, quiet=True)
    assert folder == tmp_path / "model"
    shown = capsys.readouterr()
    assert shown.out == "" and "missing keys" not in shown.err
    model, tokenizer = load_seq2seq(folder)
    noted = trained_inputs(model.config)
    assert noted is not None and noted.max_input_tokens == 32
    assert noted.truncation == {"name": "head+tail", "head_share": 0.25}
    assert model.generation_config.max_new_tokens == 6
    assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    before, _ = load_seq2seq(tiny_seq2seq(kind))
    assert any(not torch.equal(a, b) for a, b in zip(model.parameters(), before.parameters(), strict=True))
    assert tokenizer.eos_token_id == 1
    summary = json.loads((tmp_path / "summary.json").read_text())
    names = {"eval_average", "eval_rouge1", "eval_rouge2", "eval_rougeL", "eval_rougeLsum"}
    assert summary["tune"].keys() == names
    assert summary["truncated"]["documents"] > 0
    card = (folder / "README.md").read_text()
    for part in ("pipeline_tag: summarization", "train.jsonl", "narrows.Summarizer", "eval_average"):
        assert part in card


def test_what_is_not_read_is_kept_a_line_a_record(summary_recipe, summaries_folder, tmp_path) -> None:
    recipe = summary_recipe(data={**GROWING, "max_output_tokens": 5})
    run = build_run(recipe, data=summaries_folder, output=tmp_path, quiet=True)
    lines = [json.loads(line) for line in (tmp_path / "truncation.jsonl").read_text().splitlines()]
    assert {line["max_input_tokens"] for line in lines} == {16, 24, 32}
    # Of those too that are read whole.
    assert len(lines) == 3 * run.plan.rows and not all(line["dropped"] for line in lines)
    assert lines[0].keys() == {
        *("id", "max_input_tokens", "tokens", "dropped", "parts", "target_tokens", "target_dropped"),
    }
    for name, length in (("documents at 16 tokens", 16), ("documents at 32 tokens", 32)):
        cut = [line for line in lines if line["max_input_tokens"] == length and line["dropped"]]
        assert run.plan.truncated[name] == len(cut)
    assert run.plan.truncated["summaries"] == 21
    assert plan_run(recipe, data=summaries_folder) == run.plan


def test_the_saved_model_is_the_best_by_average(summary_recipe, summaries_folder, tmp_path, monkeypatch) -> None:
    scores = iter([1.0, 9.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])
    kept = {}

    def build(*args, **kwargs):
        run = build_run(*args, **kwargs)

        def evaluate(model):
            score = next(scores)
            kept[score] = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            return {"average": score}

        run.trainer._evaluate_model = evaluate
        return run

    monkeypatch.setattr(run_module, "build_run", build)
    train(summary_recipe(evaluate_every=2), data=summaries_folder, output=tmp_path, quiet=True)
    found = _weights(tmp_path)
    assert len(kept) > 3
    assert all(torch.equal(tensor, kept[9.0][name]) for name, tensor in found.items())
    assert not torch.equal(found["shared.weight"], kept[2.0]["shared.weight"])


@pytest.mark.parametrize(("name", "folder"), [("mulla-code", "code"), ("mulla-document-qa", "document-qa")])
def test_a_shipped_recipe_reads_ones_own_files(name, folder, summaries_folder, tmp_path, tiny_seq2seq) -> None:
    shutil.copytree(summaries_folder, tmp_path / folder)
    path = Path(__file__).resolve().parents[3] / "recipes" / f"{name}.yaml"
    recipe = load_recipe(path, settings={"model.checkpoint": str(tiny_seq2seq("mulla"))})
    plan = plan_run(recipe, data=tmp_path)
    assert (plan.rows, dict(plan.truncated)) == (21, {})


def test_the_dialogue_recipe_reads_turns_and_queries(tmp_path, tiny_seq2seq) -> None:
    turns = [{"speaker": "Anna", "content": "the mill was old ."}, {"speaker": "Ben", "content": "we built a boat ."}]
    asked = [{"query": "what was built ?", "answer": "a boat ."}, {"query": "what was old ?", "answer": "the mill ."}]
    meeting = {"meeting_transcripts": turns, "general_query_list": asked[:1], "specific_query_list": asked[1:]}
    (tmp_path / "longdoc" / "qmsum").mkdir(parents=True)
    with gzip.open(tmp_path / "longdoc" / "qmsum" / "ALL_train.jsonl.gz", "wt") as file:
        file.write(json.dumps(meeting) + "\n")
    path = Path(__file__).resolve().parents[3] / "recipes" / "mulla-dialogue.yaml"
    recipe = load_recipe(path, settings={"model.checkpoint": str(tiny_seq2seq("mulla"))})
    plan = plan_run(recipe, data=tmp_path)
    assert (plan.rows, dict(plan.truncated)) == (2, {})


def test_a_finished_run_keeps_no_tokens_and_a_stopped_one_does(
    summary_recipe, summaries_folder, tmp_path, stop_at
) -> None:
    recipe = summary_recipe()
    stop_at(1)
    assert train(recipe, data=summaries_folder, output=tmp_path, quiet=True) is None
    assert list((tmp_path / "tokens").iterdir())
    stop_at(None)
    train(recipe, data=summaries_folder, output=tmp_path, quiet=True)
    assert not (tmp_path / "tokens").exists()
    assert (tmp_path / "truncation.jsonl").is_file()


_OF_ONE_PROCESS = """
import os, sys
from pathlib import Path
from narrows.training.recipe import load_recipe, save_recipe
from narrows.training.summaries.build import build_run

# A folder for each, so that it shows who wrote.
output = Path(sys.argv[3]) / os.environ["RANK"]
run = build_run(load_recipe(Path(sys.argv[1])), data=Path(sys.argv[2]), output=output, quiet=True)
run.trainer.log({"loss": 1.0})
"""


@pytest.mark.slow
def test_of_several_processes_the_first_alone_writes(summary_recipe, summaries_folder, tmp_path) -> None:
    save_recipe(summary_recipe(), tmp_path / "recipe.yaml")
    script = tmp_path / "one.py"
    script.write_text(_OF_ONE_PROCESS)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    arguments = [script, tmp_path / "recipe.yaml", summaries_folder, tmp_path]
    subprocess.run([*launch, *map(str, arguments)], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    first, second = ({path.name for path in (tmp_path / rank).iterdir()} for rank in "01")
    assert first - second == {"log.jsonl", "truncation.jsonl"}
