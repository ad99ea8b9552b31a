"""Funnel's attention by name: Transformer-XL's relative scores with a segment term, a reference and faster forms.

Source: Dai et al., Funnel-Transformer (NeurIPS 2020), appendix A.2, and the released code, whose scores these are.
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor

from narrows.core import attend
from narrows.errors import UsageError
from narrows.funnel.attention_reference import attend_reference
from narrows.funnel.positions import FactorTables, Geometry, factor_tables, relative_table
from narrows.funnel.terms import RelativeTerms

__all__ = ["Geometry", "RelativeTerms", "attend_relative", "chosen_backend", "factor_tables", "relative_table"]

_BACKENDS = ("reference", "factorized")


def chosen_backend(backend: str) -> str:
    """The backend that a name stands for."""
    return "reference" if backend == "auto" else backend


def attend_relative(
    query: Float[Tensor, "batch heads queries dim"],
    key: Float[Tensor, "batch heads keys dim"],
    value: Float[Tensor, "batch heads keys dim"],
    *,
    terms: RelativeTerms | None,
    geometry: Geometry,
    query_segments: Int[Tensor, "batch queries"] | None = None,
    key_segments: Int[Tensor, "batch keys"] | None = None,
    cls_segment: int = 2,
    mask: Bool[Tensor, "batch keys"] | None = None,
    tables: Float[Tensor, "distances width"] | FactorTables | None = None,
    dropout: float = 0.0,
    backend: str = "auto",
) -> Float[Tensor, "batch heads queries dim"]:
    """Each query's mean of the values, weighted by a softmax over content, position and segment scores.

    With s = dim**−0.5, and m = 0 in row 0 and column 0 if `geometry.separate_cls`, else 1, the score of query i and
    key j is s (q_i + content_bias) · k_j + m s (q_i + position_bias) · (kernel R(distance)) + m s (q_i + segment_bias)
    · segments[same].

    Args:
        query: `[batch, heads, queries, dim]`, unscaled.
        key: `[batch, heads, keys, dim]`.
        value: `[batch, heads, keys, dim]`.
        terms: the layer's parameters, in any float dtype; None: content scores only, for absolute positions.
        geometry: where queries and keys stand.
        query_segments: `[batch, queries]`; None: all of one segment.
        key_segments: `[batch, keys]`; None: all of one segment.
        cls_segment: the id that is of the same segment as every other.
        mask: True for a real key; None: all are. A row without one gets zeros.
        tables: of `relative_table` for this geometry, or of `factor_tables` for the factorized form (dropout may have
            been applied to them); None with `terms` None.
        dropout: probability of dropping an attention weight; pass 0 outside training.
        backend: see `chosen_backend`.

    Returns:
        `[batch, heads, queries, dim]` in the dtype of `query`.
    """
    backend = chosen_backend(backend)
    if terms is None or tables is None:
        plain = "reference" if backend == "reference" else "sdpa"
        return attend(
            query, key, value, mask=None if mask is None else mask[:, None, None], dropout=dropout, backend=plain
        )
    if backend not in _BACKENDS:
        raise UsageError(f"`backend` must be one of {', '.join(_BACKENDS)}, got {backend!r}; choose one of them")
    return attend_reference(
        query,
        key,
        value,
        terms=terms,
        geometry=geometry,
        query_segments=query_segments,
        key_segments=key_segments,
        cls_segment=cls_segment,
        mask=mask,
        tables=tables,
        dropout=dropout,
    )
