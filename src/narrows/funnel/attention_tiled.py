"""Funnel attention a tile of queries at a time, forward and backward: memory follows the tile.

A tile is a run of queries of a few heads and rows, against all keys. Its position scores are one product with the
distances that it needs, read by key through strides. Weights are recomputed in the backward pass; between the passes
nothing is kept but the inputs and the output.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from narrows.funnel.positions import Geometry, is_traced
from narrows.funnel.projection import project_distances
from narrows.funnel.terms import RelativeTerms, same_segment, segment_scores

__all__ = ["attend_tiled"]

_QUERIES = 64

# Scores that a tile may hold where there is a choice of heads and rows: of a CPU what the caches of its cores hold.
# With less, two threads took half as long again: they wait for each other at the end of each of so small operations.
_SCORES_A_THREAD = 2**18
_SCORES_ELSEWHERE = 2**25

# Pairs of a few rows whose segments are kept; beyond, they are compared anew for each head.
_SAME_AT_MOST = 2**22


def attend_tiled(
    query: Float[Tensor, "batch heads queries dim"],
    key: Float[Tensor, "batch heads keys dim"],
    value: Float[Tensor, "batch heads keys dim"],
    *,
    terms: RelativeTerms,
    geometry: Geometry,
    query_segments: Int[Tensor, "batch queries"] | None,
    key_segments: Int[Tensor, "batch keys"] | None,
    cls_segment: int,
    mask: Bool[Tensor, "batch keys"] | None,
    tables: Float[Tensor, "distances width"],
    dropout: float,
) -> Float[Tensor, "batch heads queries dim"]:
    """See `attend_relative`. On a CPU half precision is computed in fp32, which its products are faster in."""
    dtype = query.dtype
    if query.device.type == "cpu" and dtype.itemsize < 4:
        query, key, value = query.float(), key.float(), value.float()
    if mask is not None and _can_be_read(mask) and mask.all():
        mask = None
    segments = None
    if query_segments is not None and key_segments is not None:
        segments = _several(query_segments, key_segments, cls_segment)
    # From the CPU's global generator, so that a seeded run and a checkpoint's second pass draw the same.
    seed = int(torch.randint(2**62, ())) if dropout else 0
    scores = _SCORES_A_THREAD * torch.get_num_threads() if query.device.type == "cpu" else _SCORES_ELSEWHERE
    attended = _TiledAttention.apply(
        query,
        key,
        value,
        terms.content_bias.to(query.dtype),
        terms.position_bias.to(query.dtype),
        project_distances(tables, terms.kernel, dtype=query.dtype),
        segment_scores(query, terms, several=segments is not None),
        _Settings(geometry, segments, cls_segment, mask, dropout, seed, scores),
    )
    return attended.to(dtype)


def _several(queries: Tensor, keys: Tensor, cls_segment: int) -> tuple[Tensor, Tensor] | None:
    """The ids; None where each row is of one segment, as far as this can be seen without waiting for a device."""
    if _can_be_read(queries):
        ids = torch.cat([queries, keys], 1)
        everywhere, limits = ids == cls_segment, torch.iinfo(ids.dtype)
        if (ids.masked_fill(everywhere, limits.min).amax(1) <= ids.masked_fill(everywhere, limits.max).amin(1)).all():
            return None
    return queries, keys


def _can_be_read(values: Tensor) -> bool:
    return values.device.type == "cpu" and not is_traced()


class _Settings(NamedTuple):
    """What one call's tiles share, apart from what takes a gradient."""

    geometry: Geometry
    segments: tuple[Tensor, Tensor] | None
    cls_segment: int
    mask: Tensor | None
    dropout: float
    seed: int
    scores: int
    """That a tile may hold: the same in both passes, whatever becomes of the number of threads between them."""

    def clear_empty_(self, states: Tensor) -> Tensor:
        """Zeros, in place, in rows of the batch without a real key."""
        return states if self.mask is None else states.masked_fill_(~self.mask.any(1)[:, None, None, None], 0.0)


