"""The pyramid: which slots every query sees, that none of the text is lost to it, and what a slot holds."""

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from narrows.errors import UsageError
from narrows.mulla import Pyramid
from narrows.mulla.levels import pool, unpool_


def _definition(position: int, length: int, radius: int, rate: int, num_levels: int | None) -> list[list[int]]:
    """The README's rule with nothing but token sets: a slot is the tokens it covers."""
    level, found = [[token] for token in range(length)], []
    while True:
        proxy = next(slot for slot, tokens in enumerate(level) if position in tokens)
        found.append([slot for slot in range(len(level)) if abs(slot - proxy) <= radius])
        if len(found) == num_levels or (num_levels is None and len(level) <= radius):
            return found
        level = [sum(level[start : start + rate], []) for start in range(0, len(level), rate)]


@pytest.mark.parametrize("num_levels", [None, 1, 2, 3])
@pytest.mark.parametrize("rate", [2, 3, 4, 8])
@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 9, 31, 64, 65, 127, 500, 999, 2000])
def test_visible_slots_are_those_of_the_definition(length, rate, num_levels):
    draw = random.Random(f"{length} {rate} {num_levels}")
    for radius in (1, 2, 5, 17, 127):
        positions = {0, length - 1, length // 2, draw.randrange(length)}
        pyramid = Pyramid(radius, rate, num_levels)
        for position in positions:
            expected = _definition(position, length, radius, rate, num_levels)
            assert [list(slots) for slots in pyramid.visible(position, length)] == expected


def test_every_query_sees_the_whole_text_when_levels_are_dynamic():
    draw = random.Random(0)
    lengths = [*range(1, 70), 1023, 1024, 1025, 4096, 65_535, 65_536, *(draw.randint(1, 65_536) for _ in range(150))]
    for length in lengths:
        for radius, rate in ((1, 2), (3, 8), (127, 8), (127, 4), (draw.randint(1, 200), draw.randint(2, 16))):
            pyramid = Pyramid(radius, rate)
            for position in (0, length - 1, draw.randrange(length)):
                *_, last = pyramid.visible(position, length)
                span = pyramid.span(len(pyramid.lengths(length)) - 1)
                assert last.start == 0 and last.stop * span >= length > (last.stop - 1) * span


@pytest.mark.slow
@pytest.mark.parametrize(("radius", "rate"), [(127, 8), (3, 2)])
def test_every_length_up_to_64k_is_seen_whole_from_both_of_its_ends(radius, rate):
    # What both ends see at the last level, all tokens between them see: their proxies lie between.
    pyramid = Pyramid(radius, rate)
    for length in range(1, 65_537):
        slots = pyramid.lengths(length)
        for position in (0, length - 1):
            assert pyramid.visible(position, length)[-1] == range(slots[-1])
        span = pyramid.span(len(slots) - 1)
        assert slots[-1] * span >= length > (slots[-1] - 1) * span


def test_levels_end_with_the_first_that_is_no_longer_than_the_radius():
    assert Pyramid(127, 8).lengths(127) == (127,)
    assert Pyramid(127, 8).lengths(128) == (128, 16)
    assert Pyramid(127, 8).lengths(127 * 8) == (1016, 127)
    assert Pyramid(127, 8).lengths(127 * 8 + 1) == (1017, 128, 16)
    assert Pyramid(127, 8).lengths(49_152) == (49_152, 6144, 768, 96)
    assert Pyramid(127, 8).lengths(0) == (0,)
    assert Pyramid(127, 4, 3).lengths(5) == (5, 2, 1)


def _states(length: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(2, 3, length, 5, generator=torch.Generator().manual_seed(length)).to(dtype)


@given(length=st.integers(1, 67), rate=st.integers(2, 9), levels=st.integers(1, 4))
def test_a_slot_is_the_mean_of_the_tokens_it_covers(length, rate, levels):
    states = _states(length)
    for level, pooled in enumerate(pool(states, pooling_rate=rate, num_levels=levels)):
        covered = states.split(rate**level, dim=2)
        torch.testing.assert_close(pooled, torch.stack([part.mean(2) for part in covered], 2), atol=1e-12, rtol=0)


def test_sums_are_kept_in_fp32():
    states = torch.ones(1, 1, 4096, 1, dtype=torch.bfloat16)
    assert all(torch.equal(level, torch.ones_like(level)) for level in pool(states, pooling_rate=8, num_levels=5))


@given(length=st.integers(1, 67), rate=st.integers(2, 9), levels=st.integers(1, 4))
def test_unpool_is_the_adjoint_of_pool(length, rate, levels):
    states = _states(length)
    pooled = pool(states, pooling_rate=rate, num_levels=levels)
    gradients = [torch.randn(level.shape, dtype=level.dtype) for level in pooled]
    expected = sum((level * gradient).sum() for level, gradient in zip(pooled, gradients, strict=True))
    got = (states * unpool_(gradients, pooling_rate=rate)).sum()
    torch.testing.assert_close(got, expected, atol=1e-10, rtol=1e-10)


def test_a_rate_beyond_the_text_takes_no_longer_than_the_text():
    # A step for each slot that one *could* cover would not end.
    states = _states(9)
    pooled = pool(states, pooling_rate=2**40, num_levels=2)
    torch.testing.assert_close(pooled[1], states.mean(2, keepdim=True))
    gradient = unpool_([torch.zeros_like(states), torch.ones_like(pooled[1])], pooling_rate=2**40)
    torch.testing.assert_close(gradient, torch.full_like(states, 1 / 9))


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((0, 8, None), "`radius` must be a whole number of at least 1, got 0; choose such a one"),
        ((127, 1, None), "`pooling_rate` must be a whole number of at least 2, got 1; choose such a one"),
        ((127, 8, 0), "`num_levels` must be a whole number of at least 1, got 0; choose such a one"),
        ((True, 8, None), "`radius` must be a whole number of at least 1, got True; choose such a one"),
    ],
)
def test_a_number_out_of_range_is_named(numbers, message):
    with pytest.raises(UsageError) as caught:
        Pyramid(*numbers)
    assert str(caught.value) == message
