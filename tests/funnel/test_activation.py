"""gelu by tanh: torch's values and gradients, in place where nothing is kept."""

import pytest
import torch
from torch.nn import functional

from narrows.funnel import activation
from narrows.funnel.activation import gelu_by_tanh


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("part", [1, 7, 2**17])
def test_values_are_torchs(dtype, part, monkeypatch):
    monkeypatch.setattr(activation, "_PART", part)
    states = torch.randn(3, 5, 8, dtype=dtype) * 3
    want = functional.gelu(states, approximate="tanh")
    torch.testing.assert_close(gelu_by_tanh(states.clone()), want, atol=2e-6, rtol=1e-5)


def test_extreme_and_missing_numbers_are_torchs():
    states = torch.tensor([0.0, -0.0, 30.0, -30.0, 1e20, -1e20, 3e38, -3e38, float("inf"), float("nan")])
    torch.testing.assert_close(
        gelu_by_tanh(states.clone()), functional.gelu(states, approximate="tanh"), equal_nan=True
    )
    assert gelu_by_tanh(torch.zeros(0, 4)).shape == (0, 4)


def test_with_a_gradient_the_input_is_kept():
    states = torch.randn(4, 6, requires_grad=True)
    before = states.detach().clone()
    gelu_by_tanh(states).sum().backward()
    found, states.grad = states.grad, None
    functional.gelu(states, approximate="tanh").sum().backward()
    assert torch.equal(found, states.grad) and torch.equal(states.detach(), before)


def test_without_a_gradient_it_works_in_place_unless_the_numbers_lie_apart():
    states = torch.randn(4, 6)
    assert gelu_by_tanh(states) is states
    apart = torch.randn(6, 4).mT
    kept = apart.clone()
    torch.testing.assert_close(gelu_by_tanh(apart), functional.gelu(kept, approximate="tanh"))
    assert torch.equal(apart, kept)
