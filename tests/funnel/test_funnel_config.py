"""Configs that no funnel can have are refused in one sentence of ours, wherever they come from."""

import json

import pytest

from narrows.errors import UsageError
from narrows.funnel import FunnelBaseModel, FunnelConfig

SIZES = {"vocab_size": 53, "d_model": 12, "n_head": 3, "d_head": 4, "d_inner": 23, "block_sizes": [1, 1]}

BAD = [
    ({"block_sizes": []}, r"`block_sizes` must be numbers of at least 1, one for each block, got \[\]; \[4, 4, 4\] is"),
    ({"block_sizes": [2, 0]}, r"`block_sizes` must be numbers of at least 1, one for each block, got \[2, 0\]; \[4"),
    (
        {"block_repeats": [1]},
        r"`block_repeats` must be 2 numbers of at least 1, one for each block, got \[1\]; give as many",
    ),
    (
        {"block_repeats": [1, 0]},
        r"`block_repeats` must be 2 numbers of at least 1, one for each block, got \[1, 0\]; give",
    ),
    (
        {"decoder_repeats": [1, 1], "num_decoder_layers": 1},
        r"`decoder_repeats` must be 1 number of at least 1, one for each decoder layer, got \[1, 1\]; give",
    ),
    ({"semantics": "paper"}, "`semantics` must be one of exact, official, hf, got 'paper'; choose one of them"),
    ({"pooling_type": "min"}, "`pooling_type` must be one of mean, max, top_attention, got 'min'; choose one of them"),
    ({"attention_type": "full"}, "`attention_type` must be one of relative_shift, factorized, got 'full'; choose one"),
    (
        {"position_type": "rotary"},
        "`position_type` must be one of relative, absolute, got 'rotary'; choose one of them",
    ),
    (
        {"funnel_backend": "flex"},
        "`funnel_backend` must be one of auto, reference, sdpa, tiled, got 'flex'; choose one",
    ),
    ({"num_decoder_layers": -1}, "`num_decoder_layers` must be at least 0, got -1; give it a size"),
    ({"pooling_size": 1}, "`pooling_size` must be at least 2, got 1; give it a size"),
    (
        {"d_model": 13},
        "`d_model` must be even for relative positions, half of which are sines and half cosines, got 13; choose",
    ),
    (
        {"block_sizes": [1] * 40},
        r"`block_sizes` must be so few that a slot covers at most 2\^31 tokens, got 40 blocks with the pooling size 2;",
    ),
    ({"hidden_dropout": 1.0}, "`hidden_dropout` must be a probability from 0 to below 1, got 1.0; the paper's is 0.1"),
    ({"initializer_std": 0.0}, "`initializer_std` must be a number above 0, got 0.0; change it"),
    (
        {"hidden_act": "none"},
        "`hidden_act` must be an activation of transformers, got 'none'; 'gelu_new' is the paper's",
    ),
    (
        {"semantics": "hf", "pooling_size": 3},
        "`pooling_size` must be 2 for semantics='hf', since transformers' code knows no other, got 3; change",
    ),
    (
        {"semantics": "official", "pooling_type": "top_attention"},
        "`pooling_type` must be mean or max for semantics='official', since the authors' code lacks it, got top",
    ),
    (
        {"semantics": "hf", "position_type": "absolute"},
        "`position_type` must be relative for semantics='hf', since transformers' code knows no other, got absolute;",
    ),
    (
        {"attention_type": "factorized", "funnel_backend": "tiled"},
        "`funnel_backend` must be one of auto, reference with attention_type='factorized', got 'tiled'; choose one",
    ),
    ({"d_model": "wide"}, "`d_model` must be of type int, got 'wide'; change it in config.json or where it is passed"),
]


@pytest.mark.parametrize(("change", "text"), BAD, ids=lambda value: str(value)[:40])
def test_a_bad_field_is_named(change, text, tmp_path):
    with pytest.raises(UsageError, match=f"^{text}"):
        FunnelConfig(**{**SIZES, **change})
    FunnelConfig(**SIZES).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    # What follows from a field is in the file too.
    kept = {name: value for name, value in json.loads(path.read_text()).items() if not name.endswith("_repeats")}
    path.write_text(json.dumps({**kept, **change}))
    with pytest.raises(UsageError, match=f"^{text}"):
        FunnelConfig.from_pretrained(tmp_path)


def test_an_option_that_spoils_a_good_checkpoint_is_refused(tmp_path):
    FunnelBaseModel(FunnelConfig(**SIZES)).save_pretrained(tmp_path)
    with pytest.raises(UsageError, match=r"`block_repeats` must be 2 numbers of at least 1, .*, got \[1\]; give"):
        FunnelBaseModel.from_pretrained(tmp_path, block_repeats=[1])


def test_what_is_left_out_follows_from_the_rest():
    config = FunnelConfig(**{**SIZES, "block_sizes": [6, 3, 3], "pooling_size": 3})
    assert (config.block_repeats, config.decoder_repeats, config.d_embed) == ([1, 1, 1], [1, 1], 12)
    assert (config.num_blocks, config.num_hidden_layers, config.total_stride) == (3, 12, 9)
    assert config.hidden_size == 12 and config.num_attention_heads == 3
