"""Full attention by a narrow one: a low-rank fit of its projections, weighted by what the layer really reads.

Of a head, attention needs two maps of low rank only: the bilinear form `Wqᵀ Wk` of its scores and the map `Wo Wv` of
its values. A bottleneck layer has them over one narrow state that all heads share. The fit takes for that state the
directions of the input that all these maps together need most, and of each map, seen through them, the best one of the
rank of a narrow head: a truncated SVD. Both errors fall as the state gets wider, since the directions of a width are
among those of a larger one. With texts everything is measured in the metric of the layer's inputs (`W C^½`,
C their covariance), each map counts as much as its errors change the layer's output, and the up-projection is fitted
once more by least squares to the outputs themselves. Torch only.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.linalg import eigh, qr, solve, svd

from narrows.errors import UsageError

__all__ = [
    "FitError",
    "Metric",
    "Narrow",
    "Projections",
    "attention_output",
    "fit_attention",
    "metric_of",
    "possible_heads",
]

# Added to a covariance, as a share of its mean diagonal: behind a layer norm it has directions without any variance.
_LEAST_VARIANCE = 1e-6
# Of the least squares, as a share of the mean square of what it is fitted by: where texts say little the SVD stays.
_RIDGE = 1e-3


class Projections(NamedTuple):
    """Of an attention layer, in float64; weights as `nn.Linear` has them, `[out, in]`.

    Attributes:
        query, key, value: `[heads × dim, width]`; the key's bias is left out, since softmax takes it away.
        query_bias, value_bias: `[heads × dim]`.
        output: `[outer width, heads × dim]`.
        output_bias: `[outer width]`.
        heads: of them.
    """

    query: Tensor
    query_bias: Tensor
    key: Tensor
    value: Tensor
    value_bias: Tensor
    output: Tensor
    output_bias: Tensor
    heads: int


class Narrow(NamedTuple):
    """A bottleneck layer with a linear activation.

    Attributes:
        down: `[inner, width]`, with orthonormal rows.
        down_bias: `[inner]`, so that narrow states have a mean of zero.
        inner: attention over the narrow states, whose `output` is the up-projection.
    """

    down: Tensor
    down_bias: Tensor
    inner: Projections

    def __call__(self, states: Float[Tensor, "length width"]) -> Float[Tensor, "length width"]:
        """What the layer makes of one text."""
        return attention_output(self.inner, states @ self.down.T + self.down_bias)


class FitError(NamedTuple):
    """Relative errors, root mean squares: 0 is exact, 1 is as good as a constant.

    Attributes:
        scores: of the bilinear forms of the heads that are kept.
        values: of the maps of values, those of heads that are left out among them.
        output: of the layer's output for calibration texts; None without them.
    """

    scores: float
    values: float
    output: float | None


class Metric(NamedTuple):
    """What errors of a layer's maps cost.

    Attributes:
        mean: `[width]`, of the inputs.
        root: `[width, width]`, L with L Lᵀ their covariance.
        scores: `[heads]`, by which the squared errors of scores count.
        values: `[heads]`, by which those of values do.
        inputs: states of each text, `[length, width]`; none for the plain metric.
        outputs: of the layer for them, `[tokens, outer width]`.
    """

    mean: Tensor
    root: Tensor
    scores: Tensor
    values: Tensor
    inputs: Sequence[Tensor]
    outputs: Tensor


def possible_heads(source: Projections, inner: int) -> list[int]:
    """Numbers of heads that divide an inner width and are no more, and no wider, than the source's; most first.

    Example:
        Of 12 heads of 32 numbers, in a width of 192: `[12, 8, 6]`.
    """
    dim = len(source.query) // source.heads
    return [heads for heads in range(source.heads, 0, -1) if inner % heads == 0 and inner // heads <= dim]


def metric_of(source: Projections, inputs: Sequence[Float[Tensor, "length width"]]) -> Metric:
    """The metric of a layer by what it reads; without texts every direction, every pair and every head is alike.

    To first order an error `e` of the scores of a head moves the output by `Σ p e M (x − x̄)` (p the attention weights,
    M the map of values), and an error of M by that of the attended mean: squared and averaged, these are the weights of
    the heads. Without texts p is taken for the same everywhere.

    Args:
        source: the layer.
        inputs: its input for each text.
    """
    width = source.query.shape[1]
    values, out = _by_head(source.value, source.heads), _by_head(source.output.T, source.heads)
    if not inputs:
        eye = torch.eye(width, dtype=source.query.dtype)
        size = (out.mT @ values).square().sum((1, 2))
        return Metric(torch.zeros_like(eye[0]), eye, size, torch.ones_like(size), (), torch.empty_like(eye[:0]))
    every = torch.cat(list(inputs))
    mean = every.mean(0)
    covariance = (every - mean).T @ (every - mean) / len(every)
    covariance.diagonal().add_(_LEAST_VARIANCE * covariance.diagonal().mean())
    variances, directions = eigh(covariance)
    root = directions * variances.clamp_min(0).sqrt()
    # Lengths of what a head puts out, in the few numbers of its values.
    triangle = qr(out.mT).R.mT
    contexts, outputs, moved = [], [], torch.zeros_like(triangle[:, 0, 0])
    for states in inputs:
        weights = _weights(source, states)
        read = _by_head((source.value @ (states - mean).T), source.heads).mT @ triangle
        context = weights @ read
        apart = read.square().sum(-1)[:, None] - 2 * context @ read.mT + context.square().sum(-1)[:, :, None]
        moved += (weights.square() * apart).sum((1, 2))
        contexts.append(context)
        outputs.append(_read(source, weights, states) @ source.output.T + source.output_bias)
    attended = torch.cat(contexts, 1).var(1, correction=0).sum(-1)
    plain = (out.mT @ values @ root).square().sum((1, 2))
    shares = attended / plain.clamp_min(torch.finfo(plain.dtype).tiny)
    return Metric(mean, root, moved / len(every), shares, inputs, torch.cat(outputs))


def fit_attention(source: Projections, metric: Metric, *, inner: int, heads: int) -> tuple[Narrow, FitError]:
    """The narrow layer nearest to a full one, in closed form.

    Args:
        source: the full layer.
        metric: of it.
        inner: width of the narrow states, at most that of the input. At the whole width the layer is the source's.
        heads: one of `possible_heads`; where they are fewer than the source's, those that give most of the output.

    Raises:
        UsageError: another number of heads.
    """
    possible = possible_heads(source, inner)
    if heads not in possible:
        raise UsageError(
            f"expected one of {', '.join(map(str, possible)) or 'no'} heads for an inner width of {inner}, which "
            f"divide it and are neither more nor wider than the {source.heads} of the source, got {heads}; choose "
            "another number, or another ratio"
        )
    parts = _white(source, metric)
    size = metric.values * (parts.out @ parts.value).square().sum((1, 2))
    kept = size.argsort(descending=True, stable=True)[:heads].sort().values
    basis = _directions(parts, metric, kept)[:, -inner:]
    # Orthonormal rows over the inputs as they are; `turn` leads from them to the basis.
    back = qr(solve(metric.root.T, basis))
    down, turn = back.Q.T, back.R.T
    seen = parts._replace(query=parts.query @ basis, key=parts.key @ basis, value=parts.value @ basis)
    rank = inner // heads
    score, values = _truncated(seen, kept, rank)
    # Scores are divided by the root of a narrow head's width.
    scale = rank**0.25
    narrow = Projections(
        query=(score.left[:, :-1].mT @ turn).flatten(0, 1) * scale,
        query_bias=score.left[:, -1].flatten() * scale,
        key=(score.right @ turn).flatten(0, 1) * scale,
        value=(values.right @ turn).flatten(0, 1),
        value_bias=source.value_bias.new_zeros(inner),
        output=values.left.transpose(0, 1).flatten(1),
        output_bias=source.output_bias + source.output @ (source.value_bias + source.value @ metric.mean),
        heads=heads,
    )
    found = Narrow(down, -down @ metric.mean, narrow)
    errors = _map_errors(parts, metric, kept, basis, score, values)
    if not metric.inputs:
        return found, FitError(*errors, None)
    found, output = _refitted(found, metric)
    return found, FitError(*errors, output)


def attention_output(layer: Projections, states: Float[Tensor, "length width"]) -> Float[Tensor, "length outer"]:
    """What attention makes of one text, all of whose tokens see each other."""
    return _contexts(layer, states) @ layer.output.T + layer.output_bias


class _White(NamedTuple):
    """A layer's maps over white inputs of mean zero: `[heads, dim, width]`, and `out` `[heads, outer, dim]`."""

    query: Tensor
    query_bias: Tensor
    key: Tensor
    value: Tensor
    out: Tensor

    @property
    def scored(self) -> Tensor:
        """`[heads, width + 1, dim]`: queries of an input with a 1 behind it, with the division of the scores."""
        return torch.cat([self.query, self.query_bias[..., None]], -1).mT / math.sqrt(self.query.shape[1])


