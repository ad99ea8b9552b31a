"""Patterns beside the mechanisms themselves: what attention really sees, in ours and in transformers' own code."""

import re
import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.longt5 import modeling_longt5

from narrows.deformer.split import run_packed
from narrows.errors import UsageError
from narrows.inspection.families import make_pyramid
from narrows.inspection.patterns import LONGEST, Block, Pattern, count_pairs, covered_runs, runs_of
from narrows.inspection.pictures import finest_blocks
from narrows.inspection.registry import FAMILIES, build, options_of
from narrows.mulla import Pyramid, mulla_attention, plan_attention


def _dense(runs: np.ndarray, keys: int) -> np.ndarray:
    """`[length, keys]` out of one block's runs."""
    return np.array([[start <= key < stop for key in range(keys)] for start, stop in runs], dtype=bool)


def _visible(family: str, **given_options: object) -> list[list[np.ndarray]]:
    """For each pattern and block of a family the square that is never built elsewhere."""
    patterns = build(family, given_options).patterns
    return [
        [_dense(runs, block.keys) for runs, block in zip(runs_of(pattern), pattern.blocks, strict=True)]
        for pattern in patterns
    ]


@pytest.mark.parametrize(("question", "passage"), [(1, 1), (3, 7), (9, 2)])
@pytest.mark.parametrize("split_layer", [0, 1, 3])
def test_deformer_is_the_masks_that_its_layers_are_given(split_layer: int, question: int, passage: int) -> None:
    length, masks = question + passage, []

    def layer(hidden, mask, *, backend):
        masks.append(mask.expand(1, 1, length, length)[0, 0].numpy())
        return hidden

    segments = torch.tensor([[0] * question + [1] * passage])
    run_packed([layer] * 5, torch.zeros(1, length, 2), None, segments, split_layer=split_layer, backend="reference")
    found = [
        block
        for [block] in _visible("deformer", split_layer=split_layer, question_tokens=question, passage_tokens=passage)
    ]
    expected = masks[:1] * (split_layer > 0) + masks[-1:]
    assert len(found) == len(expected)
    assert all((ours == theirs).all() for ours, theirs in zip(found, expected, strict=True))
    assert all((mask == found[0]).all() for mask in masks[:split_layer])
    assert all((mask == found[-1]).all() for mask in masks[split_layer:])


@pytest.mark.parametrize("length", [1, 2, 7, 30, 64])
@pytest.mark.parametrize(
    "options",
    [
        {"local_radius": 2, "pooling_rate": 3},
        {"local_radius": 1, "pooling_rate": 2},
        {"variant": "fixed", "local_radius": 3, "pooling_rate": 2, "num_levels": 2},
        {"variant": "fixed", "local_radius": 4, "num_levels": 1},
    ],
)
def test_mulla_reaches_what_its_attention_mixes_in(length: int, options: dict) -> None:
    """With a value of its own for each token, the output shows which tokens each query mixes in."""
    pyramid = make_pyramid(**{"variant": "dynamic", **options})
    shape = (1, 1, length, length)
    bias = torch.zeros(1, 1, 2 * pyramid.radius + 1)
    plan = plan_attention(bias, torch.tensor([length]), pyramid, length=length, backend="reference")
    mixed = mulla_attention(torch.zeros(shape), torch.zeros(shape), torch.eye(length).view(shape), plan)[0, 0] > 0
    [pattern] = build("mulla", {"length": length, **options}).patterns
    runs = runs_of(pattern)
    assert (finest_blocks(pattern, runs, rows=length, columns=length) > 0).tolist() == mixed.tolist()
    assert count_pairs(pattern, runs).least_reach_of_all == mixed.sum(1).min()


def test_mulla_weighs_every_visible_slot_alike_where_nothing_speaks_against_it() -> None:
    """A token weighs what the slots do that it is in: each level is as the picture says, not their union only."""
    length, radius, rate = 23, 2, 3
    [levels] = _visible("mulla", length=length, local_radius=radius, pooling_rate=rate)
    shape = (1, 1, length, length)
    pyramid = Pyramid(radius, rate)
    plan = plan_attention(torch.zeros(1, 1, 5), torch.tensor([length]), pyramid, length=length)
    weights = mulla_attention(torch.zeros(shape), torch.zeros(shape), torch.eye(length).view(shape), plan)[0, 0]
    expected = np.zeros((length, length))
    for index, level in enumerate(levels):
        slots = [range(length)[at : at + rate**index] for at in range(0, length, rate**index)]
        for slot, tokens in enumerate(slots):
            expected[:, tokens] += level[:, [slot]] / len(tokens)
    expected /= sum(level.sum(1, keepdims=True) for level in levels)
    np.testing.assert_allclose(weights.numpy(), expected, atol=1e-6)


