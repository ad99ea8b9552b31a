"""Runs of language models: they learn, resume exactly, keep the best checkpoint, and say what cannot be."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel

from narrows.errors import ConversionError, NarrowsError, UsageError
from narrows.evaluation.language import evaluate_line
from narrows.training.language.data import read_lines
from narrows.training.pretraining.data import Item
from narrows.training.recipe import load_recipe
from narrows.training.run import train
from narrows.training.tasks import build_run, plan_run, score_on_test

LLAMA = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
}
FILES = {"split": None, "train": [{"file": "train-*.txt"}], "tune": [{"file": "tune.txt"}]}


def _log(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_a_run_learns_and_says_how_well(language_recipe, byte_folder, tmp_path) -> None:
    recipe = language_recipe(optimiser={"steps": 45, "dropout": 0.0}, evaluate_every=15)
    model = train(recipe, data=byte_folder, output=tmp_path / "run", quiet=True)
    assert model == tmp_path / "run" / "model"
    log = _log(tmp_path / "run")
    evaluations = [entry for entry in log if "eval_loss" in entry]
    assert [entry["step"] for entry in evaluations] == [15, 30, 45, 45]
    assert math.log(260) * 1.1 > evaluations[0]["eval_loss"] > 1.2 * evaluations[2]["eval_loss"]
    for entry in evaluations:
        # Of bytes a token is a byte.
        assert entry["eval_bits_per_byte"] == pytest.approx(entry["eval_loss"] / math.log(2))
        assert entry["eval_perplexity"] == pytest.approx(2 ** entry["eval_bits_per_byte"])
        assert entry["peak_memory_mb"] > 50
    training = [entry for entry in log if "loss" in entry]
    assert [entry["step"] for entry in training] == [20, 40]
    assert all(entry["tokens_per_second"] > 0 and entry["peak_memory_mb"] > 50 for entry in training)
    # What was kept is what an evaluation of its own finds.
    loaded = AutoModelForCausalLM.from_pretrained(model)
    lines = read_lines(recipe, None, data=byte_folder, folder=tmp_path, uses=["tune"])
    found = evaluate_line(loaded, lines["tune"].head(0.5), length=32, stride=16)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert found.loss == pytest.approx(summary["tune"]["eval_loss"], rel=1e-5)
    assert summary["tune"]["eval_loss"] == min(entry["eval_loss"] for entry in evaluations)
    config = json.loads((model / "config.json").read_text())
    assert config["narrows_language"] == {"reads": "bytes", "length": 32} and config["use_cache"]
    assert (config["vocab_size"], config["bos_token_id"], config["eos_token_id"]) == (260, 257, 258)
    card = (model / "README.md").read_text()
    assert "language model over bytes: the id of a byte is its value, trained on rows of 32 tokens." in card
    assert "windows of 32 tokens that move on by 16" in card and "pipeline_tag: text-generation" in card
    assert "train, tune and test have the shares 0.8, 0.1, 0.1" in card
    assert f"| eval_bits_per_byte | {summary['tune']['eval_bits_per_byte']:.4f} |" in card
    assert not (tmp_path / "run" / "tokens").exists()


def test_the_best_checkpoint_is_the_one_with_the_lowest_loss(language_recipe, byte_folder, tmp_path) -> None:
    # The more is learnt of the one text, the less likely is the other.
    (tmp_path / "train.txt").write_text("a child found the old mill. " * 40)
    (tmp_path / "tune.txt").write_text("WHO READ THE BOOK? " * 20)
    recipe = language_recipe(
        data={"split": None, "train": [{"file": "train.txt"}], "tune": [{"file": "tune.txt"}]},
        optimiser={"steps": 30, "dropout": 0.0},
        evaluate_every=6,
    )
    train(recipe, data=tmp_path, output=tmp_path / "run", quiet=True)
    *others, last = [entry["eval_loss"] for entry in _log(tmp_path / "run") if "eval_loss" in entry]
    assert last == min(others) < others[-1]


@pytest.mark.parametrize(
    "changes",
    [
        {"optimiser": {"accumulation": 2, "steps": 8}},
        {
            "model": {"family": "llama", "config": LLAMA},
            "optimiser": {"dtype": "bfloat16", "steps": None, "epochs": 0.8},
        },
    ],
    ids=["gpt2", "llama"],
)
def test_a_stopped_run_equals_the_straight_one(changes, language_recipe, byte_folder, resumes_exactly) -> None:
    if "model" in changes:
        changes["optimiser"]["dropout"] = 0.0
    recipe = language_recipe(**changes, evaluate_every=3)
    if "model" in changes:
        model = recipe.model.model_copy(update={"config": LLAMA})
        recipe = recipe.model_copy(update={"model": model})
    resumes_exactly(recipe, byte_folder, stops=(1, 4))


def test_a_gradient_step_does_not_depend_on_how_the_batch_is_split(language_recipe, byte_folder, tmp_path) -> None:
    trainer = build_run(language_recipe(), data=byte_folder, output=tmp_path, quiet=True).trainer
    model = trainer.model.eval()  # type: ignore[union-attr]
    batch = trainer._collate([trainer.train_dataset[Item(1, row)] for row in range(6)])  # type: ignore[index]

    def gradients(rows: list[list[int]]) -> list[torch.Tensor]:
        batches = [{name: value[part] for name, value in batch.items()} for part in rows]
        counts = trainer._objective.counts(batches)
        model.zero_grad()
        for part in batches:
            trainer._objective(model, part, counts).backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    whole = gradients([[0, 1, 2, 3, 4, 5]])
    for rows in ([[0], [1, 2, 3], [4, 5]], [[5, 4, 3, 2, 1, 0]]):
        for ours, theirs in zip(gradients(rows), whole, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


def test_subwords_train_and_are_saved_with_their_tokenizer(language_recipe, text_folder, subwords, tmp_path) -> None:
    recipe = language_recipe(
        model={"tokenizer": str(subwords)},
        data={**FILES, "test": [{"file": "tune.txt"}]},
        optimiser={"steps": 25},
        evaluate={"limit": None},
    )
    model = train(recipe, data=text_folder, output=tmp_path / "run", quiet=True)
    assert model is not None
    tune = json.loads((tmp_path / "run" / "summary.json").read_text())["tune"]
    tokenizer = AutoTokenizer.from_pretrained(model)
    documents = (text_folder / "tune.txt").read_text().split("\n\n")
    text = [document if document.endswith("\n") else document + "\n" for document in documents]
    tokens = sum(len(tokenizer(document).input_ids) + 1 for document in text) - 1
    bytes_ = sum(len(document.encode()) for document in text)
    assert tune["eval_bits_per_byte"] == pytest.approx(tune["eval_loss"] * tokens / bytes_ / math.log(2))
    assert tune["eval_perplexity"] == pytest.approx(math.exp(tune["eval_loss"]))
    assert AutoModelForCausalLM.from_pretrained(model).config.eos_token_id == 258
    scores = score_on_test(recipe, data=text_folder, model=model)
    assert (scores["tokens"], scores["bytes"]) == (tokens, bytes_)
    assert scores["scores"]["loss"]["mean"] == pytest.approx(tune["eval_loss"], rel=1e-5)


def test_the_test_part_is_scored_as_the_tune_part_is(language_recipe, byte_folder, tmp_path) -> None:
    recipe = language_recipe()
    model = train(recipe, data=byte_folder, output=tmp_path / "run", quiet=True)
    found = score_on_test(recipe, data=byte_folder, model=model)
    line = read_lines(recipe, None, data=byte_folder, folder=tmp_path, uses=["test"])["test"]
    expected = evaluate_line(AutoModelForCausalLM.from_pretrained(model), line, length=32, stride=16)
    for name, value in expected.scores().items():
        one = found["scores"][name]
        assert one["mean"] == pytest.approx(value, rel=1e-6) and one["low"] <= one["mean"] <= one["high"]
    counts = np.unique(line.read(0, len(line)), return_counts=True)[1] / len(line)
    entropy = -(counts * np.log2(counts)).sum()
    assert found["baseline"]["bits_per_byte"]["mean"] == pytest.approx(entropy)
    assert found["baseline"]["perplexity"]["mean"] == pytest.approx(2**entropy)
    assert found["baseline_is"] == "knowing how often each token is"
    assert (found["tokens"], found["bytes"], found["rows"]) == (len(line) - 1,) * 2 + (len(expected.nats),)
    untested = language_recipe(data={"split": None})
    with pytest.raises(
        UsageError, match="expected data.split or data.test in the recipe tiny to score it on, got neit"
    ):
        score_on_test(untested, data=byte_folder, model=model)


def test_a_run_goes_on_from_another_ones_model(language_recipe, byte_folder, tmp_path) -> None:
    first = language_recipe(name="first", optimiser={"steps": 3}, data={"split": None})
    # Without tune text the last checkpoint is the model.
    assert train(first, data=byte_folder, output=tmp_path / "first", quiet=True)
    assert json.loads((tmp_path / "first" / "summary.json").read_text())["tune"] == {}
    section = {"checkpoint": "first/model", "family": None, "config": {}, "tokenizer": None}
    recipe = language_recipe(optimiser={"steps": 2, "gradient_checkpointing": True})
    recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update=section)})
    run = build_run(recipe, data=byte_folder, output=tmp_path / "second", quiet=True, runs=tmp_path)
    start = load_file(tmp_path / "first" / "model" / "model.safetensors")
    found = run.trainer.model.state_dict()  # type: ignore[union-attr]
    assert all(torch.equal(found[name], tensor) for name, tensor in start.items())
    model = train(recipe, data=byte_folder, output=tmp_path / "second", quiet=True, runs=tmp_path)
    assert json.loads((model / "config.json").read_text())["narrows_language"]["reads"] == "bytes"
    end = load_file(model / "model.safetensors")
    assert not all(torch.equal(end[name], tensor) for name, tensor in start.items())


def test_a_plan_counts(language_recipe, byte_folder) -> None:
    recipe = language_recipe(optimiser={"steps": None, "epochs": 2, "accumulation": 2})
    plan = plan_run(recipe, data=byte_folder)
    assert plan.tokens == 32 * plan.rows and plan.rows > 100
    assert plan.steps == -(-(2 * plan.rows // 8) // 2)
    assert plan_run(language_recipe(), data=byte_folder).steps == 12


def test_a_loss_that_is_no_number_ends_the_run(language_recipe, byte_folder, tmp_path) -> None:
    recipe = language_recipe(optimiser={"learning_rate": 1e30, "max_grad_norm": 1e30, "warmup": 0.0, "steps": 60})
    with pytest.raises(
        NarrowsError, match="expected a finite .* at step .*: the weights are lost; train anew under an"
    ):
        train(recipe, data=byte_folder, output=tmp_path, quiet=True)


@pytest.mark.parametrize(
    ("sections", "text"),
    [
        (
            {"data": {"length": 65}},
            "expected data.length of at most the model's 64 positions, got 65; lower it, or raise",
        ),
        ({"model": {"family": "gpt3"}}, "expected a model type as model.family, got 'gpt3'; name one such as gpt2"),
        (
            {"model": {"family": "t5", "config": {}}},
            "expected a family with a causal language model, got t5; choose ano",
        ),
        (
            {"model": {"family": "bert", "config": {"num_hidden_layers": 1}}, "optimiser": {"batch_tokens": 64}},
            "expected a model that reads from left to right, got bert, which looks ahead; choose another, or set",
        ),
        (
            {"model": {"config": {"n_laier": 2}}},
            "expected fields of GPT2Config in model.config, got 'n_laier'; did you",
        ),
        (
            {"model": {"config": {"vocab_size": 9}}},
            "expected no model.config.vocab_size, which the tokenizer decides; l",
        ),
        (
            {"model": {"config": {"n_embd": 10, "n_head": 3}}},
            "expected values in model.config that GPT2Config takes, got",
        ),
        (
            {"model": {"attention": "quick"}},
            "expected an attention that gpt2 has, got 'quick' .*; leave model.attention",
        ),
        (
            {"model": {"tokenizer": "away"}, "data": {"split": None}},
            "expected a checkpoint's folder or a hub id, got 'aw",
        ),
        (
            {"data": {"split": [0.001, 0.5, 0.499]}},
            "expected text to train on for a row of 32 tokens and the one behind",
        ),
        (
            {"data": {"split": [0.9997, 1.5e-4, 1.5e-4]}},
            "expected at least 2 tokens of tune text, .*, got . tokens?; name mo",
        ),
        (
            {"optimiser": {"steps": None, "epochs": 0.001}},
            "expected at least one batch of 8 rows, got .* too few epochs",
        ),
    ],
)
def test_what_cannot_be_is_said(sections, text, language_recipe, byte_folder, tmp_path) -> None:
    recipe = language_recipe(**sections)
    if "config" in sections.get("model", {}):
        model = recipe.model.model_copy(update={"config": sections["model"]["config"]})
        recipe = recipe.model_copy(update={"model": model})
    with pytest.raises((UsageError, ConversionError), match=text):
        build_run(recipe, data=byte_folder, output=tmp_path, quiet=True)


def test_a_checkpoint_that_does_not_fit(language_recipe, byte_folder, tmp_path) -> None:
    sizes = {"n_layer": 1, "n_embd": 8, "n_head": 2, "n_positions": 16}
    GPT2LMHeadModel(GPT2Config(vocab_size=110, **sizes)).save_pretrained(tmp_path / "small")

    def build(**data):
        recipe = language_recipe(data={"length": 16, **data})
        section = {"checkpoint": str(tmp_path / "small"), "family": None, "config": {}}
        recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update=section)})
        return build_run(recipe, data=byte_folder, output=tmp_path / "run", quiet=True)

    with pytest.raises(
        UsageError, match="expected ids below 110, the model's vocabulary, got 121 in the text; name the"
    ):
        build()
    with pytest.raises(UsageError, match="expected data.length of at most the model's 16 positions, got 17; lower it$"):
        build(length=17)


def test_the_tokenizer_of_a_checkpoint_that_says_nothing(language_recipe, byte_folder, tmp_path) -> None:
    GPT2LMHeadModel(GPT2Config(vocab_size=260, n_layer=1, n_embd=8, n_head=2)).save_pretrained(tmp_path / "plain")
    recipe = language_recipe()
    section = {"checkpoint": str(tmp_path / "plain"), "family": None, "config": {}, "tokenizer": None}
    recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update=section)})
    with pytest.raises(ConversionError, match="expected tokenizer.json, vocab.txt or spiece.model in the checkpoint"):
        plan_run(recipe, data=byte_folder)


def test_the_shipped_recipe_counts(shared_data) -> None:
    recipe = load_recipe(Path(__file__).resolve().parents[3] / "recipes" / "byte-lm-plain.yaml")
    if not (shared_data / recipe.data.train[0].file).is_file():
        pytest.skip("needs the sample of Wikipedia's dump in the data folder")
    plan = plan_run(recipe, data=shared_data)
    assert plan.rows == (5_480_771 - 1) // 256 - 1 and plan.steps == recipe.optimiser.steps
