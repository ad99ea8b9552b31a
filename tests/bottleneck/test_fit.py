"""The low-rank fit: exact at the whole width, never worse with more of it, and what it is measured by."""

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from narrows.bottleneck.fit import (
    Metric,
    Projections,
    attention_output,
    fit_attention,
    metric_of,
    possible_heads,
)
from narrows.errors import UsageError


def source(width=24, heads=4, seed=0) -> Projections:
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64) * 0.4

    square = [draw(width, width) for _ in range(4)]
    bias = [draw(width) for _ in range(3)]
    return Projections(square[0], bias[0], square[1], square[2], bias[1], square[3], bias[2], heads)


def texts(width=24, seed=1, lengths=(9, 14, 1, 30)) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(width, width, generator=generator, dtype=torch.float64) * 0.4
    return [torch.randn(length, width, generator=generator, dtype=torch.float64) @ mix + 0.5 for length in lengths]


@pytest.mark.parametrize("inputs", [[], texts(), texts(lengths=(3,))], ids=["plain", "texts", "few"])
def test_the_whole_width_gives_the_source(inputs) -> None:
    layer = source()
    narrow, error = fit_attention(layer, metric_of(layer, inputs), inner=24, heads=4)
    assert error.scores < 1e-6 and error.values < 1e-6 and (error.output or 0) < 1e-6
    for states in texts(seed=5):
        torch.testing.assert_close(narrow(states), attention_output(layer, states), atol=1e-8, rtol=1e-8)
    torch.testing.assert_close(narrow.down @ narrow.down.T, torch.eye(24).double(), atol=1e-10, rtol=0)


@settings(max_examples=15)
@given(seed=st.integers(0, 1000), calibrated=st.booleans(), heads=st.sampled_from([1, 2, 4]))
def test_errors_of_scores_and_values_fall_with_the_width(seed, calibrated, heads) -> None:
    layer = source(heads=heads, seed=seed)
    metric = metric_of(layer, texts(seed=seed + 1) if calibrated else [])
    fits = [fit_attention(layer, metric, inner=inner, heads=heads)[1] for inner in range(heads, 25, heads)]
    for narrower, wider in zip(fits, fits[1:], strict=False):
        assert wider.scores <= narrower.scores + 1e-9 and wider.values <= narrower.values + 1e-9


def test_errors_are_those_of_the_maps() -> None:
    """Counted from the narrow weights themselves, over pairs of inputs of the metric's mean and covariance."""
    layer = source()
    metric = metric_of(layer, texts())._replace(inputs=())
    narrow, error = fit_attention(layer, metric, inner=12, heads=4)
    wrong, whole = [torch.zeros(2, dtype=torch.float64) for _ in range(2)]
    bias = layer.query_bias + layer.query @ metric.mean
    for head in range(4):
        wide, slim = slice(6 * head, 6 * head + 6), slice(3 * head, 3 * head + 3)
        inner = narrow.inner

        def form(query, shift, key, dim):
            return torch.cat([query @ metric.root, shift[:, None]], 1).T @ key @ metric.root / dim**0.5

        ours = form(inner.query[slim] @ narrow.down, inner.query_bias[slim], inner.key[slim] @ narrow.down, 3)
        theirs = form(layer.query[wide], bias[wide], layer.key[wide], 6)
        wrong[0] += metric.scores[head] * (ours - theirs).square().sum()
        whole[0] += metric.scores[head] * theirs.square().sum()
        ours = inner.output[:, slim] @ inner.value[slim] @ narrow.down @ metric.root
        theirs = layer.output[:, wide] @ layer.value[wide] @ metric.root
        wrong[1] += metric.values[head] * (ours - theirs).square().sum()
        whole[1] += metric.values[head] * theirs.square().sum()
    torch.testing.assert_close(torch.tensor([error.scores, error.values]).double(), (wrong / whole).sqrt())


def test_the_output_error_is_that_of_the_layer() -> None:
    layer, inputs = source(), texts()
    narrow, error = fit_attention(layer, metric_of(layer, inputs), inner=12, heads=4)
    theirs = torch.cat([attention_output(layer, states) for states in inputs])
    ours = torch.cat([narrow(states) for states in inputs])
    expected = (ours - theirs).norm() / (theirs - theirs.mean(0)).norm()
    assert error.output == pytest.approx(float(expected), rel=1e-9)
    # Least squares are no worse than what they began with.
    plain, _ = fit_attention(layer, metric_of(layer, inputs)._replace(inputs=()), inner=12, heads=4)
    before = torch.cat([plain(states) for states in inputs])
    assert (ours - theirs).norm() <= (before - theirs).norm()


def test_texts_make_the_fit_better_where_inputs_lie_in_few_directions() -> None:
    layer = source()
    inputs = [states @ torch.diag(0.7 ** torch.arange(24)).double() for states in texts()]
    errors = []
    for known in ([], inputs):
        narrow, _ = fit_attention(layer, metric_of(layer, known), inner=8, heads=4)
        missed = torch.cat([narrow(states) - attention_output(layer, states) for states in inputs])
        errors.append(float(missed.norm()))
    assert errors[1] < errors[0] / 2


def test_fewer_heads_are_those_that_give_most() -> None:
    """Two of four heads put out nothing: the other two are kept whole."""
    layer = source()
    output = layer.output.clone()
    output[:, 6:18] = 0
    layer = layer._replace(output=output)
    narrow, error = fit_attention(layer, metric_of(layer, []), inner=12, heads=2)
    assert narrow.inner.heads == 2 and error.values < 0.8
    assert possible_heads(layer, 12) == [4, 3, 2] and possible_heads(layer, 24) == [4] and possible_heads(layer, 2)


def test_weights_of_heads_tell_what_their_errors_move() -> None:
    """To first order, by a small random change of one head's scores."""
    layer, inputs = source(), texts(lengths=(40, 50))
    metric, generator = metric_of(layer, inputs), torch.Generator().manual_seed(0)
    for head in range(4):
        moved = tokens = 0.0
        for states in inputs:
            part = slice(6 * head, 6 * head + 6)
            query = states @ layer.query[part].T + layer.query_bias[part]
            scores = query @ (states @ layer.key[part].T).T / 6**0.5
            values = states @ layer.value[part].T @ layer.output[:, part].T
            for _ in range(50):
                noise = 1e-4 * torch.randn(scores.shape, generator=generator, dtype=torch.float64)
                change = ((scores + noise).softmax(-1) - scores.softmax(-1)) @ values
                moved += float(change.square().sum()) / 1e-8
                tokens += len(states)
        assert moved / tokens == pytest.approx(float(metric.scores[head]), rel=0.1)


def test_a_number_of_heads_that_does_not_fit() -> None:
    layer = source()
    metric = metric_of(layer, [])
    assert isinstance(metric, Metric)
    message = (
        "expected one of 4, 3, 2 heads for an inner width of 12, which divide it and are neither more nor wider than "
        "the 4 of the source, got 1; choose another number, or another ratio"
    )
    with pytest.raises(UsageError, match=re.escape(message)):
        fit_attention(layer, metric, inner=12, heads=1)
