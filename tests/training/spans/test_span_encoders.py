"""Encoders that learn answer spans as they are: rows, losses, steps and runs, and what is saved."""

import json
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModelForQuestionAnswering,
    AutoTokenizer,
    BertForQuestionAnswering,
    FunnelForQuestionAnswering,
)
from transformers import FunnelConfig as TheirFunnelConfig

from narrows.data import read_squad
from narrows.errors import ConversionError, RecipeError, UsageError
from narrows.evaluation.run import evaluate_spans, load_span_model
from narrows.funnel import FunnelConfig
from narrows.funnel import FunnelForQuestionAnswering as OurFunnelForQuestionAnswering
from narrows.funnel.heads import FunnelForConditionalQuestionAnswering
from narrows.hf.trained_spans import TrainedSpans, trained_spans
from narrows.training.run import train
from narrows.training.spans.build import build_model, build_run, plan_run

HEADS = ["plain", "conditional"]


def _trainer(recipe, squad_folder, tmp_path) -> Any:
    return build_run(recipe, data=squad_folder, output=tmp_path, quiet=True).trainer


def test_rows_are_joined_as_the_tokenizer_joins_and_cover_every_token(
    encoder_recipe, squad_folder, tmp_path, tiny_funnel
) -> None:
    rows = _trainer(encoder_recipe(), squad_folder, tmp_path).train_dataset
    tokenizer = AutoTokenizer.from_pretrained(tiny_funnel)
    covered: dict[int, set[tuple[int, int]]] = {}
    whole = 0
    for index, feature in enumerate(rows.features):
        row, example = rows[index], rows.examples[feature.example]
        assert (row.token_type_ids[0], row.token_type_ids[1], row.token_type_ids[-1]) == (2, 0, 1)
        assert [row.input_ids[place] for place in row.passage] == feature.passage_ids
        covered.setdefault(feature.example, set()).update(feature.passage_offsets)
        if feature.answerable:
            left = feature.passage_offsets[row.start - row.passage.start][0]
            right = feature.passage_offsets[row.end - row.passage.start][1]
            assert example.context[left:right] == example.answers[0].text
        else:
            assert (row.start, row.end) == (0, 0)
        joined = tokenizer(example.question, example.context)
        if len(feature.passage_ids) == sum(side == 1 for side in joined.sequence_ids(0)):
            assert (row.input_ids, row.token_type_ids) == (joined["input_ids"], joined["token_type_ids"])
            whole += 1
    assert 0 < whole < len(rows.features)
    for number, example in enumerate(rows.examples):
        offsets = tokenizer(example.context, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        assert covered[number] == set(map(tuple, offsets))


def _of_one_length(trainer, rows: int) -> dict[str, torch.Tensor]:
    found: dict[int, list] = {}
    for row in trainer.train_dataset:
        group = found.setdefault(len(row.input_ids), [])
        group.append(row)
        if len(group) == rows:
            return trainer._collate(group)
    raise AssertionError


def _loss(trainer, batch, model=None) -> torch.Tensor:
    return trainer._objective(model or trainer.model.eval(), batch, trainer._objective.counts([batch]))


@torch.no_grad()
def test_the_loss_of_a_batch_is_that_of_transformers_bert(encoder_recipe, squad_folder, tmp_path, tiny_bert) -> None:
    trainer = _trainer(encoder_recipe(model={"checkpoint": str(tiny_bert)}), squad_folder, tmp_path)
    assert isinstance(trainer.model, BertForQuestionAnswering)
    # Theirs also asks whether padding is the answer.
    batch = _of_one_length(trainer, 4)
    labelled = {name: value for name, value in batch.items() if name != "p_mask"}
    torch.testing.assert_close(_loss(trainer, batch), trainer.model(**labelled).loss)
    single = [_loss(trainer, trainer._collate([trainer.train_dataset[number]])) for number in range(6)]
    several = trainer._collate([trainer.train_dataset[number] for number in range(6)])
    torch.testing.assert_close(_loss(trainer, several), torch.stack(single).mean())


@torch.no_grad()
def test_the_loss_of_a_batch_is_that_of_transformers_funnel(
    encoder_recipe, squad_folder, tmp_path, tiny_funnel
) -> None:
    trainer = _trainer(encoder_recipe(), squad_folder, tmp_path)
    config = FunnelConfig.from_pretrained(tiny_funnel, semantics="hf")
    sizes = ("vocab_size", "block_sizes", "num_decoder_layers", "d_model", "n_head", "d_head", "d_inner")
    theirs = FunnelForQuestionAnswering(TheirFunnelConfig(**{name: getattr(config, name) for name in sizes})).eval()
    ours = OurFunnelForQuestionAnswering(config).eval()
    for model in (theirs, ours):
        model.load_state_dict(trainer.model.state_dict())
    batch = _of_one_length(trainer, 4)
    labelled = {name: value for name, value in batch.items() if name != "p_mask"}
    torch.testing.assert_close(_loss(trainer, batch, ours), theirs(**labelled).loss, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_the_conditional_head_asks_within_the_passage_and_whether_it_answers(
    encoder_recipe, squad_folder, tmp_path
) -> None:
    trainer = _trainer(encoder_recipe(model={"head": "conditional"}), squad_folder, tmp_path)
    rows = [row for row in trainer.train_dataset if row.start == 0][:2]
    rows += [row for row in trainer.train_dataset if row.start > 0][:2]
    batch = trainer._collate(rows)
    for mask, row in zip(batch["p_mask"], rows, strict=True):
        assert (mask == 0).nonzero()[:, 0].tolist() == [0, *row.passage]
    loss = _loss(trainer, batch)
    inputs = {
        name: batch[name] for name in batch if name in ("input_ids", "attention_mask", "token_type_ids", "p_mask")
    }
    labels = {"start_positions": batch["start_positions"], "end_positions": batch["end_positions"]}
    expected = trainer.model(**inputs, **labels, is_impossible=torch.tensor([1, 1, 0, 0])).loss
    torch.testing.assert_close(loss, expected)
    assert not torch.isclose(loss, trainer.model(**inputs, **labels, is_impossible=torch.tensor([0, 1, 0, 0])).loss)


@pytest.mark.parametrize("head", HEADS)
def test_a_gradient_step_does_not_depend_on_how_the_batch_is_split(
    head, encoder_recipe, squad_folder, tmp_path
) -> None:
    trainer = _trainer(encoder_recipe(model={"head": head}), squad_folder, tmp_path)
    model = trainer.model.eval()
    rows = sorted(trainer.train_dataset, key=lambda row: len(row.input_ids))[::7]
    assert len({len(row.input_ids) for row in rows}) > 3

    def gradients(parts):
        batches = [trainer._collate(part) for part in parts]
        counts = trainer._objective.counts(batches)
        model.zero_grad()
        for batch in batches:
            trainer._objective(model, batch, counts).backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    whole, split = gradients([rows]), gradients([rows[:1], rows[1:5], rows[5:]])
    assert whole.keys() == split.keys() == dict(model.named_parameters()).keys()
    for name, ours in whole.items():
        torch.testing.assert_close(ours, split[name], atol=1e-5, rtol=1e-4)


def test_layers_below_learn_at_lower_rates_through_blocks_and_decoder(encoder_recipe, squad_folder, tmp_path) -> None:
    recipe = encoder_recipe(model={"head": "conditional"}, optimiser={"layer_decay": 0.5, "learning_rate": 1.0})
    trainer = _trainer(recipe, squad_folder, tmp_path)
    groups = trainer.create_optimizer().param_groups
    rates = {id(parameter): group["lr"] for group in groups for parameter in group["params"]}
    found = {name: rates[id(parameter)] for name, parameter in trainer.model.named_parameters()}
    expected = {
        "funnel.embeddings.word_embeddings.weight": 0.5**4,
        "funnel.encoder.blocks.0.0.ffn.linear_1.weight": 0.5**3,
        "funnel.encoder.blocks.1.0.ffn.linear_1.weight": 0.5,
        "funnel.decoder.layers.0.ffn.linear_1.weight": 1.0,
        "answer_class.dense_0.weight": 1.0,
    }
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize("head", [pytest.param("plain", marks=pytest.mark.slow), "conditional"])
def test_a_run_stopped_twice_equals_the_straight_one(head, encoder_recipe, squad_folder, resumes_exactly) -> None:
    optimiser = {"accumulation": 2, "epochs": 0.7, "layer_decay": 0.75, "dropout": 0.1, "batch_rows": 4}
    recipe = encoder_recipe(model={"head": head}, optimiser=optimiser, evaluate_every=3)
    resumes_exactly(recipe, squad_folder, stops=(1, 3))


@pytest.mark.parametrize("head", [pytest.param("plain", marks=pytest.mark.slow), "conditional"])
def test_what_a_run_leaves_is_evaluated_as_it_was_trained(head, encoder_recipe, squad_folder, tmp_path) -> None:
    optimiser = {"epochs": 5, "dropout": 0.0, "learning_rate": 4e-3}
    recipe = encoder_recipe(model={"head": head}, optimiser=optimiser, evaluate_every=25)
    assert plan_run(recipe, data=squad_folder).steps <= 120
    folder = train(recipe, data=squad_folder, output=tmp_path, quiet=True)
    assert folder is not None
    log = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    losses = [entry["loss"] for entry in log if "loss" in entry]
    assert losses[-1] < losses[0] / 2
    tune = json.loads((tmp_path / "summary.json").read_text())["tune"]
    assert tune["eval_f1"] > 80
    # The best checkpoint is the model.
    assert tune["eval_f1"] == pytest.approx(max(entry["eval_f1"] for entry in log if "eval_f1" in entry))

    model, tokenizer = load_span_model(folder)
    assert isinstance(model, FunnelForConditionalQuestionAnswering) == (head == "conditional")
    assert trained_spans(model.config) == TrainedSpans(12, 24, 8, 4)
    assert tokenizer("a", "a")["token_type_ids"][0] == 2
    examples = list(read_squad(squad_folder / "tune.json"))
    found = evaluate_spans(folder, examples, predictions=tmp_path / "p.jsonl")
    assert (found.scores.f1, found.scores.exact) == pytest.approx((tune["eval_f1"], tune["eval_exact"]))
    assert found.scores.no_answer_accuracy == pytest.approx(tune["eval_no_answer_accuracy"])
    assert all(len(p.text.split()) <= 4 for p in found.predictions.values())
    # They are gone on with by the same model, and refused to another.
    again = evaluate_spans(folder, examples, predictions=tmp_path / "p.jsonl")
    assert again.predictions == found.predictions
    card = (folder / "README.md").read_text()
    assert "fine-tuned to answer with a span" in card and "eval_f1" in card and "- train: `train.json` (squad)" in card

    # A trained head goes on, whichever it is.
    run = build_run(
        encoder_recipe(model={"checkpoint": str(folder)}), data=squad_folder, output=tmp_path / "on", quiet=True
    )
    weights = load_file(folder / "model.safetensors")
    assert run.trainer.model is not None
    assert all(torch.equal(tensor, weights[name]) for name, tensor in run.trainer.model.state_dict().items())


def test_bfloat16_and_long_rows_of_a_funnel(encoder_recipe, squad_folder, tmp_path) -> None:
    # Its positions are relative: 512, of which its config speaks, are no limit.
    recipe = encoder_recipe(
        model={"head": "conditional"},
        data={"max_passage_tokens": 600},
        optimiser={"dtype": "bfloat16", "epochs": 0.2, "gradient_checkpointing": True},
    )
    run = build_run(recipe, data=squad_folder, output=tmp_path, quiet=True)
    assert run.trainer.train().training_loss > 0 and run.trainer.model is not None
    assert all(p.dtype == torch.float32 and p.isfinite().all() for p in run.trainer.model.parameters())


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert"])
def test_other_families_learn_too(kind, encoder_recipe, squad_folder, tmp_path, tiny_encoder) -> None:
    checkpoint = tiny_encoder(kind, labels=["a", "b", "c"])  # three classes before, a start and an end now
    recipe = encoder_recipe(model={"checkpoint": str(checkpoint)}, optimiser={"epochs": 0.2, "dropout": 0.0})
    folder = train(recipe, data=squad_folder, output=tmp_path, quiet=True)
    assert folder is not None
    model, _ = load_span_model(folder)
    theirs, info = AutoModelForQuestionAnswering.from_pretrained(folder, output_loading_info=True)
    assert type(model) is type(theirs) and not info["missing_keys"]
    examples = list(read_squad(squad_folder / "tune.json"))
    assert evaluate_spans(folder, examples).scores.total == len(examples)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"losses": {"kd": 1.0}, "teacher": "x"}, "expected 'model.split_layer' in r.yaml for 'teacher', which is of"),
        ({"tune": {"what": "layers"}}, "for 'tune.what', which is of DeFormers, got none; add it"),
        (
            {"model": {"head": "plain", "split_layer": 1}},
            "expected no 'model.head' in r.yaml beside 'model.split_layer', whose head is plain, got 'plain'; leave",
        ),
    ],
)
def test_keys_that_do_not_go_together(sections, message, encoder_recipe) -> None:
    with pytest.raises(RecipeError, match=message):
        encoder_recipe(**sections).check("r.yaml")


