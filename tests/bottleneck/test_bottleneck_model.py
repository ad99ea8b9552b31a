"""The models: padding, caches, generation, saving, precision, gradients, and what is refused."""

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    TextIteratorStreamer,
)
from transformers.cache_utils import DynamicCache

import narrows
from narrows.bottleneck import (
    BottleneckCache,
    BottleneckConfig,
    BottleneckForCausalLM,
    BottleneckForMaskedLM,
    BottleneckForSequenceClassification,
    BottleneckForTokenClassification,
    BottleneckModel,
    preset,
)
from narrows.bottleneck.reference import reference
from narrows.errors import UsageError

_SMALL = {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 3, "bottleneck_ratio": 2, "bottleneck_heads": 1}
_SMALL |= {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_PATTERNS = ["bottleneck", "full", "bottleneck,full", "window,bottleneck-window,full"]


def _config(**changes) -> BottleneckConfig:
    return BottleneckConfig(**{**_SMALL, "window": 4, "num_attention_heads": 2, **changes})


def _model(kind=BottleneckForCausalLM, **changes):
    torch.manual_seed(0)
    model = kind(_config(**changes)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "convolution" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def _ids(*shape: int) -> torch.Tensor:
    return torch.randint(3, 40, shape, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("pattern", _PATTERNS)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_the_states_are_those_of_the_parts_written_out(pattern, causal, norm_position) -> None:
    model = _model(BottleneckModel, layer_pattern=pattern, causal=causal, norm_position=norm_position)
    ids = _ids(1, 7)
    states = model.embed_tokens(ids)[0]
    for layer in model.layers:
        if norm_position == "pre":
            states = states + reference(layer.attention, layer.attention_norm(states))
            states = states + layer.feed_forward(layer.feed_forward_norm(states))
        else:
            states = layer.attention_norm(states + reference(layer.attention, states))
            states = layer.feed_forward_norm(states + layer.feed_forward(states))
    torch.testing.assert_close(model(ids).last_hidden_state[0], model.final_norm(states), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pattern", _PATTERNS)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("side", ["left", "right", "middle"])
def test_alone_and_padded_are_the_same(pattern, causal, side) -> None:
    model, ids = _model(BottleneckModel, layer_pattern=pattern, causal=causal), _ids(1, 6)
    where = {"left": slice(3, None), "right": slice(None, 6), "middle": [0, 1, 3, 4, 7, 8]}[side]
    padded, mask = torch.full((2, 9), 39), torch.zeros(2, 9, dtype=torch.long)
    padded[0, where], mask[0, where], mask[1] = ids[0], 1, 1
    found = model(padded, attention_mask=mask, output_hidden_states=True)
    torch.testing.assert_close(
        found.last_hidden_state[:1, mask[0] == 1], model(ids).last_hidden_state, atol=1e-5, rtol=1e-4
    )
    assert len(found.hidden_states) == 4
    assert all(not states[0, mask[0] == 0].any() for states in found.hidden_states)


def test_rows_of_padding_alone_are_zeros_with_finite_gradients() -> None:
    model = _model(layer_pattern="bottleneck,window")
    mask = torch.tensor([[0, 0, 0], [1, 1, 1]])
    outputs = model(_ids(2, 3), attention_mask=mask, labels=torch.tensor([[-100] * 3, [4, 5, 6]]))
    outputs.loss.backward()
    assert not model.model(_ids(2, 3), attention_mask=mask).last_hidden_state[0].any()
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("length", [1, 2, 3, 17])
def test_any_length_and_no_future(length) -> None:
    model, ids = _model(layer_pattern="bottleneck,bottleneck-window,full"), _ids(1, length)
    logits = model(ids).logits
    changed = ids.clone()
    changed[0, -1] = (changed[0, -1] + 1) % 40
    apart = (model(changed).logits - logits).abs().amax(-1)[0]
    assert not apart[:-1].any() and apart[-1] > 0


@settings(deadline=None, max_examples=25)
@given(
    pattern=st.sampled_from(_PATTERNS),
    kind=st.sampled_from(["keys_values", "narrow_states"]),
    cuts=st.lists(st.integers(1, 3), min_size=2, max_size=4),
    padding=st.integers(0, 2),
)
def test_cached_logits_equal_those_of_the_whole(pattern, kind, cuts, padding) -> None:
    model = _model(layer_pattern=pattern, cache_kind=kind)
    ids = _ids(2, sum(cuts) + padding)
    mask = torch.ones_like(ids)
    mask[0, :padding] = 0
    cache, place, parts = None, 0, []
    for number, cut in enumerate(cuts):
        end = place + cut + (padding if number == 0 else 0)
        outputs = model(ids[:, place:end], attention_mask=mask[:, :end], cache=cache, use_cache=True)
        parts.append(outputs.logits)
        cache, place = outputs.cache, end
    assert cache.get_seq_length() == ids.shape[1]
    whole = model(ids, attention_mask=mask, use_cache=False).logits
    torch.testing.assert_close(torch.cat(parts, 1)[mask == 1], whole[mask == 1], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["keys_values", "narrow_states"])
@pytest.mark.parametrize(
    "options", [{}, {"num_beams": 3}, {"do_sample": True, "top_k": 5}], ids=["greedy", "beams", "sampled"]
)
def test_generation_with_a_cache_equals_generation_without(kind, options) -> None:
    model, ids = _model(cache_kind=kind, layer_pattern="bottleneck,full"), _ids(2, 5)
    mask = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    found = []
    for use_cache in (True, False):
        torch.manual_seed(3)
        found.append(
            model.generate(ids, attention_mask=mask, max_new_tokens=8, min_new_tokens=8, use_cache=use_cache, **options)
        )
    assert torch.equal(*found)
    alone = model.generate(ids[:1, 2:], max_new_tokens=8, min_new_tokens=8)
    if not options:
        assert torch.equal(found[0][0, 5:], alone[0, 3:])


def test_assisted_generation_takes_tokens_back_where_it_can() -> None:
    ids = torch.tensor([[3, 4, 5, 3, 4, 5, 3, 4]])
    for changes in ({"bottleneck_kernel": 0}, {"cache_kind": "narrow_states"}):
        model = _model(**changes)
        plain = model.generate(ids, max_new_tokens=6, min_new_tokens=6)
        assert torch.equal(model.generate(ids, max_new_tokens=6, min_new_tokens=6, prompt_lookup_num_tokens=2), plain)


def test_the_cache_holds_what_the_arithmetic_says() -> None:
    config = {"hidden_size": 64, "bottleneck_ratio": 4, "bottleneck_kernel": 0, "num_hidden_layers": 2}
    held = {}
    for name, changes in {
        "full": {"layer_pattern": "full"},
        "keys_values": {},
        "narrow_states": {"cache_kind": "narrow_states"},
    }.items():
        model = _model(**{**config, **changes})
        held[name] = model(_ids(1, 20), use_cache=True).cache.num_bytes
    assert held["full"] == 2 * 20 * 2 * 64 * 4
    assert held["full"] == 4 * held["keys_values"] == 8 * held["narrow_states"]


@pytest.mark.parametrize(
    "kind",
    [
        BottleneckForCausalLM,
        BottleneckForMaskedLM,
        BottleneckForSequenceClassification,
        BottleneckForTokenClassification,
    ],
)
def test_saved_and_loaded_is_the_same_and_nothing_is_drawn_anew(kind, tmp_path) -> None:
    model, ids = _model(kind, causal=kind is BottleneckForCausalLM, layer_pattern="bottleneck,full"), _ids(2, 5)
    model.save_pretrained(tmp_path)
    narrows.register_all()
    loaded, info = kind.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert torch.equal(loaded.eval()(ids).logits, model(ids).logits)
    assert AutoConfig.from_pretrained(tmp_path).kinds == ["bottleneck", "full", "bottleneck"]
    assert torch.equal(
        AutoModel.from_pretrained(tmp_path).eval()(ids).last_hidden_state, model.model(ids).last_hidden_state
    )


def test_the_auto_classes_know_the_heads(tmp_path) -> None:
    narrows.register_all()
    config = _config()
    assert type(AutoModelForCausalLM.from_config(config)) is BottleneckForCausalLM
    assert type(AutoModelForSequenceClassification.from_config(config)) is BottleneckForSequenceClassification


def test_losses_are_the_formulas() -> None:
    ids = _ids(2, 6)
    model = _model()
    outputs = model(ids, labels=ids)
    logs = outputs.logits.log_softmax(-1)[:, :-1].gather(-1, ids[:, 1:, None])
    torch.testing.assert_close(outputs.loss, -logs.mean())
    torch.testing.assert_close(model(ids, labels=ids, num_items_in_batch=5).loss, -logs.sum() / 5)
    masked, labels = _model(BottleneckForMaskedLM, causal=False), ids.clone()
    labels[:, ::2] = -100
    picked = labels != -100
    found = masked(ids, labels=labels)
    expected = torch.nn.functional.cross_entropy(found.logits[picked], labels[picked])
    torch.testing.assert_close(found.loss, expected)
    torch.testing.assert_close(masked.train()(ids, labels=labels).loss, expected)
    tokens = _model(BottleneckForTokenClassification, causal=False, num_labels=3)
    found = tokens(ids, labels=(ids % 3).where(picked, -100))
    torch.testing.assert_close(found.loss, torch.nn.functional.cross_entropy(found.logits[picked], (ids % 3)[picked]))
    texts = _model(BottleneckForSequenceClassification, causal=False, num_labels=3)
    mask = torch.tensor([[0, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]])
    found = texts(ids, attention_mask=mask, labels=torch.tensor([2, 0]))
    torch.testing.assert_close(found.logits[1:], texts(ids[1:, :3]).logits)
    torch.testing.assert_close(found.loss, torch.nn.functional.cross_entropy(found.logits, torch.tensor([2, 0])))


@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_under_autocast_the_stream_norms_and_logits_are_single(norm_position) -> None:
    model, ids = _model(norm_position=norm_position), _ids(1, 9)
    seen = []
    for layer in model.model.layers:
        layer.attention_norm.register_forward_hook(lambda _, __, output: seen.append(output.dtype))
        layer.attention.register_forward_hook(lambda _, __, output: seen.append(output.dtype))
        layer.register_forward_hook(lambda _, __, output: seen.append(output.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(ids).logits
    assert set(seen) == {torch.float32} and logits.dtype == torch.float32
    torch.testing.assert_close(logits, model(ids).logits, atol=0.1, rtol=0.1)
    half = _model(norm_position=norm_position).to(torch.bfloat16)(ids)
    assert half.logits.dtype == torch.bfloat16


def test_checkpointing_changes_no_gradient() -> None:
    found = []
    for checkpointing in (False, True):
        model = _model().train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        model(_ids(2, 8), labels=_ids(2, 8)).loss.backward()
        found.append([parameter.grad for parameter in model.parameters()])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_one_export_serves_all_lengths() -> None:
    model = _model(BottleneckModel, causal=False, layer_pattern="bottleneck,full")
    batch, length = torch.export.Dim("batch", min=1, max=64), torch.export.Dim("length", min=2, max=4096)
    shapes = {"input_ids": {0: batch, 1: length}, "attention_mask": {0: batch, 1: length}, "use_cache": None}
    kwargs = {"input_ids": _ids(2, 8), "attention_mask": torch.ones(2, 8, dtype=torch.long), "use_cache": False}
    program = torch.export.export(model, (), kwargs, dynamic_shapes=shapes, strict=False)
    for size in ((1, 5), (3, 33)):
        mask = torch.ones(size, dtype=torch.long)
        mask[0, :2] = 0
        ours = program.module()(input_ids=_ids(*size), attention_mask=mask, use_cache=False).last_hidden_state
        torch.testing.assert_close(
            ours, model(_ids(*size), attention_mask=mask).last_hidden_state, atol=1e-5, rtol=1e-4
        )


def test_the_initial_loss_of_both_initializers_is_near_that_of_chance() -> None:
    for changes in ({}, {"initializer": "article", "norm_position": "post", "bottleneck_inner_residual": False}):
        torch.manual_seed(0)
        model = BottleneckForCausalLM(_config(hidden_size=64, vocab_size=256, bottleneck_heads=None, **changes))
        ids = torch.randint(0, 256, (4, 64))
        assert abs(model(ids, labels=ids).loss.item() - 5.545) < 0.2 * 5.545


def test_the_article_s_initialization_is_as_it_says() -> None:
    torch.manual_seed(0)
    model = BottleneckModel(preset("article", length=2048, hidden_size=512, num_hidden_layers=1))
    layer = model.layers[0].attention
    # Kaiming normal by the 128 outputs; Xavier uniform is within sqrt(6 / (128 + 512)).
    assert float(layer.down_proj.weight.std()) == pytest.approx((2 / 128) ** 0.5, rel=0.02)
    assert float(layer.up_proj.weight.abs().max()) == pytest.approx((6 / 640) ** 0.5, rel=0.01)


def test_layers_have_numbers_for_learning_rates() -> None:
    model = _model()
    numbers = {name: model.layer_of(name) for name, _ in model.named_parameters()}
    assert numbers["model.embed_tokens.weight"] == 0
    assert numbers["model.layers.2.attention.down_proj.weight"] == 3 == numbers["model.final_norm.weight"]


def test_words_come_one_after_another_through_a_streamer() -> None:
    class Tokenizer:
        def decode(self, ids, **kwargs):
            return " ".join(str(int(one)) for one in ids)

    model, streamer = _model(), TextIteratorStreamer(Tokenizer(), skip_prompt=True)
    found = model.generate(_ids(1, 4), max_new_tokens=3, min_new_tokens=3, streamer=streamer)
    assert " ".join("".join(streamer).split()) == " ".join(str(int(one)) for one in found[0, 4:])


_REFUSED = [
    ({"bottleneck_ratio": 64}, "`bottleneck_ratio` must be from 1 to hidden_size, 32, got 64; 4 is usual"),
    ({"bottleneck_ratio": 0.5}, "`bottleneck_ratio` must be from 1 to hidden_size, 32, got 0.5"),
    ({"bottleneck_ratio": 3}, "`bottleneck_ratio` must divide hidden_size, 32, got 3; choose another ratio, or give"),
    ({"bottleneck_size": 33}, "`bottleneck_size` must be from 1 to hidden_size, 32, got 33; choose another"),
    ({"bottleneck_heads": 5}, "expected a number of heads that divides the width 16, got 5; change it"),
    (
        {"layer_pattern": "bottleneck,fool"},
        "`layer_pattern` must be kinds of layers, .* got 'fool' in 'bottleneck,fool'",
    ),
    ({"layer_pattern": ""}, "`layer_pattern` must be kinds of layers, .* got '' in ''; write for example"),
    ({"norm_position": "middle"}, "`norm_position` must be one of pre, post, got 'middle'; choose one of them"),
    ({"cache_kind": "none"}, "`cache_kind` must be one of keys_values, narrow_states, got 'none'; choose"),
    ({"initializer": "x"}, "`initializer` must be one of scaled, article, got 'x'; choose one of them"),
    ({"hidden_act": "x"}, "`hidden_act` must be an activation of transformers, got 'x'; 'gelu' is usual"),
    ({"window": 0}, "`window` must be at least 1, got 0; give it a size"),
    ({"num_hidden_layers": 0}, "`num_hidden_layers` must be at least 1, got 0; give it a size"),
    ({"attention_dropout": 1.0}, "`attention_dropout` must be from 0 to below 1, got 1.0; 0 is none"),
    ({"rope_theta": 0.0}, "`rope_theta` must be above 0, got 0.0; leave it out"),
    ({"bottleneck_kernel": 2, "causal": False}, "`bottleneck_kernel` must be odd where tokens see both sides, got 2;"),
    ({"hidden_size": "wide"}, "`hidden_size` must be of type int, got 'wide'; change it in config.json or where"),
]


@pytest.mark.parametrize(("changes", "message"), _REFUSED)
def test_configs_that_no_model_can_have(changes, message) -> None:
    with pytest.raises(UsageError, match=message):
        BottleneckModel(_config(**changes))


def test_heads_too_narrow_are_warned_of() -> None:
    with pytest.warns(
        UserWarning, match="heads of 4 numbers in the bottleneck hardly tell keys apart; fewer heads are"
    ):
        _config(hidden_size=64, bottleneck_heads=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _config(hidden_size=64, bottleneck_heads=None, bottleneck_ratio=8)


def test_inputs_that_cannot_be_read() -> None:
    model = _model()
    for wrong, message in (
        ({}, "expected either input_ids or inputs_embeds, got neither; pass one of them"),
        (
            {"input_ids": _ids(1, 0)},
            r"expected rows of at least one token, got an input of shape \[1, 0\]; leave empty",
        ),
        ({"input_ids": _ids(1, 2)[0]}, r"expected rows of at least one token, got an input of shape \[2\]"),
        (
            {"input_ids": torch.tensor([[40]])},
            "expected input_ids from 0 to 39, the vocabulary, got 40; use the model's",
        ),
        (
            {"input_ids": torch.tensor([[-1]])},
            "expected input_ids from 0 to 39, the vocabulary, got -1; use the model's",
        ),
        (
            {"input_ids": _ids(1, 2), "attention_mask": torch.ones(1, 3)},
            r"`attention_mask` must be \[batch, tokens\], those of the cache among them, \[1, 2\], got \[1, 3\]",
        ),
        ({"input_ids": _ids(1, 2), "output_attentions": True}, "`output_attentions` must be False for this model"),
        (
            {"input_ids": _ids(1, 2), "cache": DynamicCache()},
            "expected a BottleneckCache as `cache`, got DynamicCache;",
        ),
        (
            {"input_ids": _ids(1, 2), "cache": BottleneckCache(_config(bottleneck_ratio=4))},
            "expected a cache made for this model's config, got one of another; make it by",
        ),
        (
            {"input_ids": _ids(1, 2), "cache": model(_ids(2, 2), use_cache=True).cache},
            "expected a cache of 1 text, as the batch has, got one of 2; pass that of these texts",
        ),
    ):
        with pytest.raises(UsageError, match=message):
            model(**wrong)
    with pytest.raises(UsageError, match="expected no `cache` for a model whose tokens see both sides, got one; leave"):
        _model(BottleneckModel, causal=False)(_ids(1, 2), cache=BottleneckCache(_config(causal=False)))
    with pytest.raises(
        UsageError, match="expected no `cache_implementation` for this model, got 'static'; leave it out"
    ):
        model.generate(_ids(1, 2), cache_implementation="static", max_new_tokens=2)
    with pytest.raises(
        UsageError, match="expected a cache whose last tokens can be taken back, got one of a model with"
    ):
        model(_ids(1, 4), use_cache=True).cache.crop(-1)


def test_heads_and_presets_that_do_not_fit() -> None:
    with pytest.raises(UsageError, match="expected a config with causal=True for a language model, got causal=False;"):
        BottleneckForCausalLM(_config(causal=False))
    with pytest.raises(UsageError, match="expected a config with causal=False for hidden tokens, which stand between"):
        BottleneckForMaskedLM(_config())
    with pytest.raises(UsageError, match="`problem_type` must be one of regression, .* or None, got 'x'; choose one"):
        BottleneckForSequenceClassification(_config(problem_type="x"))
    with pytest.raises(
        UsageError, match="expected a preset, one of article, full, narrows, got 'x'; choose one of them"
    ):
        preset("x", length=5)
    with pytest.raises(UsageError, match="expected fields of BottleneckConfig, got ratio; see its documentation for"):
        preset("full", length=5, ratio=3)
