"""Moving real tokens to the front of their rows, and back."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from narrows.core import compact

ROWS = st.integers(1, 13).flatmap(
    lambda length: st.lists(st.lists(st.booleans(), min_size=length, max_size=length), min_size=1, max_size=4)
)


@given(ROWS)
def test_real_tokens_come_first_in_their_order(rows):
    real = torch.tensor(rows)
    moved = compact(real)
    positions = torch.arange(real.shape[1]).expand(real.shape)
    for row, length, order in zip(rows, moved.lengths.tolist(), moved.gather(positions).tolist(), strict=True):
        assert length == sum(row)
        assert order[:length] == [position for position, is_real in enumerate(row) if is_real]


@given(ROWS)
def test_scatter_undoes_gather(rows):
    moved = compact(torch.tensor(rows))
    states = torch.randn(len(rows), len(rows[0]), 3, 2, generator=torch.Generator().manual_seed(0))
    assert torch.equal(moved.scatter(moved.gather(states)), states)
