"""Keys that attention computes: as many as torch counts in the models' own code."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode
from transformers import LongT5Config, LongT5EncoderModel, T5Config, T5EncoderModel

from narrows.core.windows import tiles, window
from narrows.inspection.computed import compare_keys, mulla_pairs, peer_pairs
from narrows.mulla import Pyramid, mulla_attention, plan_attention

SIZES = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_heads": 2, "vocab_size": 20, "num_layers": 1}
INNER = 8


def products(work) -> int:
    """Multiplications and additions of batched matrix products, which attention alone has."""
    with FlopCounterMode(display=False) as counter:
        work()
    counts = counter.get_flop_counts()["Global"]
    return sum(number for name, number in counts.items() if name == torch.ops.aten.bmm)


@pytest.mark.parametrize("length", [5, 100, 333])
@pytest.mark.parametrize("pyramid", [Pyramid(9, 3), Pyramid(9, 2, 3), Pyramid(20, 8)])
def test_pairs_of_mulla(length: int, pyramid: Pyramid) -> None:
    states = torch.zeros(1, 2, length, 4)
    plan = plan_attention(
        torch.zeros(1, 2, 2 * pyramid.radius + 1), torch.tensor([length]), pyramid, length=length, backend="tiled"
    )
    # With dropout the products are batched ones; each pair is in that of the scores and in that of the values.
    assert products(lambda: mulla_attention(states, states, states, plan, dropout=0.1)) == 4 * INNER * mulla_pairs(
        pyramid, length
    )


@given(st.integers(1, 3000), st.integers(1, 40), st.integers(2, 9))
def test_all_tiles_at_once_are_the_tiles_of_the_attention(length: int, radius: int, rate: int) -> None:
    pyramid = Pyramid(radius, rate)
    form = plan_attention(
        torch.zeros(1, 1, 2 * radius + 1), torch.tensor([length]), pyramid, length=length, backend="tiled"
    ).form
    counted = sum(
        len(queries) * window(queries, radius=radius, length=slots, span=pyramid.span(level)).width
        for queries in tiles(length, form.tile_size)
        for level, slots in enumerate(pyramid.lengths(length))
    )
    assert mulla_pairs(pyramid, length) == counted


@pytest.mark.parametrize("length", [40, 100, 333])
@pytest.mark.parametrize("name", ["full", "local", "tglobal"])
def test_pairs_of_peers(length: int, name: str) -> None:
    if name == "full":
        model = T5EncoderModel(T5Config(**SIZES))
    else:
        kind = {"local": "local", "tglobal": "transient-global"}[name]
        model = LongT5EncoderModel(LongT5Config(**SIZES, local_radius=9, encoder_attention_type=kind))
    model.set_attn_implementation("eager")
    found = products(lambda: model.eval()(input_ids=torch.ones(1, length, dtype=torch.long)))
    # The means of the blocks are a product of their own, with every token.
    means = 2 * length * (length // 16) * SIZES["d_model"] if name == "tglobal" else 0
    assert found - means == 4 * INNER * peer_pairs(name, length, local_radius=9)


def test_where_peers_are_cheaper() -> None:
    pyramid = Pyramid(9, 3)
    keys, peers = compare_keys(pyramid, 400)
    assert keys == mulla_pairs(pyramid, 400) / 400 and peers["full"].keys == 400
    for name in ("full", "tglobal"):
        border = peers[name].cheaper_below
        assert border is not None
        for length, is_cheaper in ((border - 1, True), (border, False)):
            assert (peer_pairs(name, length, local_radius=9) <= mulla_pairs(pyramid, length)) == is_cheaper


def test_one_level_is_never_dearer_than_local() -> None:
    _, peers = compare_keys(Pyramid(127, 4, 1), 1000)
    assert peers["local"].cheaper_below is not None