def _peers_mask(length: int, radius: int) -> np.ndarray:
    """`[length, length]` out of the blocks of transformers' LongT5."""
    block = radius + 1
    blocked = modeling_longt5._get_local_attention_mask(torch.ones(1, length), block, torch.device("cpu"))[0, 0]
    dense = np.zeros((length, length), dtype=bool)
    for query in range(length):
        for column in range(3 * block):
            key = (query // block - 1) * block + column
            if 0 <= key < length:
                dense[query, key] = blocked[query // block, query % block, column]
    return dense


@pytest.mark.parametrize("radius", [1, 3, 40])
@pytest.mark.parametrize("length", [1, 5, 16, 37])
def test_local_and_tglobal_are_those_of_transformers(length: int, radius: int) -> None:
    expected = _peers_mask(length, radius)
    [[local]] = _visible("local", length=length, local_radius=radius)
    assert (local == expected).all()
    [blocks] = _visible("tglobal", length=length, local_radius=radius, global_block_size=4)
    assert (blocks[0] == expected).all()
    if length < 4:
        assert len(blocks) == 1
        return
    assert blocks[1].shape == (length, length // 4) and blocks[1].all()
    ids, _ = modeling_longt5._make_global_fixed_block_ids(torch.ones(1, length), 4)
    sums = modeling_longt5._create_global_aggregates(torch.eye(length)[None], ids, length // 4)[0]
    [pattern] = build("tglobal", {"length": length, "local_radius": radius, "global_block_size": 4}).patterns
    covered = [(tokens.nonzero().min().item(), tokens.nonzero().max().item() + 1) for tokens in sums > 0]
    borders = pattern.blocks[1].borders.tolist()
    assert covered == list(zip(borders[:-1], borders[1:], strict=True))


def test_full_sees_all() -> None:
    [[full]] = _visible("full", length=6)
    assert full.shape == (6, 6) and full.all()


def test_a_window_as_wide_as_the_text_is_full_attention() -> None:
    assert np.array_equal(_visible("local", length=9, local_radius=9), _visible("full", length=9))


@given(st.lists(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=8, max_size=8), max_size=3))
def test_counts_are_those_of_the_square(ranges) -> None:
    ranges = [[tuple(sorted(pair)) for pair in block] for block in [*ranges, [(0, 1)] * 8]]
    blocks = tuple(Block(f"block {index}", np.arange(9)) for index in range(len(ranges)))
    pattern = Pattern("drawn", 8, blocks, lambda query: [range(*block[query]) for block in ranges])
    runs = runs_of(pattern)
    squares = np.stack([_dense(own, 8) for own in runs])
    counts = count_pairs(pattern, runs)
    assert counts.visible_pairs == tuple(squares.sum((1, 2)))
    assert counts.least_reach == tuple(squares.sum(2).min(1))
    assert counts.mean_reach == tuple(squares.sum(2).mean(1))
    assert counts.least_reach_of_all == squares.any(0).sum(1).min()
    assert counts.sees_whole_text == squares.any(0).all()
    assert counts.share_of_full == squares.sum() / 64


def test_slots_cover_their_tokens() -> None:
    [pattern] = build("mulla", {"length": 10, "local_radius": 1, "pooling_rate": 4}).patterns
    covered = covered_runs(pattern, runs_of(pattern))
    assert [block.borders.tolist() for block in pattern.blocks[1:]] == [[0, 4, 8, 10], [0, 10]]
    assert covered[:, 9].tolist() == [[8, 10], [4, 10], [0, 10]]


def test_memory_is_not_the_square() -> None:
    [pattern] = build("mulla", {"length": 4096}).patterns
    tracemalloc.start()
    runs = runs_of(pattern)
    count_pairs(pattern, runs)
    finest_blocks(pattern, runs, rows=24, columns=80)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4096**2 / 8


def test_the_queries_asked_are_reported() -> None:
    done: list[int] = []
    [pattern] = build("full", {"length": 2500}).patterns
    runs_of(pattern, done.append)
    assert sum(done) == 2500 and len(done) > 1


def test_settings_leave_nothing_open() -> None:
    assert build("mulla", {}).settings == {
        "length": 16_384,
        "variant": "dynamic",
        "local_radius": 127,
        "pooling_rate": 8,
        "num_levels": 4,
    }
    assert build("mulla", {"variant": "fixed"}).settings["pooling_rate"] == 4
    assert build("deformer", {"split_layer": 0}).patterns[0].name == "all layers"
    assert build("deformer", {"split_layer": 1}).patterns[0].name == "layer 1"


def test_every_family_draws_itself_with_its_defaults() -> None:
    for family in FAMILIES:
        assert set(options_of(family)) and build(family, {}).patterns[0].blocks[0].keys > 0


@pytest.mark.parametrize(
    ("family", "given_options", "sentence"),
    [
        (
            "funnels",
            {},
            "expected a family, one of deformer, mulla, funnel, local, tglobal, full, got 'funnels'; choose one",
        ),
        ("mulla", {"split_layer": 2}, "`split_layer` must come with deformer, got it with mulla; leave it out"),
        (
            "deformer",
            {"length": 2},
            "`length` must come with mulla or funnel or local or tglobal or full, got it with deformer",
        ),
        ("full", {"colour": 2}, "`colour` must come with no family, got it with full; leave it out"),
        ("mulla", {"length": 0}, "`length` must be at least 1, got 0; choose a larger one"),
        ("full", {"length": LONGEST + 1}, "`length` must be at most 1,048,576, got 1,048,577; choose a smaller one"),
        ("mulla", {"local_radius": 0}, "`local_radius` must be at least 1, got 0; choose a larger one"),
        ("local", {"local_radius": 0}, "`local_radius` must be at least 1, got 0; choose a larger one"),
        ("tglobal", {"local_radius": -1}, "`local_radius` must be at least 1, got -1; choose a larger one"),
        ("tglobal", {"global_block_size": 0}, "`global_block_size` must be at least 1, got 0; choose a larger one"),
        ("mulla", {"pooling_rate": 1}, "`pooling_rate` must be at least 2, got 1; choose a larger one"),
        ("mulla", {"variant": "fixed", "num_levels": 0}, "`num_levels` must be at least 1, got 0; choose a larger"),
        ("mulla", {"num_levels": 2}, "`num_levels` must come with the variant fixed, got 2 with dynamic, which takes"),
        ("mulla", {"variant": "wide"}, "`variant` must be fixed or dynamic, got 'wide'; choose one of them"),
        (
            "mulla",
            {"variant": "fixed", "num_levels": 10**9},
            "expected slots shorter than 2^62 (in tokens), got 1,000,000,000 levels with the pooling rate 4; choose",
        ),
        (
            "mulla",
            {"variant": "fixed", "pooling_rate": 3, "num_levels": 50},
            "expected slots shorter than 2^62 (in tokens), got 50 levels with the pooling rate 3; choose fewer",
        ),
        ("mulla", {"pooling_rate": 2**70}, "expected slots shorter than 2^62 (in tokens), got 2 levels with the"),
        ("deformer", {"split_layer": -1}, "`split_layer` must be at least 0, got -1; choose a larger one"),
        ("deformer", {"question_tokens": 0}, "`question_tokens` must be at least 1, got 0; choose a larger one"),
        ("deformer", {"passage_tokens": 0}, "`passage_tokens` must be at least 1, got 0; choose a larger one"),
        (
            "deformer",
            {"passage_tokens": LONGEST},
            "`question_tokens + passage_tokens` must be at most 1,048,576, got 1,048,603; choose a smaller one",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_a_sentence(family, given_options, sentence) -> None:
    with pytest.raises(UsageError, match=re.escape(sentence)):
        build(family, given_options)


def test_a_pattern_too_long_to_ask_is_refused() -> None:
    pattern = Pattern("long", LONGEST + 1, (), lambda query: [])
    with pytest.raises(
        UsageError, match=r"expected a text of at most 1,048,576 tokens, got 1,048,577; look at a shorter"
    ):
        runs_of(pattern)


def test_many_levels_of_a_short_text_are_drawn() -> None:
    [pattern] = build("mulla", {"variant": "fixed", "length": 5, "pooling_rate": 2, "num_levels": 62}).patterns
    assert [block.keys for block in pattern.blocks[:5]] == [5, 3, 2, 1, 1] and len(pattern.blocks) == 62


def test_defaults_are_those_of_the_model() -> None:
    from narrows.mulla import MullaT5Config

    for variant in ("dynamic", "fixed"):
        assert make_pyramid(variant=variant) == MullaT5Config(variant=variant).pyramid
    assert options_of("mulla")["local_radius"] == MullaT5Config().local_radius


@pytest.mark.parametrize("length", [2, 9, 16, 31])
@pytest.mark.parametrize("size", [2, 3])
def test_a_funnel_has_the_queries_and_keys_of_its_model(length: int, size: int) -> None:
    from narrows.funnel import FunnelConfig, FunnelModel

    sizes = {"d_model": 8, "n_head": 2, "d_head": 4, "d_inner": 8, "vocab_size": 11}
    config = FunnelConfig(block_sizes=[2, 2, 2], pooling_size=size, funnel_backend="reference", **sizes)
    model = FunnelModel(config).eval()
    with torch.no_grad():
        shown = model(torch.ones(1, length, dtype=torch.long), output_attentions=True).attentions
    patterns = {pattern.name: pattern for pattern in build("funnel", {"length": length, "pooling_size": size}).patterns}
    layers = [weights for block in shown[:3] for weights in block]
    assert len(layers) == 6
    for layer, weights in enumerate(layers):
        name = f"block {layer // 2 + 1}" + (("", "") if layer < 2 else (", first layer", ", other layers"))[layer % 2]
        pattern = patterns[name]
        assert (pattern.length, pattern.blocks[0].keys) == tuple(weights.shape[2:]), name
        counts = count_pairs(pattern, runs_of(pattern))
        assert counts.sees_whole_text and counts.full_pairs == length**2
        assert sum(counts.visible_pairs) == weights[0, 0].numel()
