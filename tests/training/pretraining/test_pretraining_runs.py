"""Whole runs of pretraining: they learn, resume as if never stopped, and leave a model of transformers."""

import json
import math
from pathlib import Path

import pytest
import torch
from accelerate.data_loader import BatchSamplerShard
from safetensors.torch import load_file
from transformers import AutoModelForMaskedLM, AutoTokenizer, BertModel

from narrows.data.masking import IGNORED
from narrows.errors import ConversionError, UsageError
from narrows.training.pretraining.build import build_run, plan_run
from narrows.training.pretraining.data import Item
from narrows.training.pretraining.model import build_config, build_tokenizer
from narrows.training.pretraining.parts import prepare
from narrows.training.recipe import load_recipe
from narrows.training.run import last_checkpoint, train
from narrows.training.sweep import cells_of, load_sweep

FUNNEL = {
    "block_sizes": [2, 1, 1],
    "block_repeats": [1, 2, 1],
    "num_decoder_layers": 1,
    "d_model": 24,
    "n_head": 3,
    "d_head": 8,
    "d_inner": 48,
}


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model" / "model.safetensors")


def _log(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_thirty_steps_learn(pretraining_recipe, text_folder, tmp_path) -> None:
    recipe = pretraining_recipe()
    run = build_run(recipe, data=text_folder, output=tmp_path / "before", quiet=True)
    before = run.trainer.evaluate()
    # Random weights know nothing: every token of the vocabulary is as likely.
    assert abs(before["eval_loss"] / math.log(run.trainer.model.config.vocab_size) - 1) < 0.2
    model = train(recipe, data=text_folder, output=tmp_path / "run", quiet=True)
    log = _log(tmp_path / "run")
    losses = [entry["eval_loss"] for entry in log if "eval_loss" in entry]
    assert len(losses) >= 3 and losses[-1] < 0.8 * before["eval_loss"]
    assert [entry["tokens_per_second"] > 0 for entry in log if "loss" in entry] == [True]
    # The best checkpoint is what is kept.
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["tune"]["eval_loss"] == pytest.approx(min(losses)) and summary["steps"] == 30
    assert 0 <= summary["tune"]["eval_accuracy"] <= 100
    card = (model / "README.md").read_text()
    assert "pipeline_tag: fill-mask" in card and "`train-*.txt`" in card
    loaded, info = AutoModelForMaskedLM.from_pretrained(model, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    ids = AutoTokenizer.from_pretrained(model)("a child found the [MASK] mill", return_tensors="pt")
    assert loaded(**ids).logits.isfinite().all()
    assert not (tmp_path / "run" / "tokens").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"optimiser": {"steps": 8, "accumulation": 2}},
        {
            "optimiser": {"steps": None, "epochs": 0.5, "layer_decay": 0.7},
            "data": {"segments": 2},
            "masking": {"strategy": "word_span", "hide_keys": True},
        },
        {
            "model": {"family": "narrows-funnel", "config": FUNNEL},
            "optimiser": {"steps": 8, "accumulation": 2, "layer_decay": 0.7},
            "data": {"segments": 2},
            "masking": {"hide_keys": True},
        },
    ],
    ids=["single tokens", "pairs and spans", "funnel"],
)
def test_a_run_stopped_twice_equals_the_straight_one(
    changes, pretraining_recipe, text_folder, tmp_path, stop_at
) -> None:
    recipe = pretraining_recipe(**changes, evaluate_every=3)
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    assert train(recipe, data=text_folder, output=straight, quiet=True) == straight / "model"
    for step in (1, 4):
        stop_at(step)
        assert train(recipe, data=text_folder, output=stopped, quiet=True) is None
        assert last_checkpoint(stopped) == str(stopped / f"checkpoint-{step + 1}")
    stop_at(None)
    assert train(recipe, data=text_folder, output=stopped, quiet=True) == stopped / "model"
    expected, found = _weights(straight), _weights(stopped)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)


@pytest.mark.parametrize(
    "changes",
    [{}, {"model": {"family": "narrows-funnel", "config": FUNNEL}, "masking": {"hide_keys": True}}],
    ids=["bert", "funnel"],
)
def test_a_gradient_step_does_not_depend_on_how_the_batch_is_split(
    changes, pretraining_recipe, text_folder, tmp_path
) -> None:
    trainer = build_run(pretraining_recipe(**changes), data=text_folder, output=tmp_path, quiet=True).trainer
    model = trainer.model.eval()  # type: ignore[union-attr]
    batch = trainer._collate([trainer.train_dataset[Item(1, row)] for row in range(6)])  # type: ignore[index]
    # With other numbers of predicted tokens in the parts.
    batch["labels"][0, :20] = IGNORED

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


