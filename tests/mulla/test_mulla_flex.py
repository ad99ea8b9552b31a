"""The flex form: its blocks are those of the formula, its values the reference's, and what it cannot do it says."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import flex_attention

from narrows.errors import UsageError
from narrows.mulla import Pyramid, flex, mulla_attention, plan_attention

HEADS = 2


def _outputs(lengths: list[int], length: int, pyramid: Pyramid, dtype=torch.float32) -> list[torch.Tensor]:
    """Of the reference and of flex."""
    generator = torch.Generator().manual_seed(length)
    query, key, value = (torch.randn(len(lengths), HEADS, length, 16, generator=generator).to(dtype) for _ in range(3))
    shape = len(pyramid.lengths(length)), HEADS, 2 * pyramid.radius + 1
    bias = torch.randn(shape, generator=generator, requires_grad=True)
    query[0, :, lengths[0] :] = key[0, :, lengths[0] :] = value[0, :, lengths[0] :] = float("nan")
    with torch.no_grad():
        plans = [
            plan_attention(bias, torch.tensor(lengths), pyramid, length=length, backend=backend)
            for backend in ("reference", "flex")
        ]
        return [mulla_attention(query, key, value, plan) for plan in plans]


@given(st.integers(1, 700), st.integers(1, 700), st.integers(1, 90), st.integers(2, 9), st.sampled_from([None, 1, 3]))
def test_blocks_that_meet_hold_all_that_is_seen(first, second, radius, rate, num_levels):
    length, lengths, pyramid = max(first, second), torch.tensor([first, second]), Pyramid(radius, rate, num_levels)
    plan = plan_attention(torch.zeros(1, HEADS, 2 * radius + 1), lengths, pyramid, length=length, backend="flex")
    blocks = plan.form.blocks.to_dense()[:, 0].bool()
    for row, real in enumerate((first, second)):
        expected = torch.zeros_like(blocks[row])
        starts = [0]
        for slots in pyramid.lengths(length):
            starts.append(starts[-1] + -(-slots // 128))
        for position in range(real):
            for start, seen in zip(starts, pyramid.visible(position, real), strict=False):
                expected[position // 128, start + seen.start // 128 : start + (seen.stop - 1) // 128 + 1] = True
        assert bool((blocks[row] >= expected).all())
        # Where all queries of a block exist, none is visited in vain.
        assert torch.equal(blocks[row][: real // 128], expected[: real // 128])


def test_flex_equals_the_reference_uncompiled(monkeypatch):
    monkeypatch.setattr(flex, "_compiled", lambda: flex_attention)
    for expected, got in (
        _outputs([17, 50, 0, 1], 50, Pyramid(3, 2)),
        _outputs([133, 150], 150, Pyramid(7, 4, num_levels=2)),
    ):
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_flex_equals_the_reference_compiled(dtype):
    expected, got = _outputs([211, 300, 0], 300, Pyramid(7, 4), dtype)
    torch.testing.assert_close(got, expected, atol=1e-5 if dtype == torch.float32 else 5e-2, rtol=0)


@pytest.mark.parametrize(
    ("dtype", "gradient", "dropout", "message"),
    [
        (
            torch.float32,
            False,
            0.1,
            "`dropout` must be 0 with the flex backend, got 0.1; FlexAttention has none, use the tiled backend",
        ),
        (
            torch.float64,
            False,
            0.0,
            "the flex backend must have fp32 or bf16, got float64; use the reference or the tiled backend",
        ),
        (
            torch.float32,
            True,
            0.0,
            "the flex backend must run under torch.no_grad() on a CPU, got tensors that require a gradient; "
            "use the tiled backend to train",
        ),
    ],
)
def test_what_flex_cannot_do_is_refused_by_name(dtype, gradient, dropout, message):
    plan = plan_attention(torch.zeros(1, HEADS, 7), torch.tensor([9]), Pyramid(3, 2), length=9, backend="flex")
    states = torch.zeros(1, HEADS, 9, 16, dtype=dtype, requires_grad=gradient)
    with pytest.raises(UsageError) as caught:
        mulla_attention(states, states, states, plan, dropout=dropout)
    assert str(caught.value) == message
