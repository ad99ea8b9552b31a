"""From block to block: states, masks, segments and positions, by the three rules."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import FunnelConfig as TheirConfig
from transformers.models.funnel import modeling_funnel

from narrows.funnel import Pooling, Slots, upsample


def _windows(length: int, size: int, separate_cls: bool) -> list[range]:
    start = int(separate_cls)
    rest = [range(first, min(first + size, length)) for first in range(start, length, size)]
    return [range(1), *rest] if separate_cls else rest


@given(
    st.integers(1, 23), st.integers(2, 5), st.booleans(), st.sampled_from(["mean", "max", "top_attention"]), st.data()
)
def test_exact_is_pooling_of_real_slots_by_sets(length, size, separate_cls, kind, data):
    mask = torch.tensor([data.draw(st.lists(st.booleans(), min_size=length, max_size=length))])
    states, received = torch.randn(1, length, 3), torch.rand(1, length)
    segments = torch.randint(0, 3, (1, length))
    pooling, slots = Pooling(kind, size, separate_cls), Slots(length, mask=mask, segments=segments)
    got, after = pooling.states(states, slots, received=received), pooling.slots(slots)
    windows = _windows(length, size, separate_cls)
    assert after.length == got.shape[1] == len(windows)
    for number, window in enumerate(windows):
        real = [place for place in window if mask[0, place]]
        assert bool(after.mask[0, number]) == bool(real)
        assert after.segments[0, number] == segments[0, window[0]]
        if separate_cls and number == 0:
            want = states[0, 0]
        elif not real:
            assert torch.isfinite(got[0, number]).all()
            continue
        elif kind == "mean":
            want = states[0, real].mean(0)
        elif kind == "max":
            want = states[0, real].amax(0)
        else:
            want = states[0, max(real, key=lambda place: float(received[0, place]))]
        torch.testing.assert_close(got[0, number], want)


@pytest.mark.parametrize(("separate_cls", "truncate"), list(itertools.product((True, False), repeat=2)))
def test_hf_and_official_pool_what_transformers_code_pools(separate_cls, truncate):
    for length, kind in itertools.product(range(3, 21), ("mean", "max")):
        theirs = modeling_funnel.FunnelAttentionStructure(
            TheirConfig(separate_cls=separate_cls, truncate_seq=truncate, pooling_type=kind)
        )
        states, mask = torch.randn(2, length, 5), torch.rand(2, length) > 0.4
        segments = torch.randint(0, 3, (2, length))
        slots = Slots(length, mask=mask, segments=segments)
        pooling = Pooling(kind, 2, separate_cls, truncate, "hf")
        after = pooling.slots(slots)
        torch.testing.assert_close(pooling.states(states, slots), theirs.pool_tensor(states, kind))
        assert torch.equal(after.mask, theirs.pool_tensor(mask.float(), "min").bool())
        assert torch.equal(after.segments, theirs.stride_pool(segments, 1))
        # The authors' 1 is padding: with the same minimum a slot is padding only if all of it is.
        official = pooling._replace(rule="official").slots(slots)
        assert torch.equal(official.mask, ~theirs.pool_tensor((~mask).float(), "min").bool())
        positions = [after.first + after.stride * place for place in range(after.length)]
        assert positions == theirs.stride_pool_pos(list(range(length)), 1)
        pooled = torch.randn(2, after.length, 5)
        want = modeling_funnel.upsample(pooled, 2, length, separate_cls, truncate)
        assert torch.equal(upsample(pooled, length, factor=2, pooling=pooling), want)


@given(st.integers(1, 70), st.integers(2, 4), st.booleans(), st.integers(1, 3))
def test_upsampling_undoes_the_numbering(length, size, separate_cls, times):
    """Pooled indices of tokens, brought back, say in which slot each token ended."""
    pooling, slots = Pooling("max", size, separate_cls), Slots(length)
    numbers = torch.arange(length, dtype=torch.float32)[None, :, None]
    for _ in range(times):
        numbers, slots = pooling.states(numbers, slots), pooling.slots(slots)
    last = upsample(numbers, length, factor=size**times, pooling=pooling).flatten().tolist()
    assert all(token <= end < token + size**times for token, end in enumerate(last))
    assert slots.stride == size**times and len(set(last)) == slots.length


def test_sums_are_in_fp32():
    states = torch.tensor([256.0, 1.0, 1.0, 1.0] + [0.0] * 4, dtype=torch.bfloat16).view(1, 8, 1)
    # In bf16 256 + 1 is 256.
    assert Pooling("mean", 8, False).states(states, Slots(8)).item() == torch.tensor(259 / 8).bfloat16().item()


def test_totals_are_sums_of_windows():
    numbers = torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]])
    assert Pooling().totals(numbers).tolist() == [[1.0, 5.0, 9.0, 6.0]]
    assert Pooling(separate_cls=False, rule="hf").totals(numbers[:, :1]).tolist() == [[1.0]]