class _TiledAttention(torch.autograd.Function):
    """The result `[batch, heads, queries, dim]` lies in memory as `[batch, queries, heads, dim]`, which is how a
    model's output projection reads it: no copy is made on the way."""

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        *tensors, settings = inputs
        query, key, value = tensors[:3]
        attended = query.new_empty(query.transpose(1, 2).shape).transpose(1, 2)
        scores = _Scores(tensors, settings)
        fused = query.device.type == "cpu" and not settings.dropout
        for tile in _tiles(query, key, value, settings):
            if fused:
                found = scores.attend(tile)
            else:
                weights = scores.weights(tile)
                if settings.dropout:
                    weights = weights.mul_(tile.kept(weights, settings))
                found = tile.apart(weights.to(value.dtype) @ tile.values)
            tile.of(attended.transpose(0, 1)).copy_(found)
        ctx.save_for_backward(*tensors, settings.clear_empty_(attended))
        ctx.settings = settings
        return attended

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        *tensors, attended = ctx.saved_tensors
        settings: _Settings = ctx.settings
        with torch.autocast(gradient.device.type, enabled=False):
            scores = _Scores(tensors, settings)
            gradients = _Gradients(scores, needs_distances=ctx.needs_input_grad[5])
            query, key, value = tensors[:3]
            value_gradient = _zeros(value.transpose(0, 1))
            outer = settings.clear_empty_(gradient.clone()) if settings.mask is not None else gradient
            outer, attended = outer.transpose(0, 1), attended.transpose(0, 1)
            for tile in _tiles(query, key, value, settings):
                weights = scores.weights(tile)
                # The product of strided heads is slower than that of contiguous ones.
                tile_outer = tile.together(tile.of(outer).contiguous())
                weights_gradient = (tile_outer @ tile.values.mT).to(weights.dtype)
                used = weights
                if settings.dropout:
                    kept = tile.kept(weights, settings)
                    used, weights_gradient = weights * kept, weights_gradient.mul_(kept)
                tile.together(tile.for_keys(value_gradient)).add_(used.to(value.dtype).mT @ tile_outer)
                # Backward of a softmax: P · (dP − Σ P · dP), whose sum is also that of the output times its gradient.
                total = (tile.together(tile.of(attended)) * tile_outer.to(weights.dtype)).sum(-1, keepdim=True)
                gradients.add(tile, weights_gradient.sub_(total).mul_(weights).to(value.dtype))
        return *gradients.of_inputs(value_gradient), None


class _Tile(NamedTuple):
    """A run of queries of some heads and rows of the batch."""

    heads: slice
    rows: slice
    queries: slice
    keys: Float[Tensor, "some keys dim"]
    values: Float[Tensor, "some keys dim"]
    same: Float[Tensor, "1 rows queries keys"] | None
    """1 where query and key are of the same segment, 0 elsewhere; None: all are."""
    number: int

    def of(self, states: Float[Tensor, "heads batch queries dim"]) -> Tensor:
        """The tile's part of what there is for each query."""
        return states[self.heads, self.rows, self.queries]

    def for_keys(self, states: Float[Tensor, "heads batch keys dim"]) -> Tensor:
        """The tile's part of what there is for each key."""
        return states[self.heads, self.rows]

    def together(self, states: Float[Tensor, "some_heads rows length dim"]) -> Float[Tensor, "some length dim"]:
        """Heads and rows as one dimension."""
        return states.flatten(0, 1)

    def apart(self, states: Float[Tensor, "some length dim"]) -> Float[Tensor, "some_heads rows length dim"]:
        """The inverse of `together`."""
        return states.unflatten(0, (-1, self.rows.stop - self.rows.start))

    def kept(self, weights: Tensor, settings: _Settings) -> Tensor:
        """Dropout's factors for the tile's weights: 0 or 1 / (1 − p), the same each time they are asked for."""
        generator = torch.Generator(weights.device).manual_seed(settings.seed + self.number)
        kept = torch.empty_like(weights).bernoulli_(1 - settings.dropout, generator=generator)
        return kept.div_(1 - settings.dropout)


