"""Masks and positions against plain loops."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from narrows.core import key_mask, same_segment_mask, segment_positions

# One token: is it real, and of which segment.
ROWS = st.lists(st.tuples(st.booleans(), st.integers(0, 1)), min_size=1, max_size=17)


def _tensors(row: list[tuple[bool, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([[real for real, _ in row]]), torch.tensor([[segment for _, segment in row]])


@given(ROWS)
def test_masks_equal_a_loop(row):
    real, segments = _tensors(row)
    apart, together = same_segment_mask(real, segments), key_mask(real)
    assert apart.shape == (1, 1, len(row), len(row)) and together.shape == (1, 1, 1, len(row))
    for query, (_, of_query) in enumerate(row):
        for key, (is_real, of_key) in enumerate(row):
            assert bool(apart[0, 0, query, key]) == (is_real and of_query == of_key)
            assert bool(together[0, 0, 0, key]) == is_real


@given(ROWS, st.booleans())
def test_positions_count_real_tokens(row, restart):
    real, segments = _tensors(row)
    positions = segment_positions(real, segments, restart=restart)[0].tolist()
    seen = {0: 0, 1: 0}
    for (is_real, segment), position in zip(row, positions, strict=True):
        segment = segment if restart else 0
        if is_real:
            assert position == seen[segment]
            seen[segment] += 1
        else:
            assert position == max(seen[segment] - 1, 0)


@given(ROWS, st.integers(0, 5), st.integers(0, 5), st.booleans())
def test_positions_of_real_tokens_ignore_padding(row, left, right, restart):
    dense = [token for token in row if token[0]] or [(True, 0)]
    padded = [(False, 0)] * left + dense + [(False, 1)] * right
    expected = segment_positions(*_tensors(dense), restart=restart)[0]
    got = segment_positions(*_tensors(padded), restart=restart)[0, left : left + len(dense)]
    assert torch.equal(got, expected)
