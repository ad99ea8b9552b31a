"""Means over real tokens, of texts and of windows, beside loops."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from narrows.core.pooling import masked_mean, window_means
from narrows.errors import UsageError


def _windows(length: int, rate: int, separate_cls: bool) -> list[range]:
    first = [range(1)] if separate_cls else []
    return first + [range(start, min(start + rate, length)) for start in range(len(first), length, rate)]


@given(
    length=st.integers(1, 40),
    times=st.integers(0, 5),
    size=st.integers(2, 3),
    cls=st.booleans(),
    seed=st.integers(0, 9),
)
def test_window_means_are_those_of_a_loop(length, times, size, cls, seed) -> None:
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(2, length, 3, generator=generator, dtype=torch.float64)
    real = torch.rand(2, length, generator=generator) < 0.6
    windows = _windows(length, size**times, cls)
    found = window_means(states, real, slots=len(windows), pooling_size=size, separate_cls=cls)
    for row in range(2):
        for slot, window in enumerate(windows):
            chosen = states[row][[token for token in window if real[row, token]]]
            expected = chosen.mean(0) if len(chosen) else torch.zeros(3, dtype=torch.float64)
            torch.testing.assert_close(found.means[row, slot], expected)
            assert bool(found.real[row, slot]) == any(bool(real[row, token]) for token in window)


def test_pooling_twice_is_pooling_once_by_more() -> None:
    states, real = torch.randn(1, 17, 2, dtype=torch.float64), torch.ones(1, 17, dtype=torch.bool)
    half = window_means(states, real, slots=9, separate_cls=True)
    twice = window_means(half.means, half.real, slots=5, separate_cls=True)
    torch.testing.assert_close(twice.means, window_means(states, real, slots=5, separate_cls=True).means)


def test_padding_changes_no_mean() -> None:
    states, real = torch.randn(1, 6, 2), torch.ones(1, 6, dtype=torch.bool)
    padded = torch.cat([states, torch.full((1, 3, 2), 9.0)], 1)
    mask = torch.cat([real, torch.zeros(1, 3, dtype=torch.bool)], 1)
    torch.testing.assert_close(masked_mean(padded, mask), masked_mean(states, real))
    alone = window_means(states, real, slots=3)
    found = window_means(padded, mask, slots=5)
    torch.testing.assert_close(found.means[:, :3], alone.means)
    assert found.real.tolist() == [[True, True, True, False, False]]


@pytest.mark.parametrize("cls", [False, True])
def test_padding_that_is_no_number_counts_nowhere(cls) -> None:
    states, real = torch.randn(1, 7, 2), torch.tensor([[True, True, False, True, False, False, False]])
    if cls:
        real[:, 0] = False
    expected = window_means(states, real, slots=4, separate_cls=cls)
    found = window_means(states.masked_fill(~real.unsqueeze(-1), float("nan")), real, slots=4, separate_cls=cls)
    assert torch.equal(found.means, expected.means) and bool(found.means.isfinite().all())


@pytest.mark.parametrize("size", [-1, 0, 1])
def test_windows_of_fewer_than_two_tokens_are_refused(size) -> None:
    with pytest.raises(UsageError, match=f"`pooling_size` must be at least 2, got {size}; pass that of the encoder"):
        window_means(torch.ones(1, 5, 2), torch.ones(1, 5, dtype=torch.bool), slots=3, pooling_size=size)


def test_a_text_without_tokens_has_a_mean_of_zeros() -> None:
    assert masked_mean(torch.ones(1, 2, 3), torch.zeros(1, 2, dtype=torch.bool)).tolist() == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize("slots", [4, 12])
def test_a_number_of_slots_that_pooling_does_not_come_to(slots) -> None:
    states, real = torch.zeros(1, 11, 1), torch.ones(1, 11, dtype=torch.bool)
    with pytest.raises(
        UsageError, match=f"expected states that pooling by 2 makes of 11 tokens, got {slots} slots; comp"
    ):
        window_means(states, real, slots=slots)