def _tiles(query: Tensor, key: Tensor, value: Tensor, settings: _Settings) -> Iterator[_Tile]:
    """All tiles. Those of the same keys follow each other."""
    batch, heads, queries, _ = query.shape
    at_once = max(1, settings.scores // (_QUERIES * settings.geometry.keys))
    # A batch may be empty.
    row_count = max(1, min(batch, at_once))
    head_count = max(1, at_once // max(1, batch))
    number = 0
    for first_row in range(0, batch, row_count):
        rows = slice(first_row, min(first_row + row_count, batch))
        same = _Same(settings, rows, query.dtype)
        for first_head in range(0, heads, head_count):
            some = slice(first_head, min(first_head + head_count, heads))
            # The product of strided heads is slower than that of contiguous ones.
            keys, values = (states[rows, some].transpose(0, 1).contiguous().flatten(0, 1) for states in (key, value))
            for first in range(0, queries, _QUERIES):
                run = slice(first, min(first + _QUERIES, queries))
                yield _Tile(some, rows, run, keys, values, same.of(run), number)
                number += 1


class _Same:
    """Which pairs of a run of queries are of one segment; kept for the next heads where it is small."""

    def __init__(self, settings: _Settings, rows: slice, dtype: torch.dtype) -> None:
        self._settings, self._rows, self._dtype = settings, rows, dtype
        self._runs: dict[int, Tensor] = {}

    def of(self, run: slice) -> Float[Tensor, "1 rows queries keys"] | None:
        """1 where query and key are of the same segment, 0 elsewhere; None: all are."""
        if self._settings.segments is None:
            return None
        if run.start in self._runs:
            return self._runs[run.start]
        queries, keys = (ids[self._rows] for ids in self._settings.segments)
        same = same_segment(queries[:, run], keys, cls_segment=self._settings.cls_segment).to(self._dtype)[None]
        if queries.numel() * keys.shape[1] <= _SAME_AT_MOST:
            self._runs[run.start] = same
        return same


class _Scores:
    """The scores of a tile, and the weights that follow from them."""

    def __init__(self, tensors: Sequence[Tensor], settings: _Settings) -> None:
        query, key, _, content_bias, position_bias, distances, of_segments = tensors
        self.query = query.transpose(0, 1)
        self.key = key.transpose(0, 1)
        self.content_bias, self.position_bias = content_bias[:, None, None], position_bias[:, None, None]
        self.distances, self.of_segments = distances, of_segments.transpose(0, 1)
        self.geometry, self.scale = settings.geometry, query.shape[-1] ** -0.5
        self.hidden = None
        if settings.mask is not None:
            # Finite, so that rows without a real key are free of NaN; their output is set to zero.
            hidden = torch.zeros_like(settings.mask, dtype=query.dtype)
            hidden.masked_fill_(~settings.mask, torch.finfo(query.dtype).min / 2)
            self.hidden = hidden[None, :, None]

    def for_content(self, tile: _Tile) -> Float[Tensor, "some queries dim"]:
        """What meets the keys."""
        return tile.together(tile.of(self.query) + self.content_bias[tile.heads])

    def for_distances(self, tile: _Tile) -> Float[Tensor, "some_heads some dim"]:
        """What meets the distances."""
        return (tile.of(self.query) + self.position_bias[tile.heads]).flatten(1, 2)

    def distances_of(self, tile: _Tile, distances: Tensor) -> Float[Tensor, "some_heads width dim"]:
        """The rows, of what there is for each distance, that the tile needs."""
        start = (self.geometry.queries - tile.queries.stop) * self.geometry.shift
        return distances[tile.heads, start : start + self._width(tile)]

    def by_key(self, by_distance: Tensor, tile: _Tile) -> Float[Tensor, "some_heads rows queries keys"]:
        """What the tile has for each distance, as it is for each key: a view that skips `shift` fewer a query."""
        queries, rows = tile.queries.stop - tile.queries.start, tile.rows.stop - tile.rows.start
        width, shift, keys = self._width(tile), self.geometry.shift, self.geometry.keys
        stride = width - shift if queries > 1 else width
        return by_distance.as_strided(
            (len(by_distance), rows, queries, keys),
            (rows * queries * width, queries * width, stride, 1),
            (queries - 1) * shift,
        )

    def by_distance(self, tile: _Tile, *, like: Tensor) -> Float[Tensor, "some_heads some width"]:
        """Zeros for each distance."""
        return like.new_zeros(*self.for_distances(tile).shape[:2], self._width(tile))

    def bias(self, tile: _Tile) -> Float[Tensor, "some_heads rows queries keys"]:
        """All of the scores that is not content: a view of what the tile has for each distance, not contiguous."""
        bias = self.by_key(self.for_distances(tile) @ self.distances_of(tile, self.distances).mT, tile)
        of_segments = tile.of(self.of_segments)
        if tile.same is not None:
            bias.addcmul_(tile.same, of_segments[..., :1])
        if self.geometry.separate_cls:
            bias[..., :1] = of_segments[..., -1:]
            if tile.queries.start == 0:
                bias[:, :, 0] = 0.0
        if self.hidden is not None:
            bias += self.hidden[:, tile.rows]
        return bias

    def attend(self, tile: _Tile) -> Float[Tensor, "some_heads rows queries dim"]:
        """The tile's result, by torch's fused attention: on a CPU faster than weights in memory."""
        query = tile.of(self.query) + self.content_bias[tile.heads]
        keys, values = tile.apart(tile.keys), tile.apart(tile.values)
        return functional.scaled_dot_product_attention(query, keys, values, attn_mask=self.bias(tile))

    def weights(self, tile: _Tile) -> Float[Tensor, "some queries keys"]:
        """Attention weights, in at least fp32."""
        scores = tile.together(self.bias(tile)).contiguous()
        scores.baddbmm_(self.for_content(tile), tile.keys.mT, alpha=self.scale)
        return scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))

    def _width(self, tile: _Tile) -> int:
        return (tile.queries.stop - tile.queries.start - 1) * self.geometry.shift + self.geometry.keys