def test_a_run_goes_on_from_another_ones_model(pretraining_recipe, text_folder, tmp_path) -> None:
    first = pretraining_recipe(name="first", optimiser={"steps": 4}, data={"tune": []})
    train(first, data=text_folder, output=tmp_path / "first", quiet=True)
    recipe = pretraining_recipe(
        model={"checkpoint": "first/model", "family": None, "config": {}, "tokenizer": None},
        data={"tune": [], "tune_share": 0.2},
        optimiser={"steps": 2, "dtype": "bfloat16", "gradient_checkpointing": True},
    )
    run = build_run(recipe, data=text_folder, output=tmp_path / "second", quiet=True, runs=tmp_path)
    start = _weights(tmp_path / "first")
    found = run.trainer.model.state_dict()
    assert all(torch.equal(found[name], tensor) for name, tensor in start.items())
    model = train(recipe, data=text_folder, output=tmp_path / "second", quiet=True, runs=tmp_path)
    assert model is not None
    assert not all(torch.equal(tensor, start[name]) for name, tensor in _weights(tmp_path / "second").items())


@pytest.mark.parametrize(
    ("family", "config"),
    [
        ("distilbert", {"dim": 24, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": 64}),
        ("electra", {"embedding_size": 16, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}),
        ("narrows-funnel", FUNNEL),
        ("funnel", {"block_sizes": [1, 1], "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 32}),
        ("modernbert", {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}),
    ],
)
def test_other_families_train(family, config, pretraining_recipe, text_folder, tmp_path) -> None:
    recipe = pretraining_recipe(optimiser={"steps": 2}, evaluate_every=2)
    recipe = recipe.model_copy(update={"model": recipe.model.model_copy(update={"family": family, "config": config})})
    model = train(recipe, data=text_folder, output=tmp_path, quiet=True)
    assert json.loads((model / "config.json").read_text())["model_type"] == family


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"position_type": "absolute", "max_position_embeddings": 32},
        {"pooling_type": "top_attention", "separate_cls": False, "pool_q_only": False},
        {"block_sizes": [4], "block_repeats": None, "num_decoder_layers": 0},
        {"lm_head_transform": True, "d_embed": 16},
    ],
)
def test_a_funnel_begins_without_knowledge_and_learns(changes, pretraining_recipe, text_folder, tmp_path) -> None:
    recipe = pretraining_recipe(
        model={"family": "narrows-funnel", "config": {**FUNNEL, **changes}}, masking={"hide_keys": True}
    )
    run = build_run(recipe, data=text_folder, output=tmp_path / "before", quiet=True)
    before = run.trainer.evaluate()
    model = run.trainer.model
    assert abs(before["eval_loss"] / math.log(model.config.vocab_size) - 1) < 0.2
    assert (model.config.hidden_dropout, model.config.attention_dropout) == (0.1, 0.1)
    assert train(recipe, data=text_folder, output=tmp_path / "run", quiet=True) is not None
    losses = [entry["eval_loss"] for entry in _log(tmp_path / "run") if "eval_loss" in entry]
    assert losses[-1] < 0.9 * before["eval_loss"]


@torch.no_grad()
def test_every_layout_of_the_shipped_sweep_begins_near_ln_v(tiny_bert) -> None:
    path = Path(__file__).resolve().parents[3] / "recipes" / "sweeps" / "funnel-layouts.yaml"
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    # What is asked for is not what is seen.
    ids, labels = torch.randint(5, len(tokenizer), (2, 4, 64), generator=torch.Generator().manual_seed(0))
    cells = cells_of(load_sweep(path), path)
    assert len(cells) == 12
    for cell in cells:
        torch.manual_seed(0)
        model = AutoModelForMaskedLM.from_config(build_config(cell.recipe, tokenizer)).eval()
        loss = float(model(ids, labels=labels).loss)
        assert abs(loss / math.log(len(tokenizer)) - 1) < 0.2, cell.recipe.name


def test_a_preset_is_a_family_and_its_sizes(pretraining_recipe, text_folder, tmp_path) -> None:
    fields = {"n_head": 3, "d_head": 8, "d_inner": 32, "num_decoder_layers": 1}
    recipe = pretraining_recipe(optimiser={"steps": 2}, evaluate_every=2)
    section = recipe.model.model_copy(update={"family": None, "preset": "B2-1x2H24", "config": fields})
    recipe = recipe.model_copy(update={"model": section})
    model = train(recipe, data=text_folder, output=tmp_path, quiet=True)
    config = json.loads((model / "config.json").read_text())
    assert (config["model_type"], config["block_sizes"], config["block_repeats"]) == ("narrows-funnel", [2, 1], [1, 2])
    assert (config["d_model"], config["d_inner"], config["mask_token_id"] is not None) == (24, 32, True)


@pytest.mark.parametrize(("processes", "accumulation"), [(1, 1), (2, 1), (3, 2)])
@pytest.mark.parametrize("given", [{"steps": 6}, {"steps": None, "epochs": 2.0}])
def test_the_steps_of_several_processes_are_those_of_their_shares(
    given, processes, accumulation, pretraining_recipe, text_folder, tiny_bert, tmp_path
) -> None:
    recipe = pretraining_recipe(optimiser={**given, "accumulation": accumulation})
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    made = prepare(recipe, tokenizer, data=text_folder, folder=tmp_path, tunes=False, processes=processes)
    shares = [BatchSamplerShard(made.batches, num_processes=processes, process_index=n) for n in range(processes)]
    assert {math.ceil(len(share) / accumulation) for share in shares} == {made.plan.steps}


def test_a_plan_counts(pretraining_recipe, text_folder) -> None:
    plan = plan_run(pretraining_recipe(optimiser={"steps": None, "epochs": 3, "accumulation": 2}), data=text_folder)
    assert plan.tokens == plan.rows * 32 and plan.rows > 60
    assert plan.steps == -(-(3 * plan.rows // 8) // 2)
    assert plan_run(pretraining_recipe(), data=text_folder).steps == 30
    once = plan_run(pretraining_recipe(data={"train": [{"file": "train-1.txt"}]}), data=text_folder)
    twice = plan_run(pretraining_recipe(data={"train": [{"file": "train-1.txt"}] * 2}), data=text_folder)
    assert twice.rows in (2 * once.rows, 2 * once.rows + 1)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"model": {"family": "berd"}}, "expected a model type as model.family, got 'berd'; name one such as bert"),
        (
            {"model": {"family": "gpt2", "config": {}}},
            "expected a family with a masked language model, got gpt2; choose",
        ),
        (
            {"model": {"config": {"hiden_size": 8}}},
            "expected fields of BertConfig in model.config, got 'hiden_size'; did you mean 'hidden_size'?",
        ),
        (
            {"model": {"config": {"zzzz": 8}}},
            "expected fields of BertConfig in model.config, got 'zzzz'; see the config",
        ),
        ({"model": {"config": {"vocab_size": 8}}}, "expected no model.config.vocab_size, which the tokenizer decides"),
        (
            {"model": {"config": {"hidden_size": 10, "num_attention_heads": 3}}},
            r"expected values in model.config that BertConfig takes, got an error from it \(.*\); mend them",
        ),
        (
            {"model": {"config": {"hidden_size": "wide"}}},
            r"expected values in model.config that BertConfig takes, got an error from it \(.*\); mend them",
        ),
        *(
            (
                {"model": {"config": fields}},
                r"expected values in model.config that BertConfig takes, got an error from it \(.*\); mend them",
            )
            for fields in ({"hidden_act": "nothing"}, {"hidden_size": -4, "num_attention_heads": 1})
        ),
        ({"model": {"config": {"max_position_embeddings": 16}}}, "expected data.length of at most the model's 16 pos"),
        (
            {"model": {"attention": "fast"}},
            "expected an attention that bert has, got 'fast' .*; leave model.attention out",
        ),
        (
            {"model": {"family": "modernvbert", "config": {}}},
            "expected a model with dropout for optimiser.dropout 0.1, got",
        ),
        ({"model": {"family": None, "preset": "B2", "config": {}}}, "expected a name such as B4-4-4H768, .* got 'B2'"),
        (
            {"model": {"family": None, "preset": "B2H64", "config": {"d_modl": 3}}},
            "expected fields of FunnelConfig in model.config, got 'd_modl'; did you mean 'd_model'?",
        ),
        ({"model": {"tokenizer": "nowhere"}}, "expected a checkpoint's folder or a hub id, got 'nowhere'"),
        (
            {"data": {"train": [{"file": "none-*.txt"}]}},
            r"expected data at .*none-\*\.txt, got nothing there; pass --data",
        ),
        (
            {"data": {"length": 60, "train": [{"file": "tune.txt"}], "tune": [], "tune_share": 1e-9}},
            "expected held-out",
        ),
        (
            {"optimiser": {"steps": None, "epochs": 0.01}},
            "expected at least one batch of 8 rows, got .* rows and too few",
        ),
        (
            {"model": {"family": "distilbert", "config": {"max_position_embeddings": 64}}, "data": {"segments": 2}},
            "expected a model with segments for data.segments 2, got distilbert; make it 1",
        ),
        (
            {"model": {"family": "funnel", "config": {"block_sizes": [1, 1]}}, "masking": {"hide_keys": True}},
            "expected a model with a mask of keys alone for masking.hide_keys, got funnel, which would not pool",
        ),
    ],
)
def test_what_cannot_be_is_said(changes, text, pretraining_recipe, text_folder, tmp_path) -> None:
    recipe = pretraining_recipe(**changes)
    with pytest.raises((UsageError, ConversionError), match=text):
        build_run(recipe, data=text_folder, output=tmp_path, quiet=True)


