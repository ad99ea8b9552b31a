"""Losses against labels."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from narrows._plural import count
from narrows.errors import UsageError

__all__ = ["classification_loss", "span_log_probabilities", "span_loss", "token_loss"]


def span_log_probabilities(
    logits: Float[Tensor, "batch length"], attention_mask: Tensor | None, *, temperature: float = 1.0
) -> Float[Tensor, "batch length"]:
    """Log softmax over a row's real tokens, in at least fp32; padding gets the lowest finite value."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature
    if attention_mask is not None:
        # Finite, so that 0 · log p of a padding token is 0 and not NaN.
        logits = logits.masked_fill(attention_mask == 0, torch.finfo(logits.dtype).min / 2)
    return logits.log_softmax(-1)


def span_loss(
    start_logits: Float[Tensor, "batch length"],
    end_logits: Float[Tensor, "batch length"],
    start_positions: Int[Tensor, " batch"],
    end_positions: Int[Tensor, " batch"],
    attention_mask: Tensor | None = None,
) -> Float[Tensor, ""]:
    """Sum over examples of the mean of the start's and the end's cross entropy, over real tokens.

    Args:
        start_positions: token positions in the row; 0 ([CLS]) for no answer.

    Raises:
        UsageError: a position outside the row.
    """
    length = start_logits.shape[1]
    for name, positions in (("start_positions", start_positions), ("end_positions", end_positions)):
        if positions.numel() and not 0 <= int(positions.min()) <= int(positions.max()) < length:
            raise UsageError(
                f"`{name}` must lie in a row of {count(length, 'token')}, got {int(positions.min())} to "
                f"{int(positions.max())}; use 0 for no answer"
            )
    start = functional.nll_loss(span_log_probabilities(start_logits, attention_mask), start_positions, reduction="sum")
    end = functional.nll_loss(span_log_probabilities(end_logits, attention_mask), end_positions, reduction="sum")
    return (start + end) / 2


def classification_loss(logits: Float[Tensor, "batch labels"], labels: Tensor) -> Float[Tensor, ""]:
    """Sum over examples of the cross entropy, or with one label of the squared error.

    Args:
        labels: `[batch]`, class indices, or floats when there is one label.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if logits.shape[-1] == 1:
        return functional.mse_loss(logits[:, 0], labels.to(logits.dtype), reduction="sum")
    return functional.cross_entropy(logits, labels, reduction="sum")


def token_loss(
    logits: Float[Tensor, "batch length vocabulary"], labels: Int[Tensor, "batch length"], *, ignored: int = -100
) -> Float[Tensor, ""]:
    """Sum over labels that are not `ignored` of the cross entropy, in at least fp32.

    Example:
        >>> float(token_loss(torch.zeros(1, 3, 4), torch.tensor([[2, -100, -100]])))  # log 4
        1.3862943649291992
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=ignored, reduction="sum")
