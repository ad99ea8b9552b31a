"""Positions as attention sees them: T5's buckets of relative distance."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

__all__ = ["relative_bias", "relative_buckets"]


def relative_buckets(
    distances: Int[Tensor, "*any"], *, num_buckets: int, max_distance: int = 128
) -> Int[Tensor, "*any"]:
    """T5's bidirectional buckets: exact for short distances, then logarithmic, the last one from `max_distance` on.

    Args:
        distances: key position − query position, in items of the sequence.
        num_buckets: of both directions together; the first half is for keys at or before the query.
        max_distance: from here on all distances share a bucket.

    Source: Raffel et al., T5 (JMLR 2020), section 2.1, and the released code, whose rounding in fp32 is kept.

    Example:
        >>> relative_buckets(torch.tensor([-200, -9, -1, 0, 1, 9, 200]), num_buckets=32).tolist()
        [15, 8, 1, 0, 17, 24, 31]
    """
    half = num_buckets // 2
    exact = half // 2
    far = distances.abs()
    # Raised to at least 1, so that distance 0, which is exact, has a logarithm too.
    logarithm = torch.log(far.clamp_min(1).float() / exact) / math.log(max_distance / exact)
    coarse = (exact + (logarithm * (half - exact)).to(distances.dtype)).clamp_max(half - 1)
    return (distances > 0) * half + torch.where(far < exact, far, coarse)


def relative_bias(
    tables: Float[Tensor, "tables buckets heads"], *, radius: int, max_distance: int = 128
) -> Float[Tensor, "tables heads offsets"]:
    """Tables of T5 buckets, spread out into one score for each offset −radius … radius.

    Args:
        tables: `[tables, buckets, heads]`, a table for each sequence that is attended to, or one for all.
        radius: of the window.
        max_distance: as in `relative_buckets`.

    Returns:
        `[tables, heads, 2 * radius + 1]` in the dtype of `tables`; differentiable.

    Example:
        >>> relative_bias(torch.arange(8.0).view(1, 8, 1), radius=2).tolist()
        [[[2.0, 1.0, 0.0, 5.0, 6.0]]]
    """
    distances = torch.arange(-radius, radius + 1, device=tables.device)
    buckets = relative_buckets(distances, num_buckets=tables.shape[1], max_distance=max_distance)
    return tables[:, buckets].transpose(1, 2)