def test_an_encoder_goes_on_whole_or_not_at_all(pretraining_recipe, text_folder, tiny_bert, tmp_path, capfd) -> None:
    """A head that a checkpoint lacks is new; of an encoder transformers would draw what is missing."""
    model = BertModel.from_pretrained(tiny_bert)
    state = model.state_dict()
    parts = {"bare": state, "part": {name: tensor for name, tensor in state.items() if "layer.0.attention" not in name}}
    for name, tensors in parts.items():
        model.save_pretrained(tmp_path / name, state_dict=tensors)
        AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(tmp_path / name)

    def build(name: str):
        section = {"checkpoint": str(tmp_path / name), "family": None, "config": {}, "tokenizer": None}
        return build_run(
            pretraining_recipe(model=section), data=text_folder, output=tmp_path / f"{name}-run", quiet=True
        )

    capfd.readouterr()
    built = build("bare").trainer.model.state_dict()  # pyright: ignore
    name = "encoder.layer.0.attention.self.query.weight"
    assert torch.equal(built[f"bert.{name}"], state[name])
    assert "MISSING" not in capfd.readouterr().err
    with pytest.raises(ConversionError, match="expected all weights of the encoder in .*part, got none that fits bert"):
        build("part")


def test_the_shipped_recipe_reads_ones_own_text(text_folder, tiny_bert) -> None:
    path = Path(__file__).resolve().parents[3] / "recipes" / "pretrain-bert-small.yaml"
    own = {
        "model.tokenizer": str(tiny_bert),
        "data.train": "[{file: 'train-*.txt'}]",
        "data.tune": "[{file: tune.txt}]",
    }
    plan = plan_run(load_recipe(path, settings=own), data=text_folder)
    assert plan.rows > 10 and plan.tokens == 128 * plan.rows and plan.steps == 1500


