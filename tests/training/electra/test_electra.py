"""Whole runs of ELECTRA: they learn, do not depend on how a batch is split, resume exactly and leave two models."""

import json
import math
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForMaskedLM, AutoModelForPreTraining, AutoTokenizer

from narrows.data.masking import IGNORED
from narrows.errors import RecipeError, UsageError
from narrows.funnel import FunnelForElectraPreTraining, FunnelForReplacedTokenDetection, FunnelForSequenceClassification
from narrows.training.electra.build import build_run, plan_run
from narrows.training.electra.objective import ElectraObjective
from narrows.training.electra.recipe import ElectraRecipe
from narrows.training.pretraining.data import Item
from narrows.training.recipe import load_recipe
from narrows.training.run import train

FUNNEL = {
    "block_sizes": [1, 1],
    "num_decoder_layers": 1,
    "d_model": 32,
    "n_head": 4,
    "d_head": 8,
    "d_inner": 64,
    "generator_ratio": 0.5,
}


@pytest.fixture
def electra_recipe(tiny_bert: Path):
    """A recipe of 30 steps; `sections` replace its own keys one by one."""

    def make(**sections) -> ElectraRecipe:
        raw = {
            "name": "tiny",
            "task": "electra",
            "model": {"family": "narrows-funnel", "tokenizer": str(tiny_bert), "config": FUNNEL},
            "data": {"train": [{"file": "train-*.txt"}], "tune": [{"file": "tune.txt"}], "length": 32},
            "optimiser": {"steps": 30, "batch_tokens": 256, "learning_rate": 1e-2, "seed": 3},
            "evaluate": {"limit": 8},
            "evaluate_every": 10,
        }
        for name, value in sections.items():
            raw[name] = {**raw[name], **value} if isinstance(raw.get(name), dict) else value
        return ElectraRecipe.model_validate(raw)

    return make


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    generator = load_file(folder / "model" / "generator" / "model.safetensors")
    ours = load_file(folder / "model" / "model.safetensors")
    return {**ours, **{f"generator.{name}": tensor for name, tensor in generator.items()}}


def _log(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("positive", ["replaced", "original"])
def test_thirty_steps_learn(positive, electra_recipe, text_folder, tmp_path) -> None:
    recipe = electra_recipe(model={"config": {**FUNNEL, "discriminator_positive": positive}})
    run = build_run(recipe, data=text_folder, output=tmp_path / "before", quiet=True)
    before = run.trainer.evaluate()
    model = run.trainer.model
    # Random weights know nothing: every token is as likely, and so is either judgement.
    assert abs(before["eval_generator_loss"] / math.log(model.config.vocab_size) - 1) < 0.2
    assert abs(before["eval_discriminator_loss"] / math.log(2) - 1) < 0.2
    total = before["eval_generator_loss"] + 50 * before["eval_discriminator_loss"]
    assert before["eval_loss"] == pytest.approx(total)
    assert 75 < before["eval_always_original"] < 100 and 0 <= before["eval_replaced_auc"] <= 100
    assert run.trainer.evaluate() == before
    folder = train(recipe, data=text_folder, output=tmp_path / "run", quiet=True)
    scores = [entry for entry in _log(tmp_path / "run") if "eval_loss" in entry]
    assert scores[-1]["eval_generator_loss"] < 0.9 * before["eval_generator_loss"]
    assert scores[-1]["eval_discriminator_loss"] < 0.9 * before["eval_discriminator_loss"]
    # The last checkpoint is kept, and the card says so.
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["tune"]["eval_loss"] == pytest.approx(scores[-1]["eval_loss"]) and summary["steps"] == 30
    card = (folder / "README.md").read_text()
    assert "On the tune data, of the last checkpoint:" in card and "pipeline_tag: feature-extraction" in card


def test_both_models_are_checkpoints(electra_recipe, text_folder, tmp_path) -> None:
    folder = train(electra_recipe(optimiser={"steps": 2}), data=text_folder, output=tmp_path, quiet=True)
    judge, found = AutoModelForPreTraining.from_pretrained(folder, output_loading_info=True)
    assert isinstance(judge, FunnelForReplacedTokenDetection)
    assert not found["missing_keys"] and not found["unexpected_keys"]
    generator, found = AutoModelForMaskedLM.from_pretrained(folder / "generator", output_loading_info=True)
    assert not found["missing_keys"] and not found["unexpected_keys"]
    assert (judge.config.d_model, generator.config.d_model) == (32, 16)
    table = judge.funnel.embeddings.word_embeddings.weight
    assert torch.equal(generator.funnel.embeddings.word_embeddings.weight, table)
    ids = AutoTokenizer.from_pretrained(folder / "generator")("a child found the [MASK] mill", return_tensors="pt")
    assert generator(**ids).logits.isfinite().all()
    reader, found = FunnelForSequenceClassification.from_pretrained(folder, output_loading_info=True)
    assert {name.split(".")[0] for name in found["missing_keys"]} == {"classifier"}
    assert torch.equal(reader.funnel.embeddings.word_embeddings.weight, table)


def test_a_run_stopped_twice_equals_the_straight_one(electra_recipe, text_folder, resumes_exactly) -> None:
    recipe = electra_recipe(
        optimiser={"steps": 8, "accumulation": 2, "layer_decay": 0.8}, data={"segments": 2}, evaluate_every=3
    )
    resumes_exactly(recipe, text_folder, stops=(1, 4))


def test_a_step_does_not_depend_on_how_it_is_split(electra_recipe, text_folder, tmp_path) -> None:
    run = build_run(electra_recipe(), data=text_folder, output=tmp_path, quiet=True)
    model, rows = run.trainer.model.eval(), run.trainer.train_dataset
    collate, objective = run.trainer._collate, ElectraObjective()
    items = [rows[Item(1, row)] for row in range(6)]
    # With other numbers of predicted tokens in them.
    items[0].labels[:20] = IGNORED
    gradients = []
    for split in ([items], [items[:1], items[1:4], items[4:]], [items[::-1]]):
        batches = [collate(part) for part in split]
        counts = objective.counts(batches)
        model.zero_grad()
        for batch in batches:
            objective(model, batch, counts).backward()
        gradients.append({name: weight.grad.clone() for name, weight in model.named_parameters()})
    for other in gradients[1:]:
        for name, gradient in gradients[0].items():
            torch.testing.assert_close(other[name], gradient, rtol=1e-4, atol=1e-5, msg=name)


def test_a_run_goes_on_from_another_ones_models(electra_recipe, text_folder, tmp_path) -> None:
    train(electra_recipe(optimiser={"steps": 2}), data=text_folder, output=tmp_path / "first", quiet=True)
    start = {"family": None, "config": {}, "tokenizer": None}
    recipe = electra_recipe(
        model={"checkpoint": "first/model", "attention": "eager", **start},
        optimiser={"steps": 2, "dropout": 0.3, "gradient_checkpointing": True, "dtype": "bfloat16"},
        data={"tune": []},
    )
    run = build_run(recipe, data=text_folder, output=tmp_path / "second", quiet=True, runs=tmp_path)
    model, weights = run.trainer.model, _weights(tmp_path / "first")
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.discriminator().state_dict().items())
    found = model.generator.state_dict()
    assert all(torch.equal(found[name], weights[f"generator.{name}"]) for name in found if name != "lm_head.weight")
    assert {part.config.hidden_dropout for part in (model, model.generator)} == {0.3}
    assert {part.funnel_backend for part in model.modules() if hasattr(part, "funnel_backend")} == {"reference"}
    assert train(recipe, data=text_folder, output=tmp_path / "second", quiet=True, runs=tmp_path) is not None
    # What `narrows convert` writes is one model.
    model.save_pretrained(tmp_path / "joint" / "model")
    AutoTokenizer.from_pretrained(tmp_path / "first" / "model").save_pretrained(tmp_path / "joint" / "model")
    joint = electra_recipe(model={"checkpoint": "joint/model", **start}, data={"tune": []})
    again = build_run(joint, data=text_folder, output=tmp_path / "third", quiet=True, runs=tmp_path).trainer.model
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in again.state_dict().items())


