"""Presets by the paper's names, and their sizes beside the paper's."""

import pytest
import torch

from narrows.errors import UsageError
from narrows.funnel.config import FunnelConfig
from narrows.funnel.model import FunnelBaseModel, FunnelModel
from narrows.funnel.presets import HUB_NAMES, PRESETS, preset

# Of the released models with their vocabulary of 30,522, in millions: with and without the decoder.
PARAMETERS = {
    "B4-4-4H768": (131.0, 115.6),
    "B6-3x2-3x2H768": (131.0, 115.6),
    "B6-6-6H768": (177.1, 161.7),
    "B8-8-8H1024": (386.1, 358.8),
    "B10-10-10H1024": (468.0, 440.7),
}


@pytest.mark.parametrize("name", PRESETS)
def test_models_are_as_large_as_the_released_ones(name) -> None:
    for kind, millions in zip((FunnelModel, FunnelBaseModel), PARAMETERS[name], strict=True):
        with torch.device("meta"):
            model = kind(preset(name))
        assert sum(parameter.numel() for parameter in model.parameters()) / 1e6 == pytest.approx(millions, abs=0.06)


def test_a_name_says_blocks_repeats_and_width() -> None:
    config = preset("B6-3x2-3x2H768")
    assert (config.block_sizes, config.block_repeats) == ([6, 3, 3], [1, 2, 2])
    assert (config.d_model, config.n_head, config.d_head, config.d_inner) == (768, 12, 64, 3072)
    assert config.num_decoder_layers == 2
    assert preset("B10-10-10H1024").block_sizes == [10, 10, 10]
    assert set(HUB_NAMES) == set(PARAMETERS)


def test_other_layouts_and_widths_follow_the_same_rule() -> None:
    small = preset("B2-2-2H384", vocab_size=99, d_inner=1000)
    assert (small.block_sizes, small.n_head, small.vocab_size, small.d_inner) == ([2, 2, 2], 6, 99, 1000)
    assert preset("B8-8H768").num_blocks == 2
    assert preset("B1x3H64").block_repeats == [3]
    assert preset("B2-2H36", n_head=4, d_head=9).d_model == 36


def test_a_plain_encoder_is_one_block() -> None:
    plain = preset("L12H768")
    assert (plain.block_sizes, plain.total_stride, plain.num_decoder_layers) == ([12], 1, 0)


@pytest.mark.parametrize("name", ["B4-4-4", "b4-4-4h768", "B4-4-H768", "B4x-4H768", "L12-2H768", "small", ""])
def test_another_form_of_name_is_refused(name) -> None:
    with pytest.raises(UsageError, match=r"such as B4-4-4H768, .* got .*; write the layers of each block"):
        preset(name)


def test_changes_are_checked() -> None:
    with pytest.raises(UsageError, match="expected fields of FunnelConfig, got depth; see its documentation"):
        preset("B4-4-4H768", depth=3)
    with pytest.raises(UsageError, match="a multiple of 64, the width of a head, got 100; give `n_head` and `d_head`"):
        preset("B4-4-4H100")
    with pytest.raises(UsageError, match="multiple of 64, the width of a head, got 0"):
        preset("B4-4-4H0")
    with pytest.raises(UsageError, match="`block_sizes` must be numbers of at least 1"):
        preset("B4-0-4H768")


def test_a_config_of_a_preset_is_kept_in_a_file(tmp_path) -> None:
    preset("B6-3x2-3x2H768").save_pretrained(tmp_path)
    loaded = FunnelConfig.from_pretrained(tmp_path)
    assert (loaded.block_sizes, loaded.block_repeats) == ([6, 3, 3], [1, 2, 2])
