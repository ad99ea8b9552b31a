"""The models as users of transformers meet them: padding, batches, dtypes, checkpointing, files, losses, generation."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import (
    AutoModel,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTextEncoding,
)

import narrows
from narrows.errors import UsageError
from narrows.mulla import (
    MullaT5Config,
    MullaT5EncoderModel,
    MullaT5ForConditionalGeneration,
    MullaT5ForEmbedding,
    MullaT5ForQuestionAnswering,
    MullaT5ForSequenceClassification,
)

MODELS = [
    MullaT5EncoderModel,
    MullaT5ForConditionalGeneration,
    MullaT5ForEmbedding,
    MullaT5ForQuestionAnswering,
    MullaT5ForSequenceClassification,
]
VOCABULARY = 61


def config(**changes) -> MullaT5Config:
    sizes = {
        "vocab_size": VOCABULARY,
        "d_model": 24,
        "d_kv": 6,
        "d_ff": 40,
        "num_layers": 2,
        "num_decoder_layers": 3,
        "num_heads": 4,
        "relative_attention_num_buckets": 12,
        "relative_attention_max_distance": 20,
        "local_radius": 4,
        "pooling_rate": 3,
    }
    return MullaT5Config(**{**sizes, **changes})


def build(kind, *, seed: int = 0, **changes):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = kind(config(**changes)).eval()
        for name, parameter in model.named_parameters():
            if "relative_attention_bias" in name:
                torch.nn.init.normal_(parameter, std=0.8)
    return model


def ids(*lengths: int, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(2, VOCABULARY, (length,), generator=generator) for length in lengths]


def together(rows: list[Tensor], side: str) -> dict[str, Tensor]:
    length = max(len(row) for row in rows) + 2
    tokens, mask = torch.full((len(rows), length), 7), torch.zeros(len(rows), length, dtype=torch.long)
    for number, row in enumerate(rows):
        places = {"right": range(len(row)), "left": range(length - len(row), length)}.get(side)
        if places is None:
            generator = torch.Generator().manual_seed(number)
            places = torch.randperm(length, generator=generator)[: len(row)].sort().values.tolist()
        tokens[number, list(places)], mask[number, list(places)] = row, 1
    return {"input_ids": tokens, "attention_mask": mask}


@pytest.mark.parametrize("variant", ["dynamic", "fixed"])
@pytest.mark.parametrize("side", ["right", "left", "scattered"])
def test_a_text_alone_is_the_same_as_in_a_batch(side, variant):
    model, rows = build(MullaT5EncoderModel, variant=variant), ids(37, 5, 0, 1, 37)
    inputs = together(rows, side)
    with torch.no_grad():
        states = model(**inputs).last_hidden_state
        for number, row in enumerate(rows):
            alone = model(row[None]).last_hidden_state[0]
            got = states[number][inputs["attention_mask"][number].bool()]
            torch.testing.assert_close(got, alone, atol=1e-5, rtol=0)
    assert torch.equal(states[inputs["attention_mask"] == 0].abs().sum(), torch.tensor(0.0))


def test_what_stands_at_padding_changes_nothing_even_nan():
    model, inputs = build(MullaT5EncoderModel), together(ids(20, 9), "left")
    embeddings, mask = model.shared(inputs["input_ids"]).detach(), inputs["attention_mask"]
    spoiled = embeddings.masked_fill(mask[:, :, None] == 0, float("nan")).requires_grad_()
    states = model(inputs_embeds=spoiled, attention_mask=mask).last_hidden_state
    assert torch.equal(states, model(**inputs).last_hidden_state)
    states.square().sum().backward()
    assert torch.isfinite(spoiled.grad).all() and not spoiled.grad[mask == 0].any()
    assert all(torch.isfinite(p.grad).all() for p in model.encoder.block.parameters())


@settings(max_examples=12)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=4),
    st.sampled_from(["right", "left", "scattered"]),
    st.sampled_from([{}, {"level_scales": True}, {"variant": "fixed", "num_levels": 2}]),
)
def test_generated_text_does_not_depend_on_the_batch(lengths, side, changes):
    model, rows = build(MullaT5ForConditionalGeneration, tie_word_embeddings=False, **changes), ids(*lengths)
    written = model.generate(**together(rows, side), max_new_tokens=5, min_new_tokens=5)
    for number, row in enumerate(rows):
        if len(row):
            assert torch.equal(written[number], model.generate(row[None], max_new_tokens=5, min_new_tokens=5)[0])


def test_an_empty_batch_and_empty_rows_pass():
    model = build(MullaT5EncoderModel)
    assert model(torch.zeros(0, 9, dtype=torch.long)).last_hidden_state.shape == (0, 9, 24)
    assert model(torch.zeros(3, 0, dtype=torch.long)).last_hidden_state.shape == (3, 0, 24)
    embedded = build(MullaT5ForEmbedding)(torch.ones(2, 4, dtype=torch.long), torch.zeros(2, 4)).pooler_output
    assert torch.equal(embedded, torch.zeros(2, 24))


@pytest.mark.parametrize("variant", ["dynamic", "fixed"])
def test_the_backends_agree(variant):
    inputs, states = together(ids(40, 11), "left"), {}
    for backend in ("reference", "tiled", "auto"):
        with torch.no_grad():
            states[backend] = build(MullaT5EncoderModel, variant=variant, mulla_backend=backend)(**inputs)[0]
    torch.testing.assert_close(states["tiled"], states["reference"], atol=1e-5, rtol=0)
    assert torch.equal(states["auto"], states["tiled"])


@pytest.mark.parametrize("chunk", [1, 7, 50])
def test_feed_forward_in_chunks_equals_whole(chunk):
    inputs = together(ids(23, 9), "right")
    whole, parts = (build(MullaT5EncoderModel, encoder_feed_forward_chunk=size) for size in (0, chunk))
    results = []
    for model in (whole, parts):
        states = model(**inputs).last_hidden_state
        (states * torch.linspace(-1, 1, states.numel()).view_as(states)).sum().backward()
        results.append([states.detach(), *(parameter.grad for parameter in model.parameters())])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5 * max(1.0, float(other.abs().max())), rtol=0)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("changes", [{"level_scales": True}, {"variant": "fixed"}], ids=str)
def test_checkpointing_changes_no_gradient_dropout_included(reentrant, changes):
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


def test_dropout_reaches_the_attention_weights_in_training_only():
    model, inputs = build(MullaT5EncoderModel, dropout_rate=0.5), together(ids(30), "right")
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    with torch.no_grad():
        assert torch.equal(model(**inputs)[0], model(**inputs)[0])
        model.train()
        assert not torch.equal(model(**inputs)[0], model(**inputs)[0])


def test_bf16_is_close_to_fp32():
    inputs, labels = together(ids(40, 17), "left"), torch.stack(ids(6, 6, seed=1))
    model = build(MullaT5ForConditionalGeneration, tie_word_embeddings=False)
    with torch.no_grad():
        expected = model(**inputs, labels=labels)
        got = model.to(torch.bfloat16)(**inputs, labels=labels)
    assert got.logits.dtype == torch.bfloat16 and got.loss.dtype == torch.float32
    assert float((got.logits.float() - expected.logits).abs().max()) < 0.05 * float(expected.logits.abs().max())
    assert abs(float(got.loss - expected.loss)) < 0.02 * float(expected.loss)


def test_fp16_is_refused_with_the_reason():
    model, inputs = build(MullaT5EncoderModel), together(ids(9), "right")
    with (
        pytest.raises(UsageError, match=r"in bfloat16 or float32, got float16 by autocast, in which T5's unscaled"),
        torch.autocast("cpu", dtype=torch.float16),
    ):
        model(**inputs)
    with pytest.raises(
        UsageError, match=r"in bfloat16 or float32, got float16, in which T5's unscaled .* overflow; use"
    ):
        model.half()(**inputs)


@pytest.mark.parametrize("tied", [True, False])
def test_the_file_holds_each_table_once_and_ties_survive_it(tied, tmp_path):
    from safetensors.torch import load_file

    model = build(MullaT5ForConditionalGeneration, tie_word_embeddings=tied, level_scales=True)
    model.save_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert {"shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"} & set(
        stored
    ) == ({"shared.weight"} if tied else {"shared.weight", "lm_head.weight"})
    again, told = MullaT5ForConditionalGeneration.from_pretrained(tmp_path, output_loading_info=True)
    assert not told["missing_keys"] and not told["unexpected_keys"]
    assert again.shared.weight is again.encoder.embed_tokens.weight is again.decoder.embed_tokens.weight
    assert (again.lm_head.weight is again.shared.weight) == tied
    assert all(torch.equal(again.state_dict()[name], tensor) for name, tensor in model.state_dict().items())
    inputs = together(ids(23, 9), "left")
    assert torch.equal(*(each.generate(**inputs, max_new_tokens=5) for each in (model, again)))


@pytest.mark.parametrize("kind", MODELS)
def test_the_encoder_of_a_generator_is_the_encoder_of_any_head(kind, tmp_path):
    generator = build(MullaT5ForConditionalGeneration)
    generator.save_pretrained(tmp_path)
    model, told = kind.from_pretrained(tmp_path, output_loading_info=True)
    assert not told["unexpected_keys"]
    assert all(name.startswith(("qa_outputs.", "classification_head.")) for name in told["missing_keys"])
    inputs = together(ids(23, 9), "left")
    with torch.no_grad():
        assert torch.equal(model.encoder(**inputs)[0], generator.encoder(**inputs)[0])


def test_a_decoder_that_a_checkpoint_lacks_starts_as_t5_starts_it(tmp_path):
    build(MullaT5EncoderModel, d_model=400).save_pretrained(tmp_path)
    model, told = MullaT5ForConditionalGeneration.from_pretrained(tmp_path, output_loading_info=True)
    assert all(name.startswith("decoder.") for name in told["missing_keys"])
    weight = model.decoder.block[0].layer[1].EncDecAttention.k.weight.detach()
    assert abs(float(weight.std()) * 400**0.5 - 1) < 0.1


@pytest.mark.parametrize(
    ("auto", "kind"),
    [
        (AutoModel, MullaT5EncoderModel),
        (AutoModelForTextEncoding, MullaT5EncoderModel),
        (AutoModelForSeq2SeqLM, MullaT5ForConditionalGeneration),
        (AutoModelForQuestionAnswering, MullaT5ForQuestionAnswering),
        (AutoModelForSequenceClassification, MullaT5ForSequenceClassification),
    ],
)
def test_auto_classes_find_the_models(auto, kind, tmp_path):
    narrows.register_all()
    narrows.register_all()
    build(kind).save_pretrained(tmp_path)
    assert type(auto.from_pretrained(tmp_path)) is kind


@pytest.mark.parametrize("tied", [True, False])
def test_more_tokens_grow_every_table(tied):
    model = build(MullaT5ForConditionalGeneration, tie_word_embeddings=tied)
    before = model.shared.weight[:5].clone()
    model.resize_token_embeddings(70)
    assert len(model.shared.weight) == len(model.lm_head.weight) == model.config.vocab_size == 70
    assert model.shared.weight is model.encoder.embed_tokens.weight is model.decoder.embed_tokens.weight
    assert (model.lm_head.weight is model.shared.weight) == tied and torch.equal(model.shared.weight[:5], before)
    assert model(input_ids=torch.tensor([[69, 3]]), labels=torch.tensor([[69]])).logits.shape == (1, 1, 70)


def test_a_step_does_not_depend_on_how_the_batch_is_split():
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


def _collated(rows: list[dict[str, list[int]]]) -> dict[str, Tensor]:
    batch = together([torch.tensor(row["input_ids"]) for row in rows], "right")
    labels = torch.full((len(rows), max(len(row["labels"]) for row in rows)), -100)
    for number, row in enumerate(rows):
        labels[number, : len(row["labels"])] = torch.tensor(row["labels"])
    return {**batch, "labels": labels}


def test_accumulation_changes_no_step_of_transformers_trainer(tmp_path):
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
        Seq2SeqTrainer(model, arguments, train_dataset=data, data_collator=_collated).train()
        trained.append({name: parameter.detach() for name, parameter in model.named_parameters()})
    fresh = dict(build(MullaT5ForConditionalGeneration).named_parameters())
    for name, parameter in trained[0].items():
        torch.testing.assert_close(trained[1][name], parameter, atol=1e-6, rtol=0)
        assert not torch.equal(parameter, fresh[name])


@pytest.mark.parametrize("kind", [MullaT5ForQuestionAnswering, MullaT5ForSequenceClassification])
def test_heads_divide_by_all_examples_of_a_step(kind):
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
def test_heads_see_no_padding(side):
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


def test_one_label_is_a_score():
    model = build(MullaT5ForSequenceClassification, num_labels=1)
    outputs = model(ids(9)[0][None], labels=torch.tensor([0.5]))
    torch.testing.assert_close(outputs.loss, (outputs.logits[0, 0] - 0.5) ** 2)
    with pytest.raises(
        UsageError, match="`problem_type` must be single_label_classification or regression, got 'multi_"
    ):
        build(MullaT5ForSequenceClassification, problem_type="multi_label_classification")


def test_a_scale_a_level_starts_at_one_and_learns():
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


def test_fresh_weights_have_the_spread_that_t5_gives_them():
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


def test_hidden_states_are_those_of_all_layers_in_their_places():
    model, inputs = build(MullaT5EncoderModel), together(ids(20, 9), "left")
    outputs = model(**inputs, output_hidden_states=True)
    assert len(outputs.hidden_states) == 3 and torch.equal(outputs.hidden_states[-1], outputs.last_hidden_state)
    real = inputs["attention_mask"].bool()
    assert torch.equal(outputs.hidden_states[0][real], model.shared(inputs["input_ids"])[real])
    assert model(**inputs).hidden_states is None
    states, *_ = model(**inputs, return_dict=False)
    assert torch.equal(states, outputs.last_hidden_state)


def test_a_decoder_with_more_layers_than_the_encoder_generates_with_every_cache():
    model, inputs = build(MullaT5ForConditionalGeneration, tie_word_embeddings=False), together(ids(23, 9), "left")
    plain = model.generate(**inputs, max_new_tokens=8, use_cache=False)
    assert torch.equal(plain, model.generate(**inputs, max_new_tokens=8))
    assert torch.equal(plain, model.generate(**inputs, max_new_tokens=8, cache_implementation="static"))
    assert torch.equal(plain[:, :5], model.generate(**inputs, max_length=5, num_beams=1))


def test_the_decoder_shows_its_attention_when_the_encoder_has_run():
    model, inputs = build(MullaT5ForConditionalGeneration), together(ids(23, 9), "left")
    encoded = model.encoder(**inputs)
    start = {"attention_mask": inputs["attention_mask"], "decoder_input_ids": torch.zeros(2, 4, dtype=torch.long)}
    model.set_attn_implementation("eager")
    outputs = model(**start, encoder_outputs=encoded, output_attentions=True)
    assert [len(outputs.decoder_attentions), len(outputs.cross_attentions)] == [3, 3]
    same = model(**start, encoder_outputs=(encoded.last_hidden_state,))
    assert torch.equal(outputs.logits, same.logits)
    with pytest.raises(
        UsageError, match="`output_attentions` must be False for this encoder, .* got True; pass `encoder"
    ):
        model(**inputs, decoder_input_ids=start["decoder_input_ids"], output_attentions=True)


def test_used_wrongly():
    model, inputs = build(MullaT5ForConditionalGeneration), together(ids(9), "right")
    with pytest.raises(UsageError, match="expected decoder_input_ids, decoder_inputs_embeds or labels, got none; pass"):
        model(**inputs)
    with pytest.raises(UsageError, match="expected either input_ids or inputs_embeds, got neither; pass one of them"):
        model.encoder()
    with pytest.raises(UsageError, match="expected either input_ids or inputs_embeds, got both; pass one of them"):
        model.encoder(inputs["input_ids"], inputs_embeds=model.shared(inputs["input_ids"]))
    with pytest.raises(
        UsageError, match=r"`attention_mask` must be \[batch, length\] as the inputs, \[1, 11\], got \[1, 3"
    ):
        model.encoder(inputs["input_ids"], attention_mask=torch.ones(1, 3))
    for name in ("decoder_start_token_id", "pad_token_id"):
        with pytest.raises(
            UsageError, match=f"`{name}` must be set to make the decoder's input of labels, got None; T5's"
        ):
            build(MullaT5ForConditionalGeneration, **{name: None})(**inputs, labels=inputs["input_ids"])


def test_the_mechanism_is_there_without_transformers():
    code = "import sys, narrows.mulla; narrows.mulla.Pyramid; print('transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    with pytest.raises(AttributeError, match="module 'narrows.mulla' has no attribute 'Muller'"):
        _ = narrows.mulla.Muller