class _Gradients:
    """Sums of what all tiles add, in at least fp32."""

    def __init__(self, scores: _Scores, *, needs_distances: bool) -> None:
        self.scores = scores
        self.query = torch.empty_like(scores.query, memory_format=torch.contiguous_format)
        self.key = _zeros(scores.key)
        self.content_bias, self.position_bias = _zeros(scores.content_bias), _zeros(scores.position_bias)
        self.of_segments = torch.zeros_like(scores.of_segments)
        self.distances = _zeros(scores.distances) if needs_distances else None

    def add(self, tile: _Tile, gradient: Float[Tensor, "some queries keys"]) -> None:
        """Take a tile's gradient of its scores; works in its place."""
        scores = self.scores
        for_keys = tile.apart(gradient @ tile.keys).mul_(scores.scale)
        tile.together(tile.for_keys(self.key)).add_(gradient.mT @ scores.for_content(tile), alpha=scores.scale)

        gradient = tile.apart(gradient)
        if scores.geometry.separate_cls:
            if tile.queries.start == 0:
                gradient[:, :, 0] = 0.0
            tile.of(self.of_segments)[..., -1:] = gradient[..., :1]
            gradient[..., 0] = 0.0
        if tile.same is not None:
            tile.of(self.of_segments)[..., :1] = (gradient * tile.same).sum(-1, keepdim=True)
        by_distance = scores.by_distance(tile, like=gradient)
        scores.by_key(by_distance, tile).copy_(gradient)
        for_distances = (by_distance @ scores.distances_of(tile, scores.distances)).view_as(for_keys)
        if self.distances is not None:
            scores.distances_of(tile, self.distances).add_(by_distance.mT @ scores.for_distances(tile))
        torch.add(for_keys, for_distances, out=tile.of(self.query))
        self.content_bias[tile.heads] += for_keys.sum((1, 2), keepdim=True)
        self.position_bias[tile.heads] += for_distances.sum((1, 2), keepdim=True)

    def of_inputs(self, value: Tensor) -> tuple[Tensor | None, ...]:
        """In the order and the dtypes of the inputs."""
        dtype = self.query.dtype
        of_heads = [states.transpose(0, 1).to(dtype) for states in (self.query, self.key, value)]
        of_biases = [bias[:, 0, 0].to(dtype) for bias in (self.content_bias, self.position_bias)]
        of_distances = None if self.distances is None else self.distances.to(dtype)
        return *of_heads, *of_biases, of_distances, self.of_segments.transpose(0, 1)


def _zeros(states: Tensor) -> Tensor:
    wide = torch.promote_types(states.dtype, torch.float32)
    return torch.zeros_like(states, dtype=wide, memory_format=torch.contiguous_format)
