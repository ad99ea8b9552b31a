"""Multi-level local attention by name: a plan that all layers share, and the attention that follows it.

Source: Zhou, LongT5-Mulla (IEEE Access 2023). The README of this room says which keys a query sees.
"""

from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor

from narrows.core.windows import aligned_tile_size, is_aligned
from narrows.errors import UsageError
from narrows.mulla.flex import FlexPlan
from narrows.mulla.levels import Pyramid
from narrows.mulla.reference import ReferencePlan
from narrows.mulla.tiled import TiledPlan

__all__ = ["MullaPlan", "chosen_backend", "mulla_attention", "plan_attention"]

_BACKENDS = ("reference", "tiled", "flex")

# Queries of a tile, where the pooling rate allows it. Larger tiles make fewer calls, but their windows hold more keys
# that a single query does not see, and their scores leave the cache.
_TILE_SIZE = 128


class MullaPlan(NamedTuple):
    """What the layers of a model share in one pass over a batch; made by `plan_attention`."""

    shape: tuple[int, int, int]
    """Batch, heads and length that the plan is for."""
    form: ReferencePlan | TiledPlan | FlexPlan

    @property
    def backend(self) -> str:
        """The form that computes."""
        return self.form.backend

    @property
    def bias(self) -> Tensor:
        """The plan's one tensor that takes a gradient: the position scores, laid out as the form needs them."""
        return self.form.bias

    def with_bias(self, bias: Tensor) -> "MullaPlan":
        """The same plan over another tensor in the place of `bias`.

        Reentrant checkpointing sees only the tensors that it is handed:

            checkpoint(lambda q, k, v, bias: mulla_attention(q, k, v, plan.with_bias(bias)), q, k, v, plan.bias, ...)
        """
        return self._replace(form=self.form._replace(bias=bias))


def chosen_backend(backend: str) -> str:
    """The backend that a name stands for: `auto` is `tiled`, on every device; any other name is itself.

    Raises:
        UsageError: there is no such backend.
    """
    if backend == "auto":
        return "tiled"
    if backend not in _BACKENDS:
        raise UsageError(
            f"`backend` must be auto or one of {', '.join(_BACKENDS)}, got {backend!r}; choose one of them"
        )
    return backend


def plan_attention(
    bias: Float[Tensor, "levels heads offsets"],
    lengths: Int[Tensor, " batch"],
    pyramid: Pyramid,
    *,
    length: int,
    backend: str = "auto",
    tile_size: int | None = None,
) -> MullaPlan:
    """Prepare what does not depend on a layer's states: above all the position scores, laid out once for all layers.

    Args:
        bias: `[levels, heads, 2 * radius + 1]`, the score that each level gives to slot − proxy + radius, as
            `narrows.core.relative_bias` makes them; one entry for each of `pyramid.lengths(length)`, or a single one
            that all levels share.
        lengths: real tokens of each row, at its front; rows of 0 are allowed. How many levels a row has depends on
            its own length only.
        pyramid: radius, pooling rate and number of levels.
        length: tokens of a row, padding included.
        backend: `reference` (every score in memory), `tiled` (memory follows a tile), `flex` (torch's FlexAttention,
            compiled on first use; no dropout, no fp64, on a CPU no gradients) or `auto`; see `chosen_backend`.
        tile_size: queries computed together by `tiled`; a multiple or a divisor of the tokens that a slot covers, at
            every level. None: near 128.

    Raises:
        UsageError: there is no such backend, or a shape, a length or the tile size does not fit.

    Example:
        >>> import torch
        >>> pyramid = Pyramid(radius=3, pooling_rate=2)
        >>> plan = plan_attention(torch.zeros(1, 2, 7), torch.tensor([9, 5]), pyramid, length=9)
        >>> plan.backend, plan.shape
        ('tiled', (2, 2, 9))
    """
    backend = chosen_backend(backend)
    row_lengths = _checked_lengths(lengths, length)
    levels = len(pyramid.lengths(length))
    if bias.shape[0] not in (1, levels) or bias.shape[2] != 2 * pyramid.radius + 1:
        raise UsageError(
            f"`bias` must be [1 or {levels} levels, heads, {2 * pyramid.radius + 1} offsets] for radius "
            f"{pyramid.radius} and length {length}, got {list(bias.shape)}; make it by `relative_bias` with this radius"
        )
    shape = len(row_lengths), bias.shape[1], length
    if backend == "reference":
        return MullaPlan(shape, ReferencePlan(bias, lengths, pyramid))
    if backend == "flex":
        return MullaPlan(shape, FlexPlan.build(bias, lengths, pyramid, length))
    return MullaPlan(shape, TiledPlan.build(bias, row_lengths, pyramid, _checked_tile_size(tile_size, levels, pyramid)))


