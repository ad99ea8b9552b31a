"""The models: what padding does (nothing), degenerate layouts, outputs, files and errors."""

import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional
from transformers import AutoModel

import narrows
from narrows.errors import UsageError
from narrows.funnel import FunnelBaseModel, FunnelModel

OPTIONS = [
    {},
    {"pooling_type": "max", "separate_cls": False, "pooling_size": 3},
    {"pooling_type": "top_attention", "block_repeats": [1, 2, 1], "decoder_repeats": [2]},
    {"pool_q_only": False, "attention_type": "factorized", "d_embed": 8},
    {"position_type": "absolute", "max_position_embeddings": 80},
]


def _real(outputs, mask):
    return outputs.last_hidden_state[mask.bool()]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("kind", [FunnelBaseModel, FunnelModel])
def test_a_text_alone_is_that_text_in_a_batch_at_every_length(kind, side, build, ids, together, segments):
    model = build(kind)
    rows = ids(*range(1, 65))
    batch = together(rows, side)
    with torch.no_grad():
        whole = model(**batch)
        for number, row in enumerate(rows):
            alone = model(row[None], token_type_ids=segments(row)[None])
            assert int(whole.lengths[number]) == int(alone.lengths[0]) == alone.pooled_attention_mask.shape[1]
            if kind is FunnelModel:
                got = whole.last_hidden_state[number][batch["attention_mask"][number].bool()]
            else:
                got = whole.last_hidden_state[number, : len(alone.last_hidden_state[0])]
            torch.testing.assert_close(got, alone.last_hidden_state[0], atol=1e-5, rtol=0)


@settings(max_examples=15)
@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=4),
    st.sampled_from(["right", "left", "scattered"]),
    st.sampled_from(OPTIONS),
)
def test_padding_changes_nothing_whatever_the_options(build, ids, together, segments, lengths, side, options):
    model, rows = build(FunnelModel, **options), ids(*lengths)
    batch = together(rows, side)
    with torch.no_grad():
        whole = model(**batch).last_hidden_state
        assert torch.isfinite(whole).all() and not whole[batch["attention_mask"] == 0].any()
        for number, row in enumerate(rows):
            if len(row):
                alone = model(row[None], token_type_ids=segments(row)[None]).last_hidden_state[0]
                torch.testing.assert_close(
                    whole[number][batch["attention_mask"][number] == 1], alone, atol=1e-5, rtol=0
                )


@pytest.mark.parametrize("semantics", ["exact", "official", "hf"])
def test_rows_of_padding_only_are_finite(semantics, build, ids, together):
    model = build(FunnelModel, semantics=semantics)
    outputs = model(**together(ids(0, 9, 0), "right"), output_hidden_states=True)
    assert all(torch.isfinite(states).all() for block in outputs.hidden_states for states in block)
    assert outputs.lengths.tolist()[0] == 0 and torch.isfinite(outputs.last_hidden_state).all()


def test_what_stands_at_padding_reaches_nothing(build, ids, together):
    model, batch = build(FunnelModel), together(ids(17, 9), "left")
    embeds = model.embeddings.word_embeddings(batch.pop("input_ids")).detach()
    mask = batch["attention_mask"]
    spoiled = embeds.masked_fill(mask[:, :, None] == 0, float("nan")).requires_grad_()
    states = model(inputs_embeds=spoiled, **batch).last_hidden_state
    assert torch.equal(states, model(inputs_embeds=embeds, **batch).last_hidden_state)
    states.square().sum().backward()
    assert torch.isfinite(spoiled.grad).all() and not spoiled.grad[mask == 0].any()


@pytest.mark.parametrize("length", [5, 6, 8, 11, 16])
def test_unpadded_and_untruncated_the_three_semantics_are_one(length, build, ids, segments):
    row = ids(length)[0]
    if length == 6:
        # Where the code that the others stand for fails.
        with pytest.raises(UsageError, match="expected rows that semantics='official' can pool 2 times, got rows of 6"):
            build(FunnelModel, semantics="official", truncate_seq=False)(row[None])
        return
    states = [
        build(FunnelModel, semantics=name, truncate_seq=False)(row[None], token_type_ids=segments(row)[None])[0]
        for name in ("exact", "official", "hf")
    ]
    torch.testing.assert_close(states[0], states[1], atol=1e-5, rtol=0)
    torch.testing.assert_close(states[0], states[2], atol=1e-5, rtol=0)


