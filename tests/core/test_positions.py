"""T5's buckets and the bias made of them, against transformers' own."""

import pytest
import torch
from transformers.models.longt5.modeling_longt5 import LongT5Attention
from transformers.models.t5.modeling_t5 import T5Attention

from narrows.core import relative_bias, relative_buckets


@pytest.mark.parametrize("max_distance", [20, 128, 1000])
@pytest.mark.parametrize("num_buckets", [8, 32, 64])
@pytest.mark.parametrize("theirs", [T5Attention, LongT5Attention], ids=["t5", "longt5"])
def test_buckets_equal_those_of_transformers(theirs, num_buckets, max_distance):
    distances = torch.arange(-3000, 3001)
    expected = theirs._relative_position_bucket(distances, True, num_buckets, max_distance)
    assert torch.equal(relative_buckets(distances, num_buckets=num_buckets, max_distance=max_distance), expected)


def test_the_bias_reads_the_table_at_each_offset():
    tables = torch.randn(3, 8, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    bias = relative_bias(tables, radius=7, max_distance=16)
    assert bias.shape == (3, 5, 15)
    buckets = T5Attention._relative_position_bucket(torch.arange(-7, 8), True, 8, 16).tolist()
    for offset, bucket in enumerate(buckets):
        assert torch.equal(bias[:, :, offset], tables[:, bucket])
    (gradient,) = torch.autograd.grad(bias.sum(), tables)
    assert gradient[0, :, 0].tolist() == [float(buckets.count(bucket)) for bucket in range(8)]
