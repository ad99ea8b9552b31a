"""Funnel attention as a bias to torch's fused attention: a graph of fixed shape for any length, to compile or export.

Queries go in runs of fixed size, each against the distances that it needs: with a loop over tiles a graph would depend
on their number.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from narrows.funnel.positions import Geometry
from narrows.funnel.projection import project_distances
from narrows.funnel.terms import RelativeTerms, same_segment, segment_scores

__all__ = ["attend_by_bias", "skewed"]

# Queries whose position scores are computed against the same distances.
_RUN = 64


def attend_by_bias(
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
    """See `attend_relative`. The bias holds `batch × heads × queries × keys` numbers."""
    dtype = query.dtype
    bias = _position_scores(query + terms.position_bias.to(dtype)[:, None], terms, geometry, tables)
    same = None
    if query_segments is not None and key_segments is not None:
        same = same_segment(query_segments, key_segments, cls_segment=cls_segment)[:, None]
    of_segments = segment_scores(query, terms, several=same is not None)
    if same is not None:
        bias = bias + same * of_segments[..., :1]
    if geometry.separate_cls:
        is_first_key = torch.arange(geometry.keys, device=bias.device) == 0
        is_first_query = torch.arange(geometry.queries, device=bias.device)[:, None] == 0
        bias = torch.where(is_first_key, of_segments[..., -1:], bias).masked_fill(is_first_query, 0.0)
    if mask is not None:
        bias = bias.masked_fill(~mask[:, None, None], torch.finfo(dtype).min / 2)
    attended = functional.scaled_dot_product_attention(
        query + terms.content_bias.to(dtype)[:, None], key, value, attn_mask=bias, dropout_p=dropout
    )
    return attended if mask is None else attended.masked_fill(~mask.any(-1)[:, None, None, None], 0.0)


def _position_scores(query: Tensor, terms: RelativeTerms, geometry: Geometry, tables: Tensor) -> Tensor:
    queries, keys, shift, device = geometry.queries, geometry.keys, geometry.shift, query.device
    # One more than needed: a graph for a single run would be a special one to torch.
    runs = (queries + _RUN - 1) // _RUN + 1
    # By index and not by views throughout: what torch would ask of views, it cannot answer for an unknown length.
    first = torch.arange(runs, device=device)[:, None] * _RUN
    query = query[:, :, (first + torch.arange(_RUN, device=device)).clamp(max=queries - 1)]
    # Row 0 of what a run needs is the distance of its last query and the first key.
    last = (queries - _RUN - first) * shift
    rows = (last + torch.arange(_RUN * shift + keys, device=device)).clamp(0, geometry.distances - 1)
    distances = project_distances(tables, terms.kernel, dtype=query.dtype)[:, rows]
    scores = skewed(query @ distances.mT, shift=shift, keys=keys)
    every = torch.arange(queries, device=device)
    return scores[:, :, every // _RUN, every % _RUN]


def skewed(scores: Float[Tensor, "*any queries width"], *, shift: int, keys: int) -> Float[Tensor, "*any queries keys"]:
    """Scores by distance as scores by key, without a copy: row `i` begins `(queries − 1 − i) * shift` columns in.

    Args:
        scores: `[..., queries, queries * shift + keys]`; the last `shift` columns are not read.
        shift: keys that one step of the queries passes.
        keys: to keep.

    Example:
        >>> import torch
        >>> skewed(torch.arange(10).view(2, 5), shift=1, keys=3).tolist()
        [[1, 2, 3], [5, 6, 7]]
    """
    queries, width = scores.shape[-2:]
    flat = scores.flatten(-2).narrow(-1, (queries - 1) * shift, queries * (width - shift))
    return flat.unflatten(-1, (queries, width - shift)).narrow(-1, 0, keys)