@pytest.mark.parametrize("position_type", ["relative", "absolute"])
def test_one_block_is_a_plain_encoder(position_type, build, ids):
    """Written out once more, for one text, with all of its scores."""
    model = build(FunnelBaseModel, block_sizes=[2], position_type=position_type, separate_cls=False)
    row = ids(9)[0]
    embedded = model.embeddings.word_embeddings(row)
    if position_type == "absolute":
        embedded = embedded + model.embeddings.position_embeddings.weight[:9]
        embedded = embedded + model.embeddings.token_type_embeddings.weight[0]
    states = model.embeddings.layer_norm(embedded)
    distances = torch.arange(9.0)[:, None] - torch.arange(9.0)
    angles = distances[:, :, None] / 10000 ** (torch.arange(6.0) / 6)
    sinusoids = torch.cat([angles.sin(), angles.cos()], -1)
    for layer in model.encoder.blocks[0]:
        own = layer.attention
        query, key, value = (
            head(states).view(9, 3, 4).transpose(0, 1) for head in (own.q_head, own.k_head, own.v_head)
        )
        scores = (query + own.r_w_bias[:, None]) @ key.mT
        if position_type == "relative":
            positions = torch.einsum("ijw,whd->hijd", sinusoids, own.r_kernel)
            scores = scores + torch.einsum("hid,hijd->hij", query + own.r_r_bias[:, None], positions)
            scores = scores + torch.einsum("hid,hd->hi", query + own.r_s_bias[:, None], own.seg_embed[1])[..., None]
        attended = ((scores / 2).softmax(-1) @ value).transpose(0, 1).flatten(1)
        states = own.layer_norm(states + own.post_proj(attended))
        inner = functional.gelu(layer.ffn.linear_1(states), approximate="tanh")
        states = layer.ffn.layer_norm(states + layer.ffn.linear_2(inner))
    got = model(row[None]).last_hidden_state[0]
    torch.testing.assert_close(got, states, atol=1e-5, rtol=0)


def test_one_block_gives_its_states_where_the_tokens_stood(build, ids, together):
    model, batch = build(FunnelBaseModel, block_sizes=[2]), together(ids(9, 5), "left")
    outputs = model(**batch)
    assert torch.equal(outputs.pooled_attention_mask, batch["attention_mask"].bool())
    assert not outputs.last_hidden_state[batch["attention_mask"] == 0].any()
    assert outputs.lengths.tolist() == [9, 5]


def test_hidden_states_and_weights_are_labelled_by_block(build, ids, together):
    batch = together(ids(13, 6), "left")
    model = build(FunnelModel, funnel_backend="reference", block_repeats=[1, 2, 1])
    outputs = model(**batch, output_hidden_states=True, output_attentions=True)
    # 16 tokens: 1 + 15 / 2 is 9 slots, and then 1 + 8 / 2.
    shapes = [[states.shape[1] for states in block] for block in outputs.hidden_states]
    assert shapes == [[16, 16, 16], [9, 9], [5], [16, 16]]
    shapes = [[tuple(weights.shape[2:]) for weights in block] for block in outputs.attentions]
    assert shapes == [[(16, 16)] * 2, [(9, 16), (9, 9)], [(5, 9)], [(16, 16)]]
    for block in outputs.attentions:
        for weights in block:
            torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    real = batch["attention_mask"].bool()
    embedded = model.embeddings.layer_norm(model.embeddings.word_embeddings(batch["input_ids"]))
    assert torch.equal(outputs.hidden_states[0][0][real], embedded[real])
    assert torch.equal(outputs.hidden_states[-1][-1][real], outputs.last_hidden_state[real])
    assert outputs.pooled_attention_mask.sum(1).tolist() == outputs.lengths.tolist() == [4, 3]
    plain = model(**batch)
    assert plain.hidden_states is None and plain.attentions is None
    assert torch.equal(model(**batch, return_dict=False)[0], plain.last_hidden_state)


def test_attention_weights_are_those_of_the_attention(build, ids):
    for options in ({}, {"position_type": "absolute"}):
        model = build(FunnelBaseModel, block_sizes=[1], funnel_backend="reference", **options)
        row = ids(7)[0]
        outputs = model(row[None], output_attentions=True, output_hidden_states=True)
        layer, states = model.encoder.blocks[0][0], outputs.hidden_states[0][0]
        value = layer.attention.v_head(states).view(1, 7, 3, 4).transpose(1, 2)
        attended = (outputs.attentions[0][0] @ value).transpose(1, 2).flatten(2)
        want = layer.ffn(layer.attention.layer_norm(states + layer.attention.post_proj(attended)))
        torch.testing.assert_close(outputs.last_hidden_state, want, atol=1e-5, rtol=0)


