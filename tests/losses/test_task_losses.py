"""Losses against labels, beside torch's own."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy, mse_loss

from narrows.errors import UsageError
from narrows.losses import classification_loss, span_log_probabilities, span_loss, token_loss


def _logits(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 3


def test_span_loss_is_the_mean_of_two_cross_entropies():
    start, end = _logits(5, 11), _logits(5, 11, seed=1)
    first, last = torch.tensor([0, 3, 10, 7, 1]), torch.tensor([0, 4, 10, 9, 1])
    expected = (cross_entropy(start, first, reduction="sum") + cross_entropy(end, last, reduction="sum")) / 2
    torch.testing.assert_close(span_loss(start, end, first, last), expected)


@given(length=st.integers(1, 11), padding=st.integers(0, 7), noise=st.floats(-50, 50))
def test_span_loss_ignores_padding_in_value_and_gradient(length, padding, noise):
    position = torch.tensor([length - 1])
    start, end = _logits(1, length).requires_grad_(), _logits(1, length, seed=1).requires_grad_()
    alone = span_loss(start, end, position, position)
    pad = torch.full((1, padding), noise, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[1] * length + [0] * padding])
    padded = span_loss(torch.cat([start, pad], 1), torch.cat([end, pad], 1), position, position, mask)
    torch.testing.assert_close(padded, alone, atol=1e-12, rtol=0)
    grown = torch.autograd.grad(padded, [start, end, pad])
    for got, expected in zip(grown, torch.autograd.grad(alone, [start, end]), strict=False):
        torch.testing.assert_close(got, expected, atol=1e-12, rtol=0)
    assert not grown[2].any()


def test_losses_of_parts_add_up_to_the_whole():
    start, end, labels = _logits(7, 5), _logits(7, 5, seed=1), torch.arange(7) % 5
    parts = [slice(0, 3), slice(3, 4), slice(4, 7)]
    spans = sum(span_loss(start[p], end[p], labels[p], labels[p]) for p in parts)
    torch.testing.assert_close(spans, span_loss(start, end, labels, labels))
    classes = sum(classification_loss(start[p], labels[p]) for p in parts)
    torch.testing.assert_close(classes, classification_loss(start, labels))


def test_log_probabilities_are_normalised_over_real_tokens_and_finite():
    mask = torch.tensor([[1, 1, 0, 1, 0]])
    logs = span_log_probabilities(_logits(1, 5).float(), mask)
    assert bool(logs.isfinite().all())
    torch.testing.assert_close(logs[mask == 1].exp().sum(), torch.tensor(1.0))
    assert not logs[mask == 0].exp().any()


def test_half_precision_logits_are_summed_in_float32():
    start, labels = _logits(3, 7).to(torch.bfloat16), torch.tensor([0, 3, 6])
    assert span_loss(start, start, labels, labels).dtype == torch.float32
    assert classification_loss(start, labels).dtype == torch.float32
    torch.testing.assert_close(classification_loss(start, labels), classification_loss(start.float(), labels))


def test_classification_loss_is_cross_entropy_and_with_one_label_squared_error():
    logits, labels = _logits(5, 3), torch.tensor([0, 2, 1, 1, 0])
    torch.testing.assert_close(classification_loss(logits, labels), cross_entropy(logits, labels, reduction="sum"))
    scores, targets = _logits(5, 1), torch.tensor([0.5, -1.0, 2.0, 0.0, 3.0], dtype=torch.float64)
    expected = mse_loss(scores[:, 0], targets, reduction="sum")
    torch.testing.assert_close(classification_loss(scores, targets), expected)


@pytest.mark.parametrize(
    ("first", "last", "name", "low", "high"),
    [
        ([0, 7], [0, 1], "start_positions", 0, 7),
        ([0, 1], [-1, 3], "end_positions", -1, 3),
    ],
)
def test_a_position_outside_the_row_is_an_error(first, last, name, low, high):
    logits = torch.zeros(2, 7)
    text = f"`{name}` must lie in a row of 7 tokens, got {low} to {high}; use 0 for no answer"
    with pytest.raises(UsageError, match=text):
        span_loss(logits, logits, torch.tensor(first), torch.tensor(last))


def test_token_loss_is_the_cross_entropy_of_labels_that_count():
    logits, labels = _logits(2, 4, 7), torch.tensor([[3, 0, -100, -100], [6, -100, 1, 2]])
    expected = cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
    torch.testing.assert_close(token_loss(logits, labels), expected)
    assert float(token_loss(logits, torch.full((2, 4), -100))) == 0.0
    assert float(token_loss(logits, labels.masked_fill(labels == -100, 9), ignored=9)) == float(expected)
    assert token_loss(logits.bfloat16(), labels).dtype == torch.float32
