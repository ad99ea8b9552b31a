"""Multi-level local attention a tile of queries at a time, forward and backward: memory follows the tile.

Each row of a batch is cut to its real tokens, so that padding costs nothing and changes nothing; rows of one length
that follow each other are computed together. A tile's keys are the windows of all levels side by side. Scores are
recomputed in the backward pass; between the passes nothing is kept but the inputs and the output.
"""

from collections.abc import Iterator
from itertools import accumulate, groupby
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from narrows.core.windows import Window, tile_offsets, tiles, window, window_width
from narrows.mulla.levels import Pyramid, pool, unpool_

__all__ = ["TiledPlan"]

# Scores that one call may hold: rows of a batch share a call as long as their tiles stay below it.
_SCORES_AT_ONCE = 2**22


class TiledPlan(NamedTuple):
    """All that the layers of a model share: above all the position scores of a tile, the same for all tiles."""

    bias: Float[Tensor, "heads tile columns"]
    """For each level, side by side: the score of each key of the full window, −inf where a query does not see it."""
    row_lengths: tuple[int, ...]
    pyramid: Pyramid
    tile_size: int
    backend: str = "tiled"

    @classmethod
    def build(
        cls, bias: Float[Tensor, "levels heads offsets"], row_lengths: tuple[int, ...], pyramid: Pyramid, tile_size: int
    ) -> "TiledPlan":
        """Spread a table of scores an offset out into the scores of a tile; differentiable."""
        if bias.requires_grad:
            # What all tiles add to its gradient is summed in at least fp32.
            bias = bias.to(torch.promote_types(bias.dtype, torch.float32))
        # The last entry is where the offset −1, "not visible", points to.
        bias = functional.pad(bias, (0, 1), value=float("-inf"))
        parts = []
        for level in range(len(pyramid.lengths(max(row_lengths, default=0)))):
            offsets = tile_offsets(tile_size, radius=pyramid.radius, span=pyramid.span(level), device=bias.device)
            parts.append(bias[level if len(bias) > 1 else 0][:, offsets])
        return cls(torch.cat(parts, -1), row_lengths, pyramid, tile_size)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, *, dropout: float) -> Tensor:
        """See `mulla_attention`."""
        length, parts = query.shape[2], []
        for rows, real in self._row_groups():
            # From the CPU's global generator, so that a seeded run and a checkpoint's second pass draw the same.
            seed = int(torch.randint(2**62, ())) if dropout else 0
            settings = _Settings(self.pyramid, self.tile_size, dropout, seed)
            cut = (states[rows, :, :real] for states in (query, key, value))
            attended = _TiledAttention.apply(*cut, self.bias, settings)
            parts.append(attended if real == length else functional.pad(attended, (0, 0, 0, length - real)))
        if not parts:
            return torch.zeros_like(query)
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _row_groups(self) -> Iterator[tuple[slice, int]]:
        """Runs of rows of equal length, and that length."""
        at_once = max(1, _SCORES_AT_ONCE // max(1, self.bias.numel()))
        start = 0
        for real, run in groupby(self.row_lengths):
            stop = start + len(list(run))
            for first in range(start, stop, at_once):
                yield slice(first, min(first + at_once, stop)), real
            start = stop


class _Settings(NamedTuple):
    """How the tiles of one call are walked, apart from its tensors."""

    pyramid: Pyramid
    tile_size: int
    dropout: float
    seed: int

    def levels(self, states: Tensor) -> list[Tensor]:
        """The states and their pooled levels."""
        count = len(self.pyramid.lengths(states.shape[2]))
        return pool(states, pooling_rate=self.pyramid.pooling_rate, num_levels=count)

    def unpool(self, gradients: list[Tensor], states: Tensor) -> Tensor:
        """The adjoint of `levels`; works in the place of `gradients`."""
        return unpool_(gradients, pooling_rate=self.pyramid.pooling_rate).to(states.dtype)

    def kept(self, tile: "_Tile", weights: Tensor) -> Tensor:
        """Dropout's factors for a tile's weights: 0 or 1 / (1 − p), the same each time they are asked for."""
        generator = torch.Generator(weights.device).manual_seed(self.seed + tile.queries.start)
        return torch.empty_like(weights).bernoulli_(1 - self.dropout, generator=generator).div_(1 - self.dropout)


class _TiledAttention(torch.autograd.Function):
    """Attention of rows without padding.

    The result `[batch, heads, length, dim]` lies in memory as `[batch, length, heads, dim]`, which is how a model's
    output projection reads it: no copy is made on the way.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor, settings: _Settings) -> Tensor:
        keys, values = settings.levels(key), settings.levels(value)
        attended = query.new_empty(query.transpose(1, 2).shape).transpose(1, 2)
        for tile in _walk(bias, settings, query):
            tile_query, tile_keys, tile_values = query[:, :, tile.queries], tile.take(keys), tile.take(values)
            if settings.dropout:
                weights = tile.weights(tile_query, tile_keys)
                weights = weights.mul_(settings.kept(tile, weights)).to(value.dtype)
                attended[:, :, tile.queries] = weights @ tile_values
            else:
                attended[:, :, tile.queries] = functional.scaled_dot_product_attention(
                    tile_query, tile_keys, tile_values, attn_mask=tile.mask[None], scale=1.0
                )
        ctx.save_for_backward(query, key, value, bias, attended)
        ctx.settings = settings
        return attended

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        query, key, value, bias, attended = ctx.saved_tensors
        settings, wide = ctx.settings, torch.promote_types(query.dtype, torch.float32)
        keys, values = settings.levels(key), settings.levels(value)
        query_gradient = torch.empty_like(query)
        key_gradients = [torch.zeros_like(level, dtype=wide) for level in keys]
        value_gradients = [torch.zeros_like(level, dtype=wide) for level in values]
        bias_gradient = torch.zeros_like(bias) if ctx.needs_input_grad[3] else None
        for tile in _walk(bias, settings, query):
            # The product of strided heads is several times slower than that of contiguous ones.
            tile_query, tile_gradient = (states[:, :, tile.queries].contiguous() for states in (query, gradient))
            tile_keys = tile.take(keys)
            weights = tile.weights(tile_query, tile_keys)
            weights_gradient = (tile_gradient @ tile.take(values).mT).to(wide)
            used = weights
            if settings.dropout:
                kept = settings.kept(tile, weights)
                used, weights_gradient = weights * kept, weights_gradient.mul_(kept)
            tile.add_to_(value_gradients, used.to(gradient.dtype).mT @ tile_gradient)
            # Backward of a softmax: P · (dP − Σ P · dP), whose sum is also that of the output times its gradient.
            total = (attended[:, :, tile.queries] * tile_gradient.to(wide)).sum(-1, keepdim=True)
            scores_gradient = weights_gradient.sub_(total).mul_(weights)
            if bias_gradient is not None:
                tile.add_to_bias_(bias_gradient, scores_gradient)
            scores_gradient = scores_gradient.to(query.dtype)
            query_gradient[:, :, tile.queries] = scores_gradient @ tile_keys
            tile.add_to_(key_gradients, scores_gradient.mT @ tile_query)
        key_gradient, value_gradient = settings.unpool(key_gradients, key), settings.unpool(value_gradients, value)
        return query_gradient, key_gradient, value_gradient, bias_gradient, None


class _Tile(NamedTuple):
    """A tile of queries, the windows of keys that it needs, a level each, and the position scores between them."""

    queries: slice
    windows: list[Window]
    firsts: list[int]
    """Where each level's columns begin in the plan's bias."""
    mask: Float[Tensor, "heads queries keys"]

    def take(self, levels: list[Tensor]) -> Tensor:
        """The tile's keys (or values) of all levels, side by side."""
        parts = [states[:, :, part.keys] for states, part in zip(levels, self.windows, strict=True)]
        return torch.cat(parts, dim=2)

    def add_to_(self, levels: list[Tensor], gradient: Tensor) -> None:
        """The adjoint of `take`."""
        pieces = gradient.split([part.width for part in self.windows], dim=2)
        for states, part, piece in zip(levels, self.windows, pieces, strict=True):
            states[:, :, part.keys] += piece

    def add_to_bias_(self, bias: Tensor, gradient: Tensor) -> None:
        """The adjoint of reading `mask` from the plan's bias."""
        pieces = gradient.split([part.width for part in self.windows], dim=3)
        for first, part, piece in zip(self.firsts, self.windows, pieces, strict=True):
            target = bias[:, : piece.shape[2], first + part.columns.start : first + part.columns.stop]
            for row in piece:
                target += row

    def weights(self, query: Tensor, keys: Tensor) -> Tensor:
        """Attention weights, in at least fp32."""
        wide = torch.promote_types(query.dtype, torch.float32)
        return (query @ keys.mT).to(wide).add_(self.mask).softmax(-1)


def _walk(bias: Tensor, settings: _Settings, query: Tensor) -> Iterator[_Tile]:
    """The tiles in order. They share one buffer for the mask: a tile must be done with before the next is taken.

    Only columns that differ from those of the tile before are written; inside a long text these are the last level's.
    """
    pyramid, tile_size = settings.pyramid, settings.tile_size
    lengths = pyramid.lengths(query.shape[2])
    spans = [pyramid.span(level) for level in range(len(lengths))]
    widths = [window_width(tile_size, radius=pyramid.radius, span=span) for span in spans]
    firsts = list(accumulate(widths, initial=0))[:-1]
    # In the states' own dtype where the scores come in it: the same scores in half of the memory.
    kept_in = bias.dtype if bias.dtype == query.dtype else torch.promote_types(query.dtype, torch.float32)
    buffer = torch.empty_like(bias, dtype=kept_in)
    written: list[tuple[int, slice] | None] = [None] * len(lengths)
    for queries in tiles(lengths[0], tile_size):
        windows, stop = [], 0
        for level, (slots, span) in enumerate(zip(lengths, spans, strict=True)):
            part = window(queries, radius=pyramid.radius, length=slots, span=span)
            start, stop = stop, stop + part.width
            if written[level] != (start, part.columns):
                columns = slice(firsts[level] + part.columns.start, firsts[level] + part.columns.stop)
                buffer[:, :, start:stop] = bias[:, :, columns]
                written[level] = start, part.columns
            windows.append(part)
        yield _Tile(slice(queries.start, queries.stop), windows, firsts, buffer[:, : len(queries), :stop])
