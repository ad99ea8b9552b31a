"""What a layer's scores need beside queries and keys, and which pairs are of one segment."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

__all__ = ["RelativeTerms", "same_segment", "segment_scores"]


class RelativeTerms(NamedTuple):
    """Parameters of one layer's relative attention, unscaled."""

    content_bias: Float[Tensor, "heads dim"]
    """Added to every query that meets a key (`r_w_bias`)."""
    position_bias: Float[Tensor, "heads dim"]
    """Added to every query that meets a distance (`r_r_bias`)."""
    segment_bias: Float[Tensor, "heads dim"]
    """Added to every query that meets a segment relation (`r_s_bias`)."""
    kernel: Float[Tensor, "width heads dim"]
    """From sinusoids to heads (`r_kernel`)."""
    segments: Float[Tensor, "two heads dim"]
    """Row 0: of another segment; row 1: of the same (`seg_embed`)."""


def same_segment(
    queries: Int[Tensor, "batch queries"], keys: Int[Tensor, "batch keys"], *, cls_segment: int
) -> Bool[Tensor, "batch queries keys"]:
    """Where ids are equal or either is `cls_segment`, which belongs to all segments.

    Example:
        >>> import torch
        >>> same_segment(torch.tensor([[0]]), torch.tensor([[2, 0, 1]]), cls_segment=2).tolist()
        [[[True, True, False]]]
    """
    queries, keys = queries[:, :, None], keys[:, None]
    return (queries == keys) | (queries == cls_segment) | (keys == cls_segment)


def segment_scores(
    query: Float[Tensor, "batch heads queries dim"], terms: RelativeTerms, *, several: bool
) -> Float[Tensor, "batch heads queries columns"]:
    """The segment term of each query, less what it adds to all keys alike, which a softmax does not see.

    With s = dim**−0.5, a query's score of another segment `o` and of the same segment `a`, both s (q + segment_bias) ·
    segments[…], only the difference counts: `a − o` for keys of the same segment, and, for a key that has no segment
    term, `−o`; with all keys of one segment, `−a`.

    Args:
        query: `[batch, heads, queries, dim]`, unscaled.
        terms: of the layer.
        several: whether there is more than one segment.

    Returns:
        `[batch, heads, queries, 2]`, the columns `a − o` and `−o`; or `[batch, heads, queries, 1]`, the column `−a`.
    """
    other, same = terms.segments.to(query.dtype) * query.shape[-1] ** -0.5
    meant = torch.stack([same - other, -other], -1) if several else -same[..., None]
    constant = terms.segment_bias.to(query.dtype)[:, None] @ meant
    return query @ meant + constant
