"""Losses against a teacher, beside their formulas written out."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from narrows.errors import UsageError
from narrows.losses import layerwise_similarity, soft_cross_entropy, span_distillation


def _random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _divergence(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> float:
    """T² · KL(teacher ‖ student), summed over rows, by hand."""
    total = 0.0
    for ours, theirs in zip(student.tolist(), teacher.tolist(), strict=True):
        p = [math.exp(x / temperature) for x in theirs]
        q = [math.exp(x / temperature) for x in ours]
        total += sum(a / sum(p) * math.log((a / sum(p)) / (b / sum(q))) for a, b in zip(p, q, strict=True))
    return temperature**2 * total


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0, 7.0])
def test_soft_cross_entropy_is_the_formula(temperature):
    student, teacher = _random(3, 5), _random(3, 5, seed=1)
    got = soft_cross_entropy(student, teacher, temperature=temperature)
    assert float(got) == pytest.approx(_divergence(student, teacher, temperature), abs=1e-12)


def test_the_gradient_keeps_its_size_as_the_temperature_grows():
    # Hinton et al. (2015): for a large T the gradient tends to (student − teacher) / classes, both centred.
    student, teacher = _random(1, 5).requires_grad_(), _random(1, 5, seed=1)
    gradient = torch.autograd.grad(soft_cross_entropy(student, teacher, temperature=1000.0), student)[0]
    apart = student.detach() - teacher
    torch.testing.assert_close(gradient, (apart - apart.mean()) / 5, atol=2e-3, rtol=0)


def test_equal_logits_cost_nothing_and_pull_nowhere():
    logits = _random(3, 7).requires_grad_()
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [0] * 2 + [1] * 5])
    loss = soft_cross_entropy(logits, logits.detach().clone(), temperature=2.0, attention_mask=mask)
    assert float(loss.detach()) == 0
    assert float(torch.autograd.grad(loss, logits)[0].abs().max()) < 1e-12


@given(length=st.integers(1, 9), padding=st.integers(0, 6))
def test_padding_changes_no_distillation_loss(length, padding):
    student, teacher = _random(1, length + padding).requires_grad_(), _random(1, length + padding, seed=1)
    mask = torch.tensor([[1] * length + [0] * padding])
    padded = soft_cross_entropy(student, teacher, temperature=2.0, attention_mask=mask)
    alone = soft_cross_entropy(student[:, :length], teacher[:, :length], temperature=2.0)
    torch.testing.assert_close(padded, alone, atol=1e-12, rtol=0)
    gradient = torch.autograd.grad(padded, student)[0]
    assert bool(gradient.isfinite().all()) and not gradient[:, length:].any()


def test_span_distillation_is_the_mean_of_start_and_end():
    student, teacher = (_random(3, 5), _random(3, 5, seed=1)), (_random(3, 5, seed=2), _random(3, 5, seed=3))
    expected = sum(_divergence(s, t, 2.0) for s, t in zip(student, teacher, strict=True)) / 2
    assert float(span_distillation(student, teacher, temperature=2.0)) == pytest.approx(expected, abs=1e-12)


def test_losses_are_sums_over_examples():
    student, teacher = _random(5, 7), _random(5, 7, seed=1)
    apart = sum(soft_cross_entropy(student[i : i + 1], teacher[i : i + 1], temperature=2.0) for i in range(5))
    torch.testing.assert_close(apart, soft_cross_entropy(student, teacher, temperature=2.0))


@pytest.mark.parametrize("distance", ["mse", "euclidean"])
def test_layerwise_similarity_is_the_formula_and_ignores_padding(distance):
    student = [_random(2, 5, 3, seed=i) for i in range(3)]
    teacher = [_random(2, 5, 3, seed=i + 10) for i in range(3)]
    mask = torch.tensor([[1, 1, 1, 0, 0], [0, 1, 1, 1, 1]])
    total = 0.0
    for ours, theirs in zip(student, teacher, strict=True):
        for row, column in mask.nonzero().tolist():
            squares = [(a - b) ** 2 for a, b in zip(ours[row, column], theirs[row, column], strict=True)]
            total += float(sum(squares) / 3 if distance == "mse" else sum(squares) ** 0.5)
    got = layerwise_similarity(student, teacher, attention_mask=mask, distance=distance)
    assert float(got) == pytest.approx(total / 3, abs=1e-9)
    everywhere = layerwise_similarity(student, teacher, distance=distance)
    assert float(everywhere) > float(got)
    student[0][0, 4] += 100
    assert torch.equal(got, layerwise_similarity(student, teacher, attention_mask=mask, distance=distance))


@pytest.mark.parametrize("distance", ["mse", "euclidean"])
def test_equal_states_have_a_finite_gradient(distance):
    states = _random(1, 3, 5).requires_grad_()
    loss = layerwise_similarity([states], [states.detach().clone()], distance=distance)
    assert float(loss.detach()) == pytest.approx(0, abs=1e-5)
    assert not torch.autograd.grad(loss, states)[0].any()


def test_errors_say_what_to_do():
    states = [torch.zeros(1, 2, 3)]
    with pytest.raises(UsageError, match="`temperature` must be above 0, got 0.0; 2 is the paper's"):
        soft_cross_entropy(states[0][0], states[0][0], temperature=0.0)
    with pytest.raises(UsageError, match="states of as many layers, got 1 and 2; pass the layers above the split"):
        layerwise_similarity(states, states * 2)
    with pytest.raises(UsageError, match="`distance` must be 'mse' or 'euclidean', got 'cosine'; choose one"):
        layerwise_similarity(states, states, distance="cosine")
