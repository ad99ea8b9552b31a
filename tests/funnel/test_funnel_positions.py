"""Funnel's positions: the closed form, its precision, and what is kept and for how long."""

import gc

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from narrows.errors import UsageError
from narrows.funnel import projection
from narrows.funnel.positions import Geometry, factor_tables, kept_rows, relative_table, sinusoids
from narrows.funnel.projection import project_distances


@given(
    queries=st.integers(1, 300),
    keys=st.integers(1, 300),
    shift=st.integers(1, 3),
    stride=st.sampled_from([1, 2, 4]),
    first_query=st.integers(-9, 300),
    first_key=st.integers(-9, 9),
)
def test_each_row_is_its_distance(queries, keys, shift, stride, first_query, first_key):
    geometry = Geometry(queries, keys, first_query, shift * stride, first_key, stride)
    table = relative_table(geometry, width=8)
    assert table.shape == (geometry.distances, 8)
    for query, key in ((0, 0), (queries - 1, 0), (0, keys - 1), (queries // 2, keys // 3)):
        distance = first_query + query * shift * stride - first_key - key * stride
        row = key - query * shift + (queries - 1) * shift
        torch.testing.assert_close(table[row : row + 1], sinusoids(distance, 1, 1, width=8), atol=0, rtol=0)


def test_tables_are_exact_in_fp32_at_any_distance():
    table = sinusoids(-60_000, 1, 3, width=6)
    assert table.dtype == torch.float32
    frequencies = 10000.0 ** (-torch.arange(3, dtype=torch.float64) / 3)
    angles = torch.arange(-60_000, -59_997, dtype=torch.float64)[:, None] * frequencies
    torch.testing.assert_close(table.double(), torch.cat([angles.sin(), angles.cos()], -1), atol=1e-7, rtol=0)


def test_factors_are_those_of_both_positions():
    tables = factor_tables(Geometry(3, 5, -1, 2, 0, 1), width=4)
    torch.testing.assert_close(tables.query, sinusoids(-1, 2, 3, width=4))
    torch.testing.assert_close(tables.key, sinusoids(0, 1, 5, width=4))


def test_similar_lengths_share_a_kept_table():
    first, second = (kept_rows(relative_table(Geometry(length, length), width=8)) for length in (70, 90))
    assert first is not None and second is not None
    assert first[0] is second[0] and first[1] != second[1]
    assert kept_rows(relative_table(Geometry(70, 70), width=8).clone()) is None


def test_a_table_made_in_inference_mode_serves_training():
    with torch.inference_mode():
        relative_table(Geometry(601, 601), width=4)
    weight = torch.ones(4, requires_grad=True)
    (relative_table(Geometry(601, 601), width=4) @ weight).sum().backward()


def _kernel() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.randn(8, 2, 3, generator=torch.Generator().manual_seed(0)))


def _expected(table, kernel):
    return torch.einsum("nw,whd->hnd", table, kernel) * 3**-0.5


def _step(kernel):
    kernel.grad = torch.ones_like(kernel)
    torch.optim.AdamW([kernel], lr=0.1).step()


def _step_fused(kernel):
    kernel.grad = torch.ones_like(kernel)
    torch.optim.AdamW([kernel], lr=0.1, fused=True).step()


def _load(kernel):
    module = torch.nn.Module()
    module.kernel = kernel
    module.load_state_dict({"kernel": torch.full_like(kernel, 0.5)})


def _write_data(kernel):
    kernel.data.mul_(1.5)


def _replace_data(kernel):
    kernel.data = torch.full_like(kernel, 0.25)


def _write_in_inference_mode(kernel):
    with torch.inference_mode():
        kernel.mul_(0.5)


@pytest.mark.parametrize(
    "change",
    [_step, _step_fused, _load, _write_data, _replace_data, _write_in_inference_mode],
    ids=lambda f: f.__name__,
)
def test_a_kept_product_is_never_stale(change):
    kernel, table = _kernel(), relative_table(Geometry(9, 9), width=8)
    with torch.no_grad():
        before = project_distances(table, kernel, dtype=torch.float32)
        again = project_distances(table, kernel, dtype=torch.float32)
        assert before.data_ptr() == again.data_ptr()
        change(kernel)
        after = project_distances(table, kernel, dtype=torch.float32)
        torch.testing.assert_close(after, _expected(table, kernel))
        assert not torch.equal(before, after)


def test_a_product_that_needs_a_gradient_has_one():
    kernel, table = _kernel(), relative_table(Geometry(9, 9), width=8)
    with torch.no_grad():
        project_distances(table, kernel, dtype=torch.float32)
    product = project_distances(table, kernel, dtype=torch.float32)
    (gradient,) = torch.autograd.grad(product.sum(), kernel)
    assert gradient.abs().sum() > 0


def test_kept_products_stay_within_their_bound_and_go_with_their_kernels(monkeypatch):
    table = relative_table(Geometry(9, 9), width=8)
    rows = kept_rows(table)
    assert rows is not None
    monkeypatch.setattr(projection, "_KEPT_AT_MOST", 3 * rows[0].shape[0] * 2 * 3 * 4)
    projection._kept.clear()
    with torch.no_grad():
        kernels = [_kernel() for _ in range(5)]
        for kernel in kernels:
            project_distances(table, kernel, dtype=torch.float32)
        assert len(projection._kept) == 3
        del kernels, kernel
        gc.collect()
        last = _kernel()
        project_distances(table, last, dtype=torch.float32)
    assert len(projection._kept) == 1


def test_bad_strides_and_widths_are_refused():
    with pytest.raises(
        UsageError, match="`query_stride` must be a multiple of `key_stride`, got 1 and 2; pool queries"
    ):
        relative_table(Geometry(3, 3, 0, 1, 0, 2), width=4)
    with pytest.raises(UsageError, match="`width` must be even, half sines and half cosines, got 5; choose an even"):
        sinusoids(0, 1, 2, width=5)