def test_weights_are_refused_where_they_are_never_in_memory(build, ids):
    model = build(FunnelModel)
    with pytest.raises(
        UsageError, match="`output_attentions` must be False unless funnel_backend='reference', .*'auto'"
    ):
        model(ids(6)[0][None], output_attentions=True)
    model.set_attn_implementation("eager")
    assert model(ids(6)[0][None], output_attentions=True).attentions is not None


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_backends_agree(options, build, ids, together):
    backends = ["reference", "auto"]
    if "attention_type" not in options and "position_type" not in options:
        backends += ["sdpa", "tiled"]
    batch = together(ids(40, 11, 3), "left")
    with torch.no_grad():
        states = [build(FunnelModel, funnel_backend=name, **options)(**batch)[0] for name in backends]
    for other in states[1:]:
        torch.testing.assert_close(other, states[0], atol=2e-5, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_close(dtype, build, ids, together):
    batch, model = together(ids(40, 17), "left"), build(FunnelModel)
    with torch.no_grad():
        expected = model(**batch).last_hidden_state
        got = model.to(dtype)(**batch).last_hidden_state
    assert got.dtype == dtype and torch.isfinite(got).all()
    assert float((got.float() - expected).abs().mean()) < 0.03 * float(expected.abs().mean())


@pytest.mark.parametrize("kind", [FunnelBaseModel, FunnelModel])
def test_files_and_auto_classes_bring_a_model_back(kind, tmp_path, build, ids):
    narrows.register_all()
    narrows.register_all()
    model = build(kind, d_embed=8, pad_token_id=0)
    model.save_pretrained(tmp_path)
    again, told = AutoModel.from_pretrained(tmp_path, output_loading_info=True)
    assert type(again) is kind and not told["missing_keys"] and not told["unexpected_keys"]
    row = ids(9)[0][None]
    with torch.no_grad():
        assert torch.equal(again(row)[0], model(row)[0])
    base, told = FunnelBaseModel.from_pretrained(tmp_path, output_loading_info=True)
    assert not told["missing_keys"] and not told["unexpected_keys"]


def test_more_tokens_grow_the_table(build):
    model = build(FunnelModel, d_embed=8)
    before = model.get_input_embeddings().weight[:5].clone()
    model.resize_token_embeddings(70)
    assert model.config.vocab_size == len(model.embeddings.word_embeddings.weight) == 70
    assert torch.equal(model.embeddings.word_embeddings.weight[:5], before)
    assert model(torch.tensor([[69, 3]])).last_hidden_state.shape == (1, 2, 12)


def test_an_empty_batch_passes(build):
    assert build(FunnelModel)(torch.zeros(0, 9, dtype=torch.long)).last_hidden_state.shape == (0, 9, 12)


def test_used_wrongly(build, ids):
    model, row = build(FunnelModel), ids(9)[0][None]
    with pytest.raises(UsageError, match=r"expected rows of at least one token, got an input of shape \[1, 0\]; leave"):
        model(torch.zeros(1, 0, dtype=torch.long))
    text = (
        r"expected whole-numbered input_ids of \[batch, length\], or inputs_embeds of .*, got torch.{} of \[{}\]; give"
    )
    with pytest.raises(UsageError, match=text.format("int64", "9")):
        model(row[0])
    with pytest.raises(UsageError, match=text.format("float32", "1, 9")):
        model(row.float())
    with pytest.raises(UsageError, match=text.format("float32", "1, 9")):
        model(inputs_embeds=row.float())
    with pytest.raises(UsageError, match="expected either input_ids or inputs_embeds, got neither; pass one of them"):
        model()
    with pytest.raises(UsageError, match="expected either input_ids or inputs_embeds, got both; pass one of them"):
        model(row, inputs_embeds=model.embeddings.word_embeddings(row))
    for name in ("attention_mask", "token_type_ids"):
        with pytest.raises(
            UsageError, match=rf"`{name}` must be \[batch, length\] as the inputs, \[1, 9\], got \[1, 3\]"
        ):
            model(row, **{name: torch.ones(1, 3, dtype=torch.long)})
    with pytest.raises(
        UsageError, match="`input_ids` must be from 0 to 60, got 3 to 61; use the tokenizer of this model"
    ):
        model(torch.tensor([[3, 61]]))
    absolute = build(FunnelModel, position_type="absolute", max_position_embeddings=8)
    with pytest.raises(UsageError, match="a row must have at most 8 tokens with absolute positions, got 9; cut it or"):
        absolute(row)
    with pytest.raises(UsageError, match="`token_type_ids` must be from 0 to 1, got 5 to 5; pass 0 and 1"):
        absolute(row[:, :4], token_type_ids=torch.full((1, 4), 5))


def test_the_mechanism_is_there_without_transformers():
    code = "import sys, narrows.funnel; narrows.funnel.Pooling; print('transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    with pytest.raises(AttributeError, match="module 'narrows.funnel' has no attribute 'Tunnel'"):
        _ = narrows.funnel.Tunnel
