"""The models as users of transformers meet them: padding, batches, dtypes, files, generation."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
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


@pytest.mark.parametrize("variant", ["dynamic", "fixed"])
@pytest.mark.parametrize("side", ["right", "left", "scattered"])
def test_a_text_alone_is_the_same_as_in_a_batch(side, variant, build, ids, together):
    model, rows = build(MullaT5EncoderModel, variant=variant), ids(37, 5, 0, 1, 37)
    inputs = together(rows, side)
    with torch.no_grad():
        states = model(**inputs).last_hidden_state
        for number, row in enumerate(rows):
            if not len(row):
                # A row without a token is padding in a batch; alone it is refused.
                continue
            alone = model(row[None]).last_hidden_state[0]
            got = states[number][inputs["attention_mask"][number].bool()]
            torch.testing.assert_close(got, alone, atol=1e-5, rtol=0)
    assert torch.equal(states[inputs["attention_mask"] == 0].abs().sum(), torch.tensor(0.0))


def test_what_stands_at_padding_changes_nothing_even_nan(build, ids, together):
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
def test_generated_text_does_not_depend_on_the_batch(build, ids, together, lengths, side, changes):
    model, rows = build(MullaT5ForConditionalGeneration, tie_word_embeddings=False, **changes), ids(*lengths)
    written = model.generate(**together(rows, side), max_new_tokens=5, min_new_tokens=5)
    for number, row in enumerate(rows):
        if len(row):
            assert torch.equal(written[number], model.generate(row[None], max_new_tokens=5, min_new_tokens=5)[0])


def test_an_empty_batch_and_rows_of_padding_pass(build):
    model = build(MullaT5EncoderModel)
    assert model(torch.zeros(0, 9, dtype=torch.long)).last_hidden_state.shape == (0, 9, 24)
    embedded = build(MullaT5ForEmbedding)(torch.ones(2, 4, dtype=torch.long), torch.zeros(2, 4)).pooler_output
    assert torch.equal(embedded, torch.zeros(2, 24))


@pytest.mark.parametrize("variant", ["dynamic", "fixed"])
def test_the_backends_agree(variant, build, ids, together):
    inputs, states = together(ids(40, 11), "left"), {}
    for backend in ("reference", "tiled", "auto"):
        with torch.no_grad():
            states[backend] = build(MullaT5EncoderModel, variant=variant, mulla_backend=backend)(**inputs)[0]
    torch.testing.assert_close(states["tiled"], states["reference"], atol=1e-5, rtol=0)
    assert torch.equal(states["auto"], states["tiled"])


def test_bf16_is_close_to_fp32(build, ids, together):
    inputs, labels = together(ids(40, 17), "left"), torch.stack(ids(6, 6, seed=1))
    model = build(MullaT5ForConditionalGeneration, tie_word_embeddings=False)
    with torch.no_grad():
        expected = model(**inputs, labels=labels)
        got = model.to(torch.bfloat16)(**inputs, labels=labels)
    assert got.logits.dtype == torch.bfloat16 and got.loss.dtype == torch.float32
    assert float((got.logits.float() - expected.logits).abs().max()) < 0.05 * float(expected.logits.abs().max())
    assert abs(float(got.loss - expected.loss)) < 0.02 * float(expected.loss)


def test_a_dtype_that_is_asked_for_is_that_of_every_weight(tmp_path, build):
    build(MullaT5ForConditionalGeneration).save_pretrained(tmp_path)
    for dtype in (torch.bfloat16, torch.float32):
        model = MullaT5ForConditionalGeneration.from_pretrained(tmp_path, dtype=dtype)
        assert {parameter.dtype for parameter in model.parameters()} == {dtype}


def test_fp16_is_refused_with_the_reason(build, ids, together):
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
def test_the_file_holds_each_table_once_and_ties_survive_it(tied, tmp_path, build, ids, together):
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
def test_the_encoder_of_a_generator_is_the_encoder_of_any_head(kind, tmp_path, build, ids, together):
    generator = build(MullaT5ForConditionalGeneration)
    generator.save_pretrained(tmp_path)
    model, told = kind.from_pretrained(tmp_path, output_loading_info=True)
    assert not told["unexpected_keys"]
    assert all(name.startswith(("qa_outputs.", "classification_head.")) for name in told["missing_keys"])
    inputs = together(ids(23, 9), "left")
    with torch.no_grad():
        assert torch.equal(model.encoder(**inputs)[0], generator.encoder(**inputs)[0])


def test_a_decoder_that_a_checkpoint_lacks_starts_as_t5_starts_it(tmp_path, build):
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
def test_auto_classes_find_the_models(auto, kind, tmp_path, build):
    narrows.register_all()
    narrows.register_all()
    build(kind).save_pretrained(tmp_path)
    assert type(auto.from_pretrained(tmp_path)) is kind


@pytest.mark.parametrize("tied", [True, False])
def test_more_tokens_grow_every_table(tied, build):
    model = build(MullaT5ForConditionalGeneration, tie_word_embeddings=tied)
    before = model.shared.weight[:5].clone()
    model.resize_token_embeddings(70)
    assert len(model.shared.weight) == len(model.lm_head.weight) == model.config.vocab_size == 70
    assert model.shared.weight is model.encoder.embed_tokens.weight is model.decoder.embed_tokens.weight
    assert (model.lm_head.weight is model.shared.weight) == tied and torch.equal(model.shared.weight[:5], before)
    assert model(input_ids=torch.tensor([[69, 3]]), labels=torch.tensor([[69]])).logits.shape == (1, 1, 70)


def test_hidden_states_are_those_of_all_layers_in_their_places(build, ids, together):
    model, inputs = build(MullaT5EncoderModel), together(ids(20, 9), "left")
    outputs = model(**inputs, output_hidden_states=True)
    assert len(outputs.hidden_states) == 3 and torch.equal(outputs.hidden_states[-1], outputs.last_hidden_state)
    real = inputs["attention_mask"].bool()
    assert torch.equal(outputs.hidden_states[0][real], model.shared(inputs["input_ids"])[real])
    assert model(**inputs).hidden_states is None
    states, *_ = model(**inputs, return_dict=False)
    assert torch.equal(states, outputs.last_hidden_state)


def test_a_decoder_with_more_layers_than_the_encoder_generates_with_every_cache(build, ids, together):
    model, inputs = build(MullaT5ForConditionalGeneration, tie_word_embeddings=False), together(ids(23, 9), "left")
    plain = model.generate(**inputs, max_new_tokens=8, use_cache=False)
    assert torch.equal(plain, model.generate(**inputs, max_new_tokens=8))
    assert torch.equal(plain, model.generate(**inputs, max_new_tokens=8, cache_implementation="static"))
    assert torch.equal(plain[:, :5], model.generate(**inputs, max_length=5, num_beams=1))


def test_the_decoder_shows_its_attention_when_the_encoder_has_run(build, ids, together):
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


def test_used_wrongly(build, ids, together):
    model, inputs = build(MullaT5ForConditionalGeneration), together(ids(9), "right")
    with pytest.raises(UsageError, match="expected decoder_input_ids, decoder_inputs_embeds or labels, got none; pass"):
        model(**inputs)
    with pytest.raises(UsageError, match=r"expected rows of at least one token, got an input of shape \[1, 0\]; leave"):
        model.encoder(torch.zeros(1, 0, dtype=torch.long))
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