def test_models_and_data_that_cannot_be_trained(
    encoder_recipe, squad_folder, tmp_path, tiny_bert, tiny_seq2seq, tiny_encoder
) -> None:
    def build(**sections):
        return build_run(encoder_recipe(**sections), data=squad_folder, output=tmp_path, quiet=True)

    bert = str(tiny_bert)
    with pytest.raises(ConversionError, match="expected a Funnel of narrows for the conditional head, got .* 'bert'"):
        build(model={"checkpoint": bert, "head": "conditional"})
    with pytest.raises(
        ConversionError, match="expected an encoder of a family with a head for answer spans, got .* 'ber"
    ):
        build(model={"checkpoint": str(tiny_encoder("bert-generation"))})
    with pytest.raises(UsageError, match=r"expected a tokenizer that joins a pair as \[CLS\] question \[SEP\] pass"):
        build(model={"checkpoint": str(tiny_seq2seq("t5"))})
    with pytest.raises(
        UsageError, match="and 3 special tokens together of at most the 128 positions of .*, got 135; l"
    ):
        build(model={"checkpoint": bert}, data={"max_passage_tokens": 120})
    with pytest.raises(UsageError, match="expected an answer to each question, or that there is none, got neither for"):
        build(data={"train": [{"format": "pairs", "file": "pairs.json"}]})
    model, _ = build_model(bert, split_layer=2)
    model.save_pretrained(tmp_path / "split")
    AutoTokenizer.from_pretrained(bert).save_pretrained(tmp_path / "split")
    with pytest.raises(UsageError, match="expected 'model.split_layer' for the DeFormer .*split, got none; add it to"):
        build(model={"checkpoint": str(tmp_path / "split")})
