"""Training and the heads: losses, gradients, checkpointing, dropout, initial weights."""

import pytest
import torch
from torch import Tensor

from narrows.errors import UsageError
from narrows.mulla import (
    MullaT5EncoderModel,
    MullaT5ForConditionalGeneration,
    MullaT5ForEmbedding,
    MullaT5ForQuestionAnswering,
    MullaT5ForSequenceClassification,
)


@pytest.fixture
def collated(together):
    def collate(rows: list[dict[str, list[int]]]) -> dict[str, Tensor]:
        batch = together([torch.tensor(row["input_ids"]) for row in rows], "right")
        labels = torch.full((len(rows), max(len(row["labels"]) for row in rows)), -100)
        for number, row in enumerate(rows):
            labels[number, : len(row["labels"])] = torch.tensor(row["labels"])
        return {**batch, "labels": labels}

    return collate


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("chunk", [0, 1, 7, 50])
def test_feed_forward_in_chunks_or_run_again_equals_whole(chunk, recompute, build, ids, together):
    inputs = together(ids(23, 9), "right")
    options = {"encoder_feed_forward_chunk": chunk, "encoder_feed_forward_recompute": recompute}
    results = []
    for model in (build(MullaT5EncoderModel), build(MullaT5EncoderModel, **options)):
        states = model(**inputs).last_hidden_state
        (states * torch.linspace(-1, 1, states.numel()).view_as(states)).sum().backward()
        results.append([states.detach(), *(parameter.grad for parameter in model.parameters())])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5 * max(1.0, float(other.abs().max())), rtol=0)


@pytest.mark.parametrize("checkpointing", [None, False, True], ids=["alone", "not-reentrant", "reentrant"])
def test_running_the_feed_forward_again_draws_the_same_dropout(checkpointing, build, ids, together):
    inputs, gradients = together(ids(23, 9), "left"), []
    for recompute in (False, True):
        model = build(
            MullaT5EncoderModel,
            dropout_rate=0.2,
            encoder_feed_forward_chunk=7,
            encoder_feed_forward_recompute=recompute,
        ).train()
        if recompute and checkpointing is not None:
            model.activation_checkpointing_enable({"use_reentrant": checkpointing})
        torch.manual_seed(5)
        model(**inputs).last_hidden_state.square().sum().backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        assert other.any()
        torch.testing.assert_close(one, other, atol=1e-5 * max(1.0, float(other.abs().max())), rtol=0)


def test_running_the_feed_forward_again_keeps_none_of_its_inner_states(build, ids):
    inner = []
    for recompute in (False, True):
        model, shapes = build(MullaT5EncoderModel, encoder_feed_forward_recompute=recompute), []

        def note(tensor, shapes=shapes):
            shapes.append(tuple(tensor.shape))
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            model(ids(60)[0][None])
        inner.append(shapes.count((1, 60, model.config.d_ff)))
    assert inner[0] > 0 and inner[1] == 0


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("changes", [{"level_scales": True}, {"variant": "fixed"}], ids=str)
def test_checkpointing_changes_no_gradient_dropout_included(reentrant, changes, build, ids, together):
    inputs, labels = together(ids(23, 9), "left"), torch.stack(ids(6, 6, seed=1))
    gradients = []
    for checkpointing in (False, True):
        model = build(MullaT5ForConditionalGeneration, dropout_rate=0.2, **changes).train()
        if checkpointing:
            model.activation_checkpointing_enable({"use_reentrant": reentrant})
            assert model.encoder.block[0].gradient_checkpointing and model.decoder.block[0].gradient_checkpointing
        torch.manual_seed(5)
        model(**inputs, labels=labels, use_cache=False).loss.backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, gradient in gradients[0].items():
        assert gradient is not None and gradient.any() or "level_scales" in name, name
        largest = max(1.0, float(gradient.abs().max()))
        torch.testing.assert_close(gradients[1][name], gradient, atol=1e-5 * largest, rtol=0)


def test_dropout_reaches_the_attention_weights_in_training_only(build, ids, together):
    model, inputs = build(MullaT5EncoderModel, dropout_rate=0.5), together(ids(30), "right")
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    with torch.no_grad():
        assert torch.equal(model(**inputs)[0], model(**inputs)[0])
        model.train()
        assert not torch.equal(model(**inputs)[0], model(**inputs)[0])


def test_a_step_does_not_depend_on_how_the_batch_is_split(build, ids, together):
    rows, labels = ids(23, 9, 15), torch.stack(ids(6, 6, 6, seed=1))
    labels[0, 2:] = -100
    count = (labels != -100).sum()
    model = build(MullaT5ForConditionalGeneration)
    assert model.accepts_loss_kwargs
    whole = model(**together(rows, "right"), labels=labels)
    torch.testing.assert_close(
        whole.loss, model(**together(rows, "right"), labels=labels, num_items_in_batch=count).loss
    )
    parts = sum(
        model(row[None], labels=label[None], num_items_in_batch=count).loss
        for row, label in zip(rows, labels, strict=True)
    )
    torch.testing.assert_close(parts, whole.loss, atol=1e-5, rtol=0)
    ignored = model(rows[0][None], labels=torch.full((1, 3), -100)).loss
    assert float(ignored.detach()) == 0.0


