"""Configs that no model can have are refused in one sentence of ours, wherever they come from."""

import json

import pytest
import torch
from transformers.activations import ACT2FN

from narrows.errors import UsageError
from narrows.mulla import MullaT5Config, MullaT5EncoderModel

SIZES = {"vocab_size": 53, "d_model": 12, "d_kv": 5, "d_ff": 23, "num_layers": 2, "num_heads": 3}

BAD = [
    ({"variant": "static"}, "`variant` must be one of dynamic, fixed, got 'static'; choose one of them"),
    ({"local_radius": 0}, "`local_radius` must be a whole number of at least 1, got 0; choose such a one"),
    ({"pooling_rate": 1}, "`pooling_rate` must be a whole number of at least 2, got 1; choose such a one"),
    ({"num_levels": 3}, "`num_levels` must be None for the dynamic variant, which adds levels .*, got 3; leave it out"),
    (
        {"variant": "fixed", "num_levels": 0},
        "`num_levels` must be a whole number of at least 1 for the fixed variant, got 0; 3 is the source's",
    ),
    (
        {"variant": "fixed", "level_scales": True},
        "`level_scales` must be False for the fixed variant, whose levels have a table each, got True; leave it out",
    ),
    ({"local_radius": 2**40}, "`local_radius` must be at most 1,048,576, got 1,099,511,627,776; choose a smaller one"),
    ({"pooling_rate": 2**70}, "`pooling_rate` must be at most 1,048,576, got 1,180,591,"),
    ({"variant": "fixed", "num_levels": 10**11}, "`num_levels` must be at most 62, got 100,000,000,000; choose"),
    (
        {"variant": "fixed", "num_levels": 50, "pooling_rate": 8},
        r"`num_levels` must be so few that a slot covers less than 2\^62 tokens, got 50 with the pooling rate 8;",
    ),
    ({"max_level_scales": 0}, "`max_level_scales` must be at least 1, got 0; give it a size"),
    ({"d_model": 0}, "`d_model` must be at least 1, got 0; give it a size"),
    ({"num_decoder_layers": 0}, "`num_decoder_layers` must be at least 1, got 0; give it a size"),
    ({"encoder_feed_forward_chunk": -1}, "`encoder_feed_forward_chunk` must be at least 0, got -1; give it a size"),
    (
        {"relative_attention_num_buckets": 3},
        "`relative_attention_num_buckets` must be at least 4, got 3; give it a size",
    ),
    (
        {"relative_attention_max_distance": 8},
        "`relative_attention_max_distance` must be above 8, a quarter of the buckets, got 8; T5's is 128",
    ),
    ({"dropout_rate": 1.0}, "`dropout_rate` must be a probability from 0 to below 1, got 1.0; T5's is 0.1"),
    ({"layer_norm_epsilon": 0.0}, "`layer_norm_epsilon` must be a number above 0, got 0.0; change it"),
    (
        {"feed_forward_proj": "gated-nothing"},
        "`feed_forward_proj` must be an activation of transformers or `gated-` and one, got 'gated-nothing'; 'gated-g",
    ),
    ({"mulla_backend": "sdpa"}, "`mulla_backend` must be auto or one of reference, tiled, flex, got 'sdpa'; choose"),
    (
        {"dtype": "float16"},
        "`dtype` must be bfloat16 or float32, got float16, in which T5's unscaled attention scores overflow; pass",
    ),
    ({"local_radius": "wide"}, "`local_radius` must be of type int, got 'wide'; change it in config.json or where it"),
    (
        {"encoder_feed_forward_recompute": 1},
        "`encoder_feed_forward_recompute` must be of type bool, got 1; change it in config.json or where it",
    ),
    ({"level_scales": 1}, "`level_scales` must be of type bool, got 1; change it in config.json or where it"),
]


@pytest.mark.parametrize(("change", "text"), BAD, ids=lambda value: str(value)[:40])
def test_a_bad_field_is_named(change, text, tmp_path):
    with pytest.raises(UsageError, match=f"^{text}"):
        MullaT5Config(**{**SIZES, **change})
    MullaT5Config(**SIZES).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(UsageError, match=f"^{text}"):
        MullaT5Config.from_pretrained(tmp_path)


def test_an_option_that_spoils_a_good_checkpoint_is_refused(tmp_path):
    MullaT5EncoderModel(MullaT5Config(**SIZES)).save_pretrained(tmp_path)
    with pytest.raises(UsageError, match="`num_levels` must be None for the dynamic variant, .*, got 3; leave"):
        MullaT5EncoderModel.from_pretrained(tmp_path, num_levels=3)
    with pytest.raises(UsageError, match="`dtype` must be bfloat16 or float32, got float16"):
        MullaT5EncoderModel.from_pretrained(tmp_path, dtype=torch.float16)
    assert MullaT5EncoderModel.from_pretrained(tmp_path, local_radius=9).config.local_radius == 9


def test_each_variant_has_its_own_defaults():
    dynamic, fixed = MullaT5Config(**SIZES), MullaT5Config(**SIZES, variant="fixed")
    assert (dynamic.variant, dynamic.pooling_rate, dynamic.num_levels, dynamic.num_bias_tables) == (
        "dynamic",
        8,
        None,
        1,
    )
    assert (fixed.pooling_rate, fixed.num_levels, fixed.num_bias_tables) == (4, 3, 3)
    assert dynamic.local_radius == fixed.local_radius == 127
    assert dynamic.num_decoder_layers == 2
    assert (fixed.pyramid.radius, fixed.pyramid.pooling_rate, fixed.pyramid.num_levels) == (127, 4, 3)


@pytest.mark.parametrize(
    ("name", "activation", "gated"),
    [
        ("relu", "relu", False),
        ("gated-gelu", "gelu_pytorch_tanh", True),
        ("gated-silu", "silu", True),
        ("gelu", "gelu", False),
    ],
)
def test_activations_have_names_of_transformers(name, activation, gated):
    config = MullaT5Config(**SIZES, feed_forward_proj=name)
    assert (config.dense_act_fn, config.is_gated_act) == (activation, gated)


def test_the_decoder_is_asked_for_its_own_number_of_layers():
    config = MullaT5Config(**SIZES, num_decoder_layers=5)
    assert config.get_text_config(decoder=True).num_hidden_layers == 5
    assert config.get_text_config().num_hidden_layers == config.num_layers == 2


def test_every_field_survives_the_file(tmp_path):
    config = MullaT5Config(
        **SIZES,
        variant="dynamic",
        local_radius=7,
        pooling_rate=3,
        level_scales=True,
        max_level_scales=4,
        encoder_feed_forward_chunk=64,
        mulla_backend="reference",
        num_decoder_layers=3,
        scale_decoder_outputs=True,
        tie_word_embeddings=False,
        feed_forward_proj="relu",
        decoder_start_token_id=2,
    )
    config.id2label, config.label2id = {0: "no", 1: "yes", 2: "maybe"}, {"no": 0, "yes": 1, "maybe": 2}
    config.save_pretrained(tmp_path)
    ours, theirs = MullaT5Config.from_pretrained(tmp_path).to_dict(), config.to_dict()
    assert {k: v for k, v in ours.items() if k != "_name_or_path"} == {
        k: v for k, v in theirs.items() if k != "_name_or_path"
    }


def test_the_gated_gelu_is_that_of_t5():
    states = torch.linspace(-9, 9, 1001)
    own = ACT2FN[MullaT5Config(**SIZES, feed_forward_proj="gated-gelu").dense_act_fn]
    torch.testing.assert_close(own(states), ACT2FN["gelu_new"](states), atol=2e-6, rtol=0)
