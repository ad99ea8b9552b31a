"""`attend`: all backends give the same values and gradients, and a query that may see nothing gives zeros."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from narrows.core import attend
from narrows.errors import UsageError

BACKENDS = ["reference", "matmul", "sdpa"]

# Largest difference allowed between the backends, in values and gradients of order 1.
BUDGET = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 4e-2}

MASK_SHAPES = [(2, 3, 5, 7), (2, 1, 5, 7), (1, 3, 5, 7), (2, 1, 1, 7), (1, 1, 5, 7), (1, 1, 1, 7)]


def _tensors(queries: int, keys: int, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(queries * 101 + keys)
    shapes = [(2, 3, queries, 11), (2, 3, keys, 11), (2, 3, keys, 11)]
    return [torch.randn(s, generator=generator).to(dtype).requires_grad_() for s in shapes]


def _values_and_gradients(backend: str, dtype: torch.dtype, mask: torch.Tensor | None, queries: int, keys: int):
    inputs = _tensors(queries, keys, dtype)
    out = attend(*inputs, mask=mask, backend=backend)
    weight = torch.linspace(-1, 1, out.numel(), dtype=dtype).view_as(out)
    return [out, *torch.autograd.grad((out * weight).sum(), inputs)]


@pytest.mark.parametrize("dtype", BUDGET, ids=str)
@pytest.mark.parametrize("shape", [None, *MASK_SHAPES], ids=str)
@pytest.mark.parametrize("backend", BACKENDS[1:])
def test_a_faster_backend_equals_the_reference_in_values_and_gradients(backend, dtype, shape):
    mask = None
    if shape is not None:
        mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) > 0.4
        mask[..., 0] = True
    pairs = zip(*(_values_and_gradients(b, dtype, mask, 5, 7) for b in ("reference", backend)), strict=True)
    for expected, got in pairs:
        assert got.dtype == dtype
        torch.testing.assert_close(got, expected, atol=BUDGET[dtype], rtol=0)


@given(queries=st.integers(1, 13), keys=st.integers(1, 13), seed=st.integers(0, 99))
def test_all_backends_agree_at_any_length_and_mask(queries, keys, seed):
    mask = torch.rand(2, 1, queries, keys, generator=torch.Generator().manual_seed(seed)) > 0.5
    for dtype in (torch.float64, torch.float32):
        outcomes = [_values_and_gradients(b, dtype, mask, queries, keys) for b in BACKENDS]
        for expected, *others in zip(*outcomes, strict=True):
            for got in others:
                torch.testing.assert_close(got, expected, atol=BUDGET[dtype], rtol=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_values_are_those_of_the_formula(backend):
    query, key, value = (t.detach() for t in _tensors(5, 7, torch.float64))
    mask = torch.rand(2, 1, 5, 7, generator=torch.Generator().manual_seed(2)) > 0.3
    out = attend(query, key, value, mask=mask, backend=backend)
    for b in range(2):
        for h in range(3):
            for q in range(5):
                seen = [k for k in range(7) if mask[b, 0, q, k]]
                scores = [float(query[b, h, q] @ key[b, h, k]) / math.sqrt(11) for k in seen]
                weights = [math.exp(s) / sum(math.exp(t) for t in scores) for s in scores]
                expected = sum(w * value[b, h, k] for w, k in zip(weights, seen, strict=True))
                torch.testing.assert_close(out[b, h, q], expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", BUDGET, ids=str)
@pytest.mark.parametrize("shape", [(2, 1, 5, 7), (2, 1, 1, 7)], ids=str)
def test_a_query_that_sees_nothing_gives_zeros_and_no_gradient(backend, dtype, shape):
    mask = torch.ones(shape, dtype=torch.bool)
    mask[0, 0, 0] = False
    out, *gradients = _values_and_gradients(backend, dtype, mask, 5, 7)
    blind = slice(0, 1) if shape[2] == 5 else slice(None)
    assert torch.equal(out[0, :, blind], torch.zeros_like(out[0, :, blind]))
    assert torch.equal(gradients[0][0, :, blind], torch.zeros_like(gradients[0][0, :, blind]))
    assert all(bool(g.isfinite().all()) for g in gradients)
    if shape[2] == 1:
        assert not gradients[1][0].any() and not gradients[2][0].any()
    assert gradients[2][1].any()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_masked_key_changes_nothing(backend):
    query, key, value = (t.detach() for t in _tensors(5, 7, torch.float64))
    mask = torch.ones(1, 1, 1, 7, dtype=torch.bool)
    mask[..., 3] = False
    before = attend(query, key, value, mask=mask, backend=backend)
    key[:, :, 3], value[:, :, 3] = 9.0, -50.0
    assert torch.equal(before, attend(query, key, value, mask=mask, backend=backend))


@pytest.mark.parametrize("backend", BACKENDS)
def test_dropout_keeps_the_mean(backend):
    query, key, value = (t.detach() for t in _tensors(5, 7, torch.float64))
    exact = attend(query, key, value, backend=backend)
    torch.manual_seed(0)
    drawn = torch.stack([attend(query, key, value, dropout=0.3, backend=backend) for _ in range(600)])
    assert not torch.equal(drawn[0], drawn[1])
    assert float((drawn.mean(0) - exact).abs().max()) < 0.2


def test_an_unknown_backend_is_named():
    with pytest.raises(
        UsageError, match="`backend` must be one of reference, matmul, sdpa, got 'flash'; choose one of them"
    ):
        attend(*_tensors(1, 1, torch.float32), backend="flash")
