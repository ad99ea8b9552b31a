"""Losses of an encoder against another, beside their formulas written out."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from narrows.errors import UsageError
from narrows.losses import (
    embedding_distance,
    similarity_divergence,
    soft_cross_entropy,
    state_distance,
    token_distillation,
)


def _random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_distances_of_vectors_are_the_formulas() -> None:
    student, teacher = _random(3, 5), _random(3, 5, seed=1)
    cosine = sum(1 - float(a @ b / (a.norm() * b.norm())) for a, b in zip(student, teacher, strict=True))
    assert float(embedding_distance(student, teacher)) == pytest.approx(cosine)
    squared = sum(float(((a - b) ** 2).mean()) for a, b in zip(student, teacher, strict=True))
    assert float(embedding_distance(student, teacher, distance="mse")) == pytest.approx(squared)


def test_lengths_count_in_the_squared_error_only() -> None:
    student, teacher = _random(3, 5), _random(3, 5, seed=1)
    assert float(embedding_distance(3 * student, teacher)) == pytest.approx(float(embedding_distance(student, teacher)))
    assert float(embedding_distance(teacher, 2 * teacher)) == pytest.approx(0, abs=1e-12)
    assert float(embedding_distance(teacher, 2 * teacher, distance="mse")) > 0


def test_the_divergence_of_similarities_is_the_formula() -> None:
    student, teacher = _random(5, 3), _random(5, 4, seed=1)
    expected = 0.0
    for text in range(5):
        others = [other for other in range(5) if other != text]
        ours, theirs = (
            (functional.cosine_similarity(side[text], side[others], dim=-1) / 0.1).softmax(0)
            for side in (student, teacher)
        )
        expected += float((theirs * (theirs / ours).log()).sum())
    assert float(similarity_divergence(student, teacher, temperature=0.1)) == pytest.approx(expected)


@given(texts=st.integers(1, 6), scale=st.floats(0.1, 10))
def test_turned_or_longer_vectors_are_as_near_to_one_another(texts, scale) -> None:
    teacher = _random(texts, 4)
    turned = (scale * teacher @ torch.linalg.qr(_random(4, 4, seed=2))[0]).requires_grad_()
    loss = similarity_divergence(turned, teacher, temperature=0.05)
    assert float(loss.detach()) == pytest.approx(0, abs=1e-9)
    assert bool(torch.autograd.grad(loss, turned)[0].isfinite().all())


def test_half_precision_of_autocast_does_not_reach_the_similarities() -> None:
    student, teacher = _random(6, 8).float(), _random(6, 8, seed=1).float()
    alone = similarity_divergence(student, teacher, temperature=0.05)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(similarity_divergence(student, teacher, temperature=0.05), alone)


@given(length=st.integers(1, 7), padding=st.integers(0, 5))
def test_padding_changes_no_distance_of_states_and_no_divergence_of_tokens(length, padding) -> None:
    student, teacher = _random(2, length + padding, 3).requires_grad_(), _random(2, length + padding, 3, seed=1)
    real = (torch.arange(length + padding) < length).expand(2, -1)
    alone = student[:, :length], teacher[:, :length], real[:, :length]
    for loss in (state_distance, lambda *given: token_distillation(*given, temperature=2.0)):
        padded = loss(student, teacher, real)
        torch.testing.assert_close(padded, loss(*alone))
        gradient = torch.autograd.grad(padded, student)[0]
        assert bool(gradient.isfinite().all()) and not gradient[:, length:].any()


def test_each_example_counts_alike_whatever_its_length() -> None:
    student, teacher = _random(2, 4, 3), _random(2, 4, 3, seed=1)
    real = torch.tensor([[True] * 4, [True, False, False, False]])
    expected = (student[0] - teacher[0]).pow(2).mean() + (student[1, 0] - teacher[1, 0]).pow(2).mean()
    torch.testing.assert_close(state_distance(student, teacher, real), expected)
    per_token = soft_cross_entropy(student[0], teacher[0], temperature=2.0) / 4
    expected = per_token + soft_cross_entropy(student[1, :1], teacher[1, :1], temperature=2.0)
    torch.testing.assert_close(token_distillation(student, teacher, real, temperature=2.0), expected)


def test_a_text_without_tokens_costs_nothing() -> None:
    student, teacher, real = _random(1, 2, 3), _random(1, 2, 3, seed=1), torch.zeros(1, 2, dtype=torch.bool)
    assert float(state_distance(student, teacher, real)) == 0
    assert float(token_distillation(student, teacher, real, temperature=1.0)) == 0


def test_half_precision_is_summed_in_single() -> None:
    half = _random(2, 3).to(torch.bfloat16)
    assert embedding_distance(half, half).dtype == torch.float32
    assert state_distance(half[:, None], half[:, None], torch.ones(2, 1, dtype=torch.bool)).dtype == torch.float32


def test_what_is_refused() -> None:
    with pytest.raises(UsageError, match="`distance` must be 'cosine' or 'mse', got 'l1'; choose one of them"):
        embedding_distance(torch.ones(1, 1), torch.ones(1, 1), distance="l1")
    with pytest.raises(UsageError, match="`temperature` must be above 0, got 0.0; 0.05 is a usual one of cosines"):
        similarity_divergence(torch.ones(2, 1), torch.ones(2, 1), temperature=0.0)
    with pytest.raises(UsageError, match="`temperature` must be above 0, got 0.0; 2 is the usual one"):
        token_distillation(
            torch.ones(1, 1, 2), torch.ones(1, 1, 2), torch.ones(1, 1, dtype=torch.bool), temperature=0.0
        )
