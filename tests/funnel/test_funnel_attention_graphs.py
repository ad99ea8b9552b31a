"""Funnel attention compiles once for all lengths and exports with a length left open, pooled queries included."""

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounter
from torch._subclasses.fake_tensor import FakeTensorMode

from narrows.funnel.attention import Geometry, RelativeTerms, attend_relative, relative_table

HEADS, DIM, WIDTH = 2, 4, 8


class _Layer(nn.Module):
    def __init__(self, *, pooled: bool) -> None:
        super().__init__()
        shapes = [(HEADS, DIM)] * 3 + [(WIDTH, HEADS, DIM), (2, HEADS, DIM)]
        generator = torch.Generator().manual_seed(0)
        self.terms = nn.ParameterList(nn.Parameter(torch.randn(shape, generator=generator)) for shape in shapes)
        self.pooled = pooled

    def forward(self, states, ids, mask, backend="auto"):
        query, query_ids, first, stride = states, ids, 0, 1
        if self.pooled:
            query = torch.cat([states[:, :, :1], states[:, :, 1::2]], 2)
            query_ids, first, stride = torch.cat([ids[:, :1], ids[:, 1::2]], 1), -1, 2
        geometry = Geometry(query.shape[2], states.shape[2], first, stride)
        return attend_relative(
            query,
            states,
            states,
            terms=RelativeTerms(*self.terms),
            geometry=geometry,
            query_segments=query_ids,
            key_segments=ids,
            mask=mask,
            tables=relative_table(geometry, width=WIDTH),
            backend=backend,
        )


def _batch(rows: int, length: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(length)
    ids = torch.randint(0, 2, (rows, length), generator=generator)
    ids[:, 0] = 2
    mask = torch.ones(rows, length, dtype=torch.bool)
    mask[0, length // 2 + 1 :] = False
    return torch.randn(rows, HEADS, length, DIM, generator=generator), ids, mask


@pytest.mark.parametrize("pooled", [False, True])
def test_one_graph_serves_all_lengths(pooled):
    torch._dynamo.reset()
    layer, counter = _Layer(pooled=pooled), CompileCounter()
    compiled = torch.compile(layer, backend=counter, dynamic=True, fullgraph=True)
    with torch.no_grad():
        for length in (16, 9, 33, 130, 64):
            batch = _batch(2, length)
            torch.testing.assert_close(compiled(*batch), layer(*batch, backend="reference"), atol=1e-5, rtol=0)
    assert counter.frame_count == 1


@pytest.mark.parametrize("pooled", [False, True])
def test_an_exported_layer_runs_at_unseen_lengths(pooled):
    layer = _Layer(pooled=pooled).eval()
    rows, length = torch.export.Dim("rows", max=64), torch.export.Dim("length", min=4, max=8192)
    shapes = ({0: rows, 2: length}, {0: rows, 1: length}, {0: rows, 1: length})
    exported = torch.export.export(layer, _batch(3, 16), dynamic_shapes=shapes, strict=False).module()
    for batch in (_batch(1, 4), _batch(2, 7), _batch(4, 65), _batch(2, 300)):
        torch.testing.assert_close(exported(*batch), layer(*batch, backend="reference"), atol=1e-5, rtol=0)


def test_lengths_below_four_need_no_graph():
    layer = _Layer(pooled=True)
    for length in (1, 2, 3):
        batch = _batch(2, length)
        for backend in ("sdpa", "tiled"):
            torch.testing.assert_close(layer(*batch, backend=backend), layer(*batch, backend="reference"))


def test_shapes_without_values_can_be_run():
    """As `narrows inspect memory` does; what is made then must not be kept for later."""
    with FakeTensorMode():
        layer, batch = _Layer(pooled=False), _batch(2, 70)
        assert layer(*batch).sum().requires_grad
        layer(*batch).sum().backward()
    batch, layer = _batch(2, 70), _Layer(pooled=False)
    torch.testing.assert_close(layer(*batch), layer(*batch, backend="reference"), atol=1e-5, rtol=0)
