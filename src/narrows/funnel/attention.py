"""Funnel's attention by name: Transformer-XL's relative scores with a segment term, a reference and faster forms.

Source: Dai et al., Funnel-Transformer (NeurIPS 2020), appendix A.2, and the released code, whose scores these are.
"""

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from narrows.core import attend
from narrows.errors import UsageError
from narrows.funnel.attention_bias import attend_by_bias
from narrows.funnel.attention_reference import attend_reference
from narrows.funnel.attention_tiled import attend_tiled
from narrows.funnel.positions import FactorTables, Geometry, factor_tables, relative_table
from narrows.funnel.terms import RelativeTerms

__all__ = ["Geometry", "RelativeTerms", "attend_relative", "chosen_backend", "factor_tables", "relative_table"]

_BACKENDS: dict[str, Callable[..., Tensor]] = {
    "reference": attend_reference,
    "factorized": attend_reference,
    "sdpa": attend_by_bias,
    "tiled": attend_tiled,
}


def chosen_backend(backend: str, *, tables: Tensor | FactorTables | None = None) -> str:
    """The backend that a name stands for.

    | name | computes | holds at once |
    |---|---|---|
    | `reference` | as the formula says, in at least fp32 | every score of every distance |
    | `factorized` | the paper's second form, by factors of both positions, in at least fp32 | every score |
    | `sdpa` | a bias for torch's fused attention; compiles and exports once for all lengths | every score |
    | `tiled` | a tile of queries after the other, forward and backward | a tile |

    `auto` is `factorized` with the tables of that form; else `sdpa` while torch compiles or exports, whose graphs
    cannot loop over a number of tiles that depends on the length; else `tiled`.

    Args:
        backend: `auto` or one of these names.
        tables: as `attend_relative` will get them.

    Raises:
        UsageError: there is no such backend.

    Example:
        >>> chosen_backend("auto")
        'tiled'
    """
    if backend == "auto":
        if isinstance(tables, FactorTables):
            return "factorized"
        return "sdpa" if torch.compiler.is_compiling() else "tiled"
    if backend not in _BACKENDS:
        raise UsageError(
            f"`backend` must be auto or one of {', '.join(_BACKENDS)}, got {backend!r}; choose one of them"
        )
    return backend


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

    Raises:
        UsageError: there is no such backend, `dropout` is no probability below 1, a shape differs from the geometry,
            or terms and tables do not fit each other or the backend.

    Example:
        >>> terms = RelativeTerms(*(torch.zeros(1, 2),) * 3, torch.zeros(4, 1, 2), torch.zeros(2, 1, 2))
        >>> geometry = Geometry(2, 2)
        >>> states = torch.tensor([[[[1.0, 0.0], [3.0, 0.0]]]])
        >>> tables = relative_table(geometry, width=4)
        >>> attend_relative(0 * states, states, states, terms=terms, geometry=geometry, tables=tables).tolist()
        [[[[2.0, 0.0], [2.0, 0.0]]]]
    """
    _check(query, key, terms, geometry, tables, dropout)
    backend = chosen_backend(backend, tables=tables)
    if terms is None or tables is None:
        plain = "reference" if backend == "reference" else "sdpa"
        seen = None if mask is None else mask[:, None, None]
        return attend(query, key, value, mask=seen, dropout=dropout, backend=plain)
    if isinstance(tables, FactorTables) != (backend == "factorized"):
        made_by = "factor_tables" if backend == "factorized" else "relative_table"
        raise UsageError(
            f"`tables` for the backend {backend!r} must come from `{made_by}`, got "
            f"{'factors of positions' if isinstance(tables, FactorTables) else 'one table of distances'}; "
            f"make them by `{made_by}` or choose another backend"
        )
    inputs: dict[str, Any] = {
        "terms": terms,
        "geometry": geometry,
        "query_segments": query_segments,
        "key_segments": key_segments,
        "cls_segment": cls_segment,
        "mask": mask,
        "tables": tables,
        "dropout": dropout,
    }
    if not torch.is_autocast_enabled(query.device.type):
        return _BACKENDS[backend](query, key, value, **inputs)
    # The forms choose themselves what is computed in which precision.
    with torch.autocast(query.device.type, enabled=False):
        return _BACKENDS[backend](query, key, value, **inputs)


def _check(
    query: Tensor,
    key: Tensor,
    terms: RelativeTerms | None,
    geometry: Geometry,
    tables: Tensor | FactorTables | None,
    dropout: float,
) -> None:
    if not 0 <= dropout < 1:
        raise UsageError(f"`dropout` must be a probability from 0 to below 1, got {dropout}; pass 0 outside training")
    if (query.shape[2], key.shape[2]) != (geometry.queries, geometry.keys):
        raise UsageError(
            f"`geometry` must have the {query.shape[2]} queries and {key.shape[2]} keys of the states, "
            f"got {geometry.queries} and {geometry.keys}; make one for each pair of lengths"
        )
    if (terms is None) != (tables is None):
        raise UsageError(
            "`terms` and `tables` must be given together, or neither for absolute positions, got one of them; "
            "give both or none"
        )
    if isinstance(tables, Tensor) and tables.shape[0] != geometry.distances:
        raise UsageError(
            f"`tables` must have a row for each of the {geometry.distances} distances of this geometry, got "
            f"{tables.shape[0]}; make them by `relative_table`"
        )
