"""What a layer's scores need beside queries and keys, and which pairs are of one segment."""

from typing import NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor

__all__ = ["RelativeTerms", "same_segment"]


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
