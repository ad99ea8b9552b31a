"""Funnel attention as its formula says, with every score in memory: the truth that the other forms equal.

Two formulations of the position score share it: one sinusoid a distance, and the paper's factors of both positions.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from narrows.funnel.positions import FactorTables, Geometry
from narrows.funnel.terms import RelativeTerms, same_segment

__all__ = ["attend_reference", "relative_weights"]


def attend_reference(
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
    tables: Float[Tensor, "distances width"] | FactorTables,
    dropout: float,
) -> Float[Tensor, "batch heads queries dim"]:
    """The mean of the values by `relative_weights`, in at least fp32; see `attend_relative`."""
    weights = relative_weights(
        query,
        key,
        terms=terms,
        geometry=geometry,
        query_segments=query_segments,
        key_segments=key_segments,
        cls_segment=cls_segment,
        mask=mask,
        tables=tables,
    )
    return (functional.dropout(weights, dropout) @ value.to(weights.dtype)).to(query.dtype)


def relative_weights(
    query: Float[Tensor, "batch heads queries dim"],
    key: Float[Tensor, "batch heads keys dim"],
    *,
    terms: RelativeTerms,
    geometry: Geometry,
    query_segments: Int[Tensor, "batch queries"] | None,
    key_segments: Int[Tensor, "batch keys"] | None,
    cls_segment: int,
    mask: Bool[Tensor, "batch keys"] | None,
    tables: Float[Tensor, "distances width"] | FactorTables,
) -> Float[Tensor, "batch heads queries keys"]:
    """Softmax over content, position and segment scores together, in at least fp32; zeros in a row without a key."""
    wide = torch.promote_types(query.dtype, torch.float32)
    content_bias, position_bias, segment_bias, kernel, segments = (term.to(wide) for term in terms)
    unscaled, scale = query.to(wide), query.shape[-1] ** -0.5

    meeting_distances = (unscaled + position_bias[:, None]) * scale
    if isinstance(tables, FactorTables):
        relative = _factorized_scores(meeting_distances, kernel, tables)
    else:
        relative = _position_scores(meeting_distances, kernel, tables, geometry)

    meeting_segments = (unscaled + segment_bias[:, None]) * scale
    other, same = torch.einsum("bhid,shd->sbhi", meeting_segments, segments)[..., None]
    if query_segments is None or key_segments is None:
        relative = relative + same
    else:
        is_same = same_segment(query_segments, key_segments, cls_segment=cls_segment)
        relative = relative + torch.where(is_same[:, None], same, other)

    if geometry.separate_cls:
        relative = functional.pad(relative[:, :, 1:, 1:], (1, 0, 1, 0))
    scores = (unscaled + content_bias[:, None]) * scale @ key.to(wide).mT + relative
    return _weights(scores, mask)


def _position_scores(query: Tensor, kernel: Tensor, table: Tensor, geometry: Geometry) -> Tensor:
    """q · (W_r R(distance)), each distance read from the one table of all of them."""
    queries = torch.arange(geometry.queries, device=query.device)
    keys = torch.arange(geometry.keys, device=query.device)
    rows = keys + (geometry.queries - 1 - queries)[:, None] * geometry.shift
    projected = torch.einsum("nw,whd->hnd", table.to(kernel.dtype), kernel)
    # One query at a time would do; a gather of the scores of all distances says the same.
    every = query @ projected.mT
    return every.gather(-1, rows.expand(*query.shape[:2], *rows.shape))


def _factorized_scores(query: Tensor, kernel: Tensor, tables: FactorTables) -> Tensor:
    """The same by sin(a − b) = sin a cos b − cos a sin b and cos(a − b) = cos a cos b + sin a sin b.

    The query, brought to the model's width, is turned by its own position and then meets the key's.
    """
    for_sines, for_cosines = torch.einsum("bhid,whd->bhiw", query, kernel).chunk(2, -1)
    sines, cosines = tables.query.to(kernel.dtype).chunk(2, -1)
    turned = torch.cat([for_cosines * sines - for_sines * cosines, for_sines * sines + for_cosines * cosines], -1)
    return turned @ tables.key.to(kernel.dtype).mT


def _weights(scores: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return scores.softmax(-1)
    mask = mask[:, None, None]
    # Finite in place of -inf, since a row of -inf has no softmax; the weights are then set to zero.
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1).masked_fill(~mask, 0.0)
