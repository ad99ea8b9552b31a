"""Scaled dot-product attention by name: a readable reference and two faster forms, equal in values and gradients."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from narrows.errors import UsageError

__all__ = ["attend"]


def attend(
    query: Float[Tensor, "batch heads queries dim"],
    key: Float[Tensor, "batch heads keys dim"],
    value: Float[Tensor, "batch heads keys dim"],
    *,
    mask: Bool[Tensor, "#batch #heads #queries keys"] | None = None,
    dropout: float = 0.0,
    backend: str = "sdpa",
) -> Float[Tensor, "batch heads queries dim"]:
    """Each query's mean of the values, weighted by softmax(q·k / sqrt(dim)) over the keys it may see.

    Args:
        query: `[batch, heads, queries, dim]`.
        key: `[batch, heads, keys, dim]`.
        value: `[batch, heads, keys, dim]`.
        mask: True where a query may attend, broadcastable to `[batch, heads, queries, keys]`; None: everywhere.
            A query that may see no key gets zeros, and passes no gradient.
        dropout: probability of dropping an attention weight; pass 0 outside training.
        backend: `reference` (everything in at least fp32), `matmul` (products in the input's dtype, softmax inside in
            fp32; keeps `queries × keys` weights for the backward pass, and is the fastest to train with in bf16 on a
            CPU while rows are short) or `sdpa` (torch's fused kernel).

    Returns:
        `[batch, heads, queries, dim]` in the dtype of `query`.

    Raises:
        UsageError: `backend` is not one of these names.

    Example:
        >>> q = torch.zeros(1, 1, 1, 2); k = torch.zeros(1, 1, 2, 2)
        >>> v = torch.tensor([[[[1.0, 0.0], [3.0, 0.0]]]])
        >>> attend(q, k, v).tolist()
        [[[[2.0, 0.0]]]]
    """
    if backend not in _BACKENDS:
        raise UsageError(f"`backend` must be one of {', '.join(_BACKENDS)}, got {backend!r}; choose one of them")
    return _BACKENDS[backend](query, key, value, mask, dropout)


def _reference(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    wide = torch.promote_types(query.dtype, torch.float32)
    scores = (query.to(wide) @ key.to(wide).transpose(-1, -2)) * query.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
        # A row of -inf has no softmax; zeros in its place give zero output once the mask is applied to the weights.
        scores = scores.masked_fill(~mask.any(-1, keepdim=True), 0.0)
    weights = scores.softmax(-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    weights = functional.dropout(weights, dropout)
    return (weights @ value.to(wide)).to(query.dtype)


def _matmul(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    # The product of strided heads is several times slower than that of contiguous ones.
    query, key, value = query.contiguous(), key.contiguous(), value.contiguous()
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-1, -2)
    if mask is None:
        return functional.dropout(scores.softmax(-1), dropout) @ value
    # Added from a small table, which costs one pass over the scores and none backward; finite, so that empty rows are
    # free of NaN. Their output is then set to zero.
    bias = torch.zeros_like(mask, dtype=scores.dtype).masked_fill(~mask, torch.finfo(scores.dtype).min / 2)
    attended = functional.dropout((scores + bias).softmax(-1), dropout) @ value
    return attended.masked_fill(~mask.any(-1, keepdim=True), 0.0)


def _sdpa(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)


_BACKENDS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor | None, float], Tensor]] = {
    "reference": _reference,
    "matmul": _matmul,
    "sdpa": _sdpa,
}
