"""One vector of real tokens: of a whole text, and over the windows that an encoder which gets shorter makes of it."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from narrows._plural import count
from narrows.errors import UsageError

__all__ = ["WindowMeans", "masked_mean", "pool", "window_means"]


class WindowMeans(NamedTuple):
    """Means `[batch, slots, width]`, and which slots hold a real token, `[batch, slots]`."""

    means: Tensor
    real: Tensor


def pool(states: Float[Tensor, "batch length width"], mask: Tensor, how: str) -> Float[Tensor, "batch width"]:
    """One vector a row.

    Args:
        states: `[batch, length, width]`; what stands where nothing is real (NaN too) counts nowhere.
        mask: `[batch, length]`, not 0 where a state stands for real tokens.
        how: `mean`, `cls` (the first state, so rows are padded on the right) or `max`.

    Returns:
        `[batch, width]` in at least fp32; zeros for a row without real tokens, but for `cls`.

    Example:
        >>> pool(torch.tensor([[[1.0], [3.0], [8.0]]]), torch.tensor([[1, 1, 0]]), "max").tolist()
        [[3.0]]
    """
    if how == "mean":
        return masked_mean(states, mask != 0)
    states = states.to(torch.promote_types(states.dtype, torch.float32))
    if how == "cls":
        return states[:, 0]
    real = (mask != 0).unsqueeze(-1)
    return torch.where(real.any(1), states.masked_fill(~real, float("-inf")).amax(1), 0.0)


def masked_mean(
    states: Float[Tensor, "batch length width"], real: Bool[Tensor, "batch length"]
) -> Float[Tensor, "batch width"]:
    """The mean of the states of real tokens, in at least fp32; zeros for a text without any.

    Example:
        >>> masked_mean(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[True, True, False]]))
        tensor([[2.]])
    """
    wide = torch.promote_types(states.dtype, torch.float32)
    # Padding may be no number, which a product with 0 would keep.
    total = torch.where(real.unsqueeze(-1), states, 0.0).sum(1, dtype=wide)
    return total / real.sum(1, keepdim=True).clamp_min(1)


def window_means(
    states: Float[Tensor, "batch length width"],
    real: Bool[Tensor, "batch length"],
    *,
    slots: int,
    pooling_size: int = 2,
    separate_cls: bool = False,
) -> WindowMeans:
    """Means of real tokens over the windows that pooling again and again, down to `slots`, makes of a row.

    Pooling takes `pooling_size` neighbours at a time and the rest of the row as a last, smaller window. So a row of 11
    becomes one of 6, 3, 2 and 1. A slot without a real token is zeros; what stands at padding (NaN too) counts nowhere.

    Args:
        states: of all tokens.
        real: which of them are real.
        slots: length that is wanted.
        pooling_size: neighbours that are pooled at a time.
        separate_cls: the first token stays a slot of its own, and the windows begin after it.

    Raises:
        UsageError: pooling does not come to that number of slots, or takes fewer than 2 neighbours.

    Source: Dai et al., Funnel-Transformer (NeurIPS 2020), §2.2, without its truncation.

    Example:
        >>> states, real = torch.arange(5.0).reshape(1, 5, 1), torch.ones(1, 5, dtype=torch.bool)
        >>> window_means(states, real, slots=3, separate_cls=True).means[0, :, 0].tolist()
        [0.0, 1.5, 3.5]
    """
    if pooling_size < 2:
        raise UsageError(f"`pooling_size` must be at least 2, got {pooling_size}; pass that of the encoder that pools")
    length = states.shape[1]
    first = 1 if separate_cls else 0
    rate, found = 1, length
    while found > slots and rate < length:
        rate *= pooling_size
        found = first + -(-(length - first) // rate)
    if found != slots:
        raise UsageError(
            f"expected states that pooling by {pooling_size} makes of {count(length, 'token')}, got "
            f"{count(slots, 'slot')}; compare with an encoder that pools so"
        )
    padding = (found - first) * rate - (length - first)
    rest = torch.nn.functional.pad(states[:, first:], (0, 0, 0, padding))
    kept = torch.nn.functional.pad(real[:, first:], (0, padding)).unflatten(1, (-1, rate))
    # Padding may be no number, which a product with 0 would keep.
    windows = torch.where(kept.unsqueeze(-1), rest.unflatten(1, (-1, rate)), 0.0)
    means = windows.sum(2) / kept.sum(2).unsqueeze(-1).clamp_min(1)
    alone = torch.where(real[:, :first].unsqueeze(-1), states[:, :first], 0.0)
    return WindowMeans(torch.cat([alone, means], 1), torch.cat([real[:, :first], kept.any(-1)], 1))