def test_accumulation_changes_no_step_of_transformers_trainer(tmp_path, build, ids, collated):
    from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments

    rows = zip(ids(23, 9, 15, 30), ids(2, 6, 1, 4, seed=1), strict=True)
    data = [{"input_ids": text.tolist(), "labels": target.tolist()} for text, target in rows]
    trained = []
    for size, accumulation in ((4, 1), (1, 4)):
        model = build(MullaT5ForConditionalGeneration, dropout_rate=0.0)
        arguments = Seq2SeqTrainingArguments(
            str(tmp_path),
            per_device_train_batch_size=size,
            gradient_accumulation_steps=accumulation,
            gradient_checkpointing=accumulation > 1,
            max_steps=2,
            learning_rate=1e-2,
            optim="sgd",
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        Seq2SeqTrainer(model, arguments, train_dataset=data, data_collator=collated).train()
        trained.append({name: parameter.detach() for name, parameter in model.named_parameters()})
    fresh = dict(build(MullaT5ForConditionalGeneration).named_parameters())
    for name, parameter in trained[0].items():
        torch.testing.assert_close(trained[1][name], parameter, atol=1e-6, rtol=0)
        assert not torch.equal(parameter, fresh[name])


@pytest.mark.parametrize("kind", [MullaT5ForQuestionAnswering, MullaT5ForSequenceClassification])
def test_heads_divide_by_all_examples_of_a_step(kind, build, ids, together):
    rows, model = ids(23, 9, 15), build(kind, num_labels=3)
    names = ("start_positions", "end_positions") if kind is MullaT5ForQuestionAnswering else ("labels",)
    labels = {name: torch.tensor([2, 1, 0]) for name in names}
    whole = model(**together(rows, "right"), **labels).loss
    parts = sum(
        model(
            row[None], **{name: value[number : number + 1] for name, value in labels.items()}, num_items_in_batch=3
        ).loss
        for number, row in enumerate(rows)
    )
    torch.testing.assert_close(parts, whole, atol=1e-5, rtol=0)


@pytest.mark.parametrize("side", ["right", "left", "scattered"])
def test_heads_see_no_padding(side, build, ids, together):
    rows = ids(23, 9)
    inputs = together(rows, side)
    for kind, field in (
        (MullaT5ForEmbedding, "pooler_output"),
        (MullaT5ForSequenceClassification, "logits"),
        (MullaT5ForQuestionAnswering, "start_logits"),
    ):
        model = build(kind)
        with torch.no_grad():
            got = getattr(model(**inputs), field)
            for number, row in enumerate(rows):
                alone = getattr(model(row[None]), field)[0]
                real = inputs["attention_mask"][number].bool()
                ours = got[number][real] if field == "start_logits" else got[number]
                torch.testing.assert_close(ours, alone, atol=1e-5, rtol=0)


def test_one_label_is_a_score(build, ids):
    model = build(MullaT5ForSequenceClassification, num_labels=1)
    outputs = model(ids(9)[0][None], labels=torch.tensor([0.5]))
    torch.testing.assert_close(outputs.loss, (outputs.logits[0, 0] - 0.5) ** 2)
    with pytest.raises(
        UsageError, match="`problem_type` must be single_label_classification or regression, got 'multi_"
    ):
        build(MullaT5ForSequenceClassification, problem_type="multi_label_classification")


def test_a_scale_a_level_starts_at_one_and_learns(build, ids):
    rows = torch.stack(ids(60, 60))
    plain, scaled = (build(MullaT5EncoderModel, level_scales=scales, max_level_scales=2) for scales in (False, True))
    scaled.load_state_dict(plain.state_dict(), strict=False)
    assert torch.equal(scaled.encoder.level_scales, torch.ones(2))
    states = scaled(rows).last_hidden_state
    assert torch.equal(states, plain(rows).last_hidden_state)
    states.square().sum().backward()
    # 60 tokens make levels of 60, 20, 7 and 3 slots: the last three share a scale.
    assert scaled.encoder.level_scales.grad.all()
    with torch.no_grad():
        scaled.encoder.level_scales[1] = 0.0
        assert not torch.equal(scaled(rows).last_hidden_state, states)


def test_fresh_weights_have_the_spread_that_t5_gives_them(config):
    sizes = {"d_model": 400, "d_ff": 800, "d_kv": 50, "initializer_factor": 2.0}
    model = MullaT5ForQuestionAnswering(config(**sizes))
    decoder = MullaT5ForConditionalGeneration(config(**sizes)).decoder
    attention, feed_forward = model.encoder.block[1].layer[0].SelfAttention, model.encoder.block[1].layer[1]
    expected = {
        model.shared.weight: 2.0,
        attention.q.weight: 2.0 * (400 * 50) ** -0.5,
        attention.k.weight: 2.0 * 400**-0.5,
        attention.v.weight: 2.0 * 400**-0.5,
        attention.o.weight: 2.0 * 200**-0.5,
        feed_forward.DenseReluDense.wi_1.weight: 2.0 * 400**-0.5,
        feed_forward.DenseReluDense.wo.weight: 2.0 * 800**-0.5,
        model.qa_outputs.weight: 2.0 * 400**-0.5,
        decoder.block[1].layer[1].EncDecAttention.k.weight: 2.0 * 400**-0.5,
    }
    for weight, spread in expected.items():
        assert abs(float(weight.detach().std()) / spread - 1) < 0.1
    table = model.encoder.relative_attention_bias[0].weight.detach()
    assert abs(float(table.std()) / (2.0 * 400**-0.5) - 1) < 0.4
    assert torch.equal(model.encoder.final_layer_norm.weight, torch.full((400,), 2.0))
    assert not model.qa_outputs.bias.any()