def mulla_attention(
    query: Float[Tensor, "batch heads length dim"],
    key: Float[Tensor, "batch heads length dim"],
    value: Float[Tensor, "batch heads length dim"],
    plan: MullaPlan,
    *,
    dropout: float = 0.0,
) -> Float[Tensor, "batch heads length dim"]:
    """Each query's mean of the values that it sees at all levels, weighted by one softmax(q·k + bias) over them.

    Scores are not divided by sqrt(dim), as in T5. A slot of a pooled level holds the mean of the keys, and of the
    values, of the real tokens that it covers.

    Args:
        query: `[batch, heads, length, dim]`, real tokens at the front of each row (else: `narrows.core.compact`).
        key: `[batch, heads, length, dim]`.
        value: `[batch, heads, length, dim]`.
        plan: of `plan_attention`; one serves all layers.
        dropout: probability of dropping an attention weight; pass 0 outside training. The tiled form draws a seed for
            each run of rows of equal length from torch's global CPU generator, and its backward pass uses it again.

    Returns:
        `[batch, heads, length, dim]` in the dtype of `query`; zeros at padding, which passes no gradient.

    Raises:
        UsageError: a shape differs from the plan's, or `dropout` is no probability below 1.

    Example:
        >>> import torch
        >>> states = torch.tensor([1.0, 3.0, 5.0, 7.0]).view(1, 1, 4, 1)
        >>> pyramid = Pyramid(radius=1, pooling_rate=2, num_levels=2)
        >>> plan = plan_attention(torch.zeros(1, 1, 3), torch.tensor([4]), pyramid, length=4)
        >>> mulla_attention(torch.zeros(1, 1, 4, 1), states, states, plan).flatten().tolist()  # first: 1, 3 and 2, 6
        [3.0, 3.4000000953674316, 4.599999904632568, 5.0]
    """
    if not 0 <= dropout < 1:
        raise UsageError(f"`dropout` must be a probability from 0 to below 1, got {dropout}; pass 0 outside training")
    for name, states in (("query", query), ("key", key), ("value", value)):
        if tuple(states.shape[:3]) != plan.shape:
            raise UsageError(
                f"`{name}` must be [batch, heads, length, dim] with the plan's {list(plan.shape)} in front, "
                f"got {list(states.shape)}; make the plan anew for each batch"
            )
    return plan.form.attend(query, key, value, dropout=dropout)


def _checked_lengths(lengths: Tensor, length: int) -> tuple[int, ...]:
    rows = tuple(lengths.tolist())
    for row, real in enumerate(rows):
        if not 0 <= real <= length:
            raise UsageError(
                f"`lengths` must lie from 0 to the length of a row, {length}, got {real} for row {row}; "
                f"count the real tokens of each row"
            )
    return rows


def _checked_tile_size(tile_size: int | None, levels: int, pyramid: Pyramid) -> int:
    spans = [pyramid.span(level) for level in range(levels)]
    if tile_size is None:
        return aligned_tile_size(_TILE_SIZE, spans)
    if tile_size < 1 or not is_aligned(tile_size, spans):
        raise UsageError(
            f"`tile_size` must be a multiple or a divisor of each of {', '.join(map(str, spans))}, "
            f"got {tile_size}; the nearest is {aligned_tile_size(max(tile_size, 1), spans)}"
        )
    return tile_size