class _Factors(NamedTuple):
    """`left @ right`, `[heads, rows, rank] @ [heads, rank, columns]`."""

    left: Tensor
    right: Tensor


def _white(source: Projections, metric: Metric) -> _White:
    bias = source.query_bias + source.query @ metric.mean
    query, key, value = (
        _by_head(weight, source.heads) @ metric.root for weight in (source.query, source.key, source.value)
    )
    return _White(query, bias.view(source.heads, -1), key, value, _by_head(source.output.T, source.heads).mT)


def _directions(parts: _White, metric: Metric, kept: Tensor) -> Tensor:
    """Directions of white inputs, `[width, width]`, what the maps need most last; the first m are those of any m."""
    total = torch.zeros_like(metric.root)
    for head in kept.tolist():
        form = parts.scored[head] @ parts.key[head]
        values = parts.out[head] @ parts.value[head]
        total += metric.scores[head] * (form[:-1] @ form[:-1].T + form.T @ form)
        total += metric.values[head] * values.T @ values
    return eigh(total).eigenvectors


def _truncated(seen: _White, kept: Tensor, rank: int) -> tuple[_Factors, _Factors]:
    scores = [_best(seen.scored[head], seen.key[head], rank) for head in kept.tolist()]
    values = [_best(seen.out[head], seen.value[head], rank) for head in kept.tolist()]
    score, value = (_Factors(*(torch.stack(each) for each in zip(*parts, strict=True))) for parts in (scores, values))
    return score, value