def test_a_checkpoint_without_a_generator_is_refused(
    electra_recipe, text_folder, tiny_bert, tiny_encoder, tmp_path
) -> None:
    folder = train(electra_recipe(optimiser={"steps": 1}), data=text_folder, output=tmp_path / "run", quiet=True)
    (folder / "generator").rename(tmp_path / "generator")
    start = {"family": None, "config": {}, "tokenizer": None}
    for checkpoint, text in (
        (folder, "expected a discriminator with its generator in .*, got FunnelForReplacedTokenDetection alone; name"),
        (tiny_bert, "expected a checkpoint of narrows-funnel for electra, got bert; convert it"),
    ):
        recipe = electra_recipe(model={"checkpoint": str(checkpoint), **start}, data={"tune": [], "length": 16})
        with pytest.raises(UsageError, match=text):
            build_run(recipe, data=text_folder, output=tmp_path / "other", quiet=True)


def test_two_models_must_be_of_one_run() -> None:
    from narrows.funnel import FunnelConfig

    config = FunnelConfig(vocab_size=20, **FUNNEL)
    one, other = FunnelForElectraPreTraining(config), FunnelForElectraPreTraining(config)
    with pytest.raises(UsageError, match="expected a generator with the discriminator's embeddings, got one with its"):
        FunnelForElectraPreTraining.from_parts(one.discriminator(), other.generator)
    wider = FunnelForElectraPreTraining(FunnelConfig(vocab_size=20, **{**FUNNEL, "generator_ratio": 0.75}))
    with pytest.raises(UsageError, match="expected a generator with d_model 16, as the discriminator's config says, "):
        FunnelForElectraPreTraining.from_parts(one.discriminator(), wider.generator)


def test_a_plan_counts(electra_recipe, text_folder) -> None:
    plan = plan_run(electra_recipe(), data=text_folder)
    assert plan.steps == 30 and plan.tokens == plan.rows * 32


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"model": {"family": "bert"}},
            "expected narrows-funnel as model.family of an electra in .*, got 'bert'; chan",
        ),
        ({"masking": {"hide_keys": True}}, "expected no masking.hide_keys in .* for electra, where .* got true; leave"),
    ],
)
def test_a_mistake_is_one_sentence(changes, text, electra_recipe, tmp_path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump(electra_recipe(**changes).model_dump()))
    with pytest.raises(RecipeError, match=text):
        load_recipe(path)


def test_the_models_own_refusals_are_heard(electra_recipe, text_folder, tmp_path) -> None:
    recipe = electra_recipe(model={"config": {**FUNNEL, "generator_ratio": 0.1}})
    with pytest.raises(UsageError, match="`generator_ratio` must leave at least one head"):
        build_run(recipe, data=text_folder, output=tmp_path, quiet=True)
    assert AutoConfig.for_model("narrows-funnel").discriminator_weight == 50
