"""Sinusoids brought to the heads by a layer's kernel; kept between calls where no gradient is asked for."""

from collections import OrderedDict
from threading import Lock
from typing import NamedTuple
from weakref import ref

import torch
from jaxtyping import Float
from torch import Tensor

from narrows.funnel.positions import is_traced, kept_rows

__all__ = ["project_distances"]

# Bytes of all kept products together; B6-6-6 at width 768 needs 35 MiB for 512 tokens.
_KEPT_AT_MOST = 2**27


class _Stamp(NamedTuple):
    """What changes when a parameter does: torch counts writes, except those through `.data`, which the sum shows."""

    version: int
    address: int
    bits: int


class _Kept(NamedTuple):
    kernel: "ref[Tensor]"
    table: "ref[Tensor]"
    stamp: _Stamp
    product: Tensor


_kept: OrderedDict[tuple[int, int, torch.dtype], _Kept] = OrderedDict()
_lock = Lock()


def project_distances(
    table: Float[Tensor, "distances width"], kernel: Float[Tensor, "width heads dim"], *, dtype: torch.dtype
) -> Float[Tensor, "heads distances dim"]:
    """R(distance) · kernel · dim**−0.5, of every distance in the table.

    On a CPU, where it is a sizeable part of a short batch's work, the product with a table of `relative_table` is kept
    until the kernel changes or no longer exists, unless a gradient is needed.

    Args:
        table: `[distances, width]`; multiplied in at least fp32.
        kernel: `[width, heads, dim]`.
        dtype: of the result.

    Returns:
        `[heads, distances, dim]`, perhaps rows of a kept tensor: do not write to it.
    """
    needs_gradient = torch.is_grad_enabled() and (table.requires_grad or kernel.requires_grad)
    if needs_gradient or is_traced() or table.device.type != "cpu" or kernel.is_inference():
        return _product(table, kernel, dtype)
    rows = kept_rows(table)
    if rows is None:
        return _product(table, kernel, dtype)
    whole, first = rows
    return _kept_product(whole, kernel, dtype)[:, first : first + table.shape[0]]


def _product(table: Tensor, kernel: Tensor, dtype: torch.dtype) -> Tensor:
    wide = torch.promote_types(torch.promote_types(table.dtype, kernel.dtype), dtype)
    width, heads, dim = kernel.shape
    product = table.to(wide) @ (kernel.to(wide) * dim**-0.5).reshape(width, heads * dim)
    return product.unflatten(-1, (heads, dim)).transpose(0, 1).to(dtype).contiguous()


def _kept_product(table: Tensor, kernel: Tensor, dtype: torch.dtype) -> Tensor:
    key = id(kernel), id(table), dtype
    stamp = _Stamp(kernel._version, kernel.data_ptr(), _bits(kernel))
    with _lock:
        kept = _kept.get(key)
        if kept is not None and kept.kernel() is kernel and kept.table() is table and kept.stamp == stamp:
            _kept.move_to_end(key)
            return kept.product
    # A tensor made in inference mode could not serve where gradients of other inputs are taken.
    with torch.inference_mode(False), torch.no_grad():
        product = _product(table, kernel.detach(), dtype)
    with _lock:
        for dead in [k for k, entry in _kept.items() if entry.kernel() is None or entry.table() is None]:
            del _kept[dead]
        _kept[key] = _Kept(ref(kernel), ref(table), stamp, product)
        while sum(entry.product.nbytes for entry in _kept.values()) > _KEPT_AT_MOST:
            _kept.popitem(last=False)
    return product


def _bits(kernel: Tensor) -> int:
    flat = kernel.detach().reshape(-1)
    wide = flat.nbytes % 8 == 0 and flat.data_ptr() % 8 == 0
    integers = torch.int64 if wide else {2: torch.int16, 4: torch.int32}[flat.element_size()]
    return int(flat.view(integers).sum())
