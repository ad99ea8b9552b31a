"""Where queries and keys stand, and the sinusoids of their distances: in closed form, in fp32, kept outside of models.

Source: Dai et al., Funnel-Transformer (NeurIPS 2020), appendix A.2; sines and cosines as two halves, as the released
code has them.
"""

from functools import lru_cache
from typing import NamedTuple
from weakref import WeakValueDictionary

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from narrows.errors import UsageError

__all__ = ["FactorTables", "Geometry", "factor_tables", "is_traced", "kept_rows", "relative_table", "sinusoids"]

# Rows that a kept table has beyond what was asked for, so that texts of similar length share one.
_BLOCK = 128

# Numbers in the largest table that is kept.
_KEPT_AT_MOST = 2**21

# Kept tables by the address of their memory: what a slice of one is found by.
_kept_tables: WeakValueDictionary[int, Tensor] = WeakValueDictionary()


class Geometry(NamedTuple):
    """Where queries and keys stand: evenly, the same for all rows of a batch.

    Query `i` is at `first_query + i * query_stride`, key `j` at `first_key + j * key_stride`.
    """

    queries: int
    keys: int
    first_query: int = 0
    query_stride: int = 1
    first_key: int = 0
    key_stride: int = 1
    separate_cls: bool = True
    """Row 0 and column 0 get neither a position nor a segment term."""

    @property
    def shift(self) -> int:
        """Keys that one step of the queries passes: 1, or the pooling size where pooled queries meet unpooled keys.

        Raises:
            UsageError: the queries' stride is no multiple of the keys'.
        """
        if self.query_stride % self.key_stride != 0:
            raise UsageError(
                f"`query_stride` must be a multiple of `key_stride`, got {self.query_stride} and {self.key_stride}; "
                f"pool queries at least as much as keys"
            )
        return self.query_stride // self.key_stride

    @property
    def distances(self) -> int:
        """Different distances between a query and a key, in steps of `key_stride`."""
        return (self.queries - 1) * self.shift + self.keys

    @property
    def farthest(self) -> int:
        """The largest distance, query − key: of the last query and the first key."""
        return self.first_query + (self.queries - 1) * self.query_stride - self.first_key


class FactorTables(NamedTuple):
    """Sinusoids of the positions themselves, for the factorized form."""

    query: Float[Tensor, "queries width"]
    """Dropout, if any, goes here (as in the released code)."""
    key: Float[Tensor, "keys width"]


def sinusoids(first: int, step: int, count: int, *, width: int, device: torch.device | str = "cpu") -> Tensor:
    """R(p) = [sin(p ω), cos(p ω)], ω_d = 10000^(−d / (width / 2)), at `first`, `first + step`, …

    Not kept: see `relative_table` and `factor_tables`.

    Args:
        first: position of row 0; may be negative.
        step: between rows; may be negative.
        count: rows.
        width: of the model, even: width / 2 sines, then width / 2 cosines.
        device: of the result.

    Returns:
        `[count, width]` in fp32, whatever a model's dtype: in bf16 the positions themselves would be wrong from 257 on.

    Raises:
        UsageError: `width` is odd.

    Example:
        >>> sinusoids(0, 1, 2, width=2).tolist()
        [[0.0, 1.0], [0.8414709568023682, 0.5403022766113281]]
    """
    if width % 2:
        raise UsageError(f"`width` must be even, half sines and half cosines, got {width}; choose an even `d_model`")
    # Angles in fp64: in fp32 an angle of 8,192 is off by 5e-4.
    frequencies = 10000.0 ** (torch.arange(width // 2, device=device, dtype=torch.float64) / -(width // 2))
    positions = first + step * torch.arange(count, device=device, dtype=torch.float64)
    angles = positions[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], -1).float()


def relative_table(
    geometry: Geometry, *, width: int, device: torch.device | str = "cpu"
) -> Float[Tensor, "distances width"]:
    """The sinusoids of all distances between a query and a key, the largest (query − key) first.

    Row `j − i * shift + (queries − 1) * shift` is that of query `i` and key `j`.

    Args:
        geometry: of queries and keys.
        width: of the model.
        device: of the result.

    Returns:
        `[geometry.distances, width]` in fp32: rows of a table that is kept and shared, so do not write to it. While
        torch compiles or exports, it is computed in the graph.

    Raises:
        UsageError: as `sinusoids`, or the strides do not fit each other.

    Example:
        >>> relative_table(Geometry(2, 2), width=2)[:, 0].asin().round().tolist()
        [1.0, 0.0, -1.0]
    """
    farthest, step, count = geometry.farthest, geometry.key_stride, geometry.distances
    if is_traced() or count * width > _KEPT_AT_MOST:
        return sinusoids(farthest, -step, count, width=width, device=device)
    # In steps from a fixed origin the ends are rounded outwards.
    origin, above = farthest % step, farthest // step
    top = -(-above // _BLOCK) * _BLOCK
    bottom = (above - count + 1) // _BLOCK * _BLOCK
    table = _kept(origin + top * step, -step, top - bottom + 1, width, torch.device(device))
    return table[top - above : top - above + count]


def factor_tables(geometry: Geometry, *, width: int, device: torch.device | str = "cpu") -> FactorTables:
    """The sinusoids of the queries' and of the keys' positions, for the backend `factorized`.

    Args:
        geometry: of queries and keys.
        width: of the model.
        device: of the result.

    Returns:
        Two tables in fp32 that are kept and shared, so do not write to them. While torch compiles or exports, they are
        computed in the graph.

    Raises:
        UsageError: as `sinusoids`.
    """
    traced = is_traced() or max(geometry.queries, geometry.keys) * width > _KEPT_AT_MOST
    make = sinusoids if traced else _kept_sinusoids
    return FactorTables(
        make(geometry.first_query, geometry.query_stride, geometry.queries, width=width, device=device),
        make(geometry.first_key, geometry.key_stride, geometry.keys, width=width, device=device),
    )


def kept_rows(table: Tensor) -> tuple[Tensor, int] | None:
    """The kept table that these are rows of, and the first of them; None: not of a kept one, as after dropout."""
    whole = None if is_traced() else _kept_tables.get(table.untyped_storage().data_ptr())
    if whole is None or table.dtype != whole.dtype or table.shape[1:] != whole.shape[1:]:
        return None
    if table.stride() != whole.stride() or table.storage_offset() % whole.shape[1]:
        return None
    return whole, table.storage_offset() // whole.shape[1]


def is_traced() -> bool:
    """Whether tensors may be stand-ins, as in a compilation, an export or torch's fake mode: nothing may be kept."""
    return torch.compiler.is_compiling() or is_in_torch_dispatch_mode()


def _kept_sinusoids(first: int, step: int, count: int, *, width: int, device: torch.device | str) -> Tensor:
    return _kept(first, step, count, width, torch.device(device))


@lru_cache(maxsize=16)
def _kept(first: int, step: int, count: int, width: int, device: torch.device) -> Tensor:
    # A tensor made in inference mode could not serve a later training step.
    with torch.inference_mode(False), torch.no_grad():
        table = sinusoids(first, step, count, width=width, device=device)
    _kept_tables[table.untyped_storage().data_ptr()] = table
    return table