def _best(left: Tensor, right: Tensor, rank: int) -> _Factors:
    """The best factors of a rank of `left @ right`, neither larger than the other."""
    first, last = qr(left), qr(right.T)
    u, sizes, v = svd(first.R @ last.R.T, full_matrices=False)
    roots = sizes[:rank].sqrt()
    found = _Factors(first.Q @ u[:, :rank] * roots, roots[:, None] * (v[:rank] @ last.Q.T))
    # A product of fewer rows or columns has no more; the rest of the head stays unused.
    missing = rank - len(roots)
    pad = torch.nn.functional.pad
    return _Factors(pad(found.left, (0, missing)), pad(found.right, (0, 0, 0, missing)))


def _map_errors(
    parts: _White, metric: Metric, kept: Tensor, basis: Tensor, score: _Factors, values: _Factors
) -> tuple[float, float]:
    wrong, whole = torch.zeros(2, dtype=basis.dtype), torch.zeros(2, dtype=basis.dtype)
    places = {head: place for place, head in enumerate(kept.tolist())}
    for head in range(len(metric.values)):
        place = places.get(head)
        map_of_values = parts.out[head] @ parts.value[head]
        whole[1] += metric.values[head] * map_of_values.square().sum()
        if place is None:
            wrong[1] += metric.values[head] * map_of_values.square().sum()
            continue
        form = parts.scored[head] @ parts.key[head]
        left = torch.cat([basis @ score.left[place, :-1], score.left[place, -1:]])
        missed = form - left @ score.right[place] @ basis.T
        wrong[0] += metric.scores[head] * missed.square().sum()
        whole[0] += metric.scores[head] * form.square().sum()
        missed = map_of_values - values.left[place] @ values.right[place] @ basis.T
        wrong[1] += metric.values[head] * missed.square().sum()
    scores, of_values = (wrong / whole.clamp_min(torch.finfo(whole.dtype).tiny)).sqrt().tolist()
    return scores, of_values


def _refitted(found: Narrow, metric: Metric) -> tuple[Narrow, float]:
    """The up-projection by least squares, near to where it was, and the relative error of the outputs then."""
    contexts = torch.cat([_contexts(found.inner, states @ found.down.T + found.down_bias) for states in metric.inputs])
    outputs = metric.outputs
    context_mean, output_mean = contexts.mean(0), outputs.mean(0)
    contexts, outputs = contexts - context_mean, outputs - output_mean
    missed = outputs - contexts @ found.inner.output.T
    square = contexts.T @ contexts
    square.diagonal().add_(_RIDGE * square.diagonal().mean() + torch.finfo(square.dtype).tiny)
    weight = found.inner.output + solve(square, contexts.T @ missed).T
    missed = outputs - contexts @ weight.T
    error = (missed.square().sum() / outputs.square().sum().clamp_min(torch.finfo(outputs.dtype).tiny)).sqrt()
    inner = found.inner._replace(output=weight, output_bias=output_mean - weight @ context_mean)
    return found._replace(inner=inner), float(error)


def _contexts(layer: Projections, states: Tensor) -> Tensor:
    return _read(layer, _weights(layer, states), states)


def _read(layer: Projections, weights: Tensor, states: Tensor) -> Tensor:
    values = _by_head((states @ layer.value.T + layer.value_bias).T, layer.heads).mT
    return (weights @ values).transpose(0, 1).flatten(1)


def _weights(layer: Projections, states: Tensor) -> Tensor:
    query = _by_head((states @ layer.query.T + layer.query_bias).T, layer.heads).mT
    key = _by_head(layer.key @ states.T, layer.heads)
    return (query @ key / math.sqrt(query.shape[-1])).softmax(-1)


def _by_head(rows: Tensor, heads: int) -> Tensor:
    """`[heads × dim, columns]` as `[heads, dim, columns]`."""
    return rows.unflatten(0, (heads, -1))