def test_a_tokenizer_without_a_mask_is_refused(pretraining_recipe, text_folder, tiny_seq2seq) -> None:
    with pytest.raises(
        UsageError, match="expected a tokenizer with a cls_token in .*, got one without; choose another"
    ):
        plan_run(pretraining_recipe(model={"tokenizer": str(tiny_seq2seq("t5"))}), data=text_folder)


def test_a_model_of_bytes_needs_no_tokenizers_folder(pretraining_recipe, text_folder, tiny_bert, tmp_path) -> None:
    recipe = pretraining_recipe(
        model={"tokenizer": "bytes"}, masking={"strategy": "word_span"}, optimiser={"steps": 2}, evaluate_every=2
    )
    model = train(recipe, data=text_folder, output=tmp_path / "run", quiet=True)
    tokenizer = AutoTokenizer.from_pretrained(model)
    assert tokenizer("é <s>")["input_ids"] == [257, *"é <s>".encode(), 258]
    config = AutoModelForMaskedLM.from_pretrained(model).config
    assert (config.vocab_size, config.pad_token_id) == (260, 256)
    # A folder of that name is still to be had.
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(tmp_path / "runs" / "bytes")
    for name, size in (("bytes", 260), ("./bytes", len(AutoTokenizer.from_pretrained(tiny_bert)))):
        named = pretraining_recipe(model={"tokenizer": name})
        assert len(build_tokenizer(named, data=text_folder, runs=tmp_path / "runs")) == size
