"""Losses against labels."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from narrows._plural import count
from narrows.errors import UsageError

__all__ = [
    "PROBLEMS",
    "classification_loss",
    "require_problem",
    "sequence_loss",
    "span_log_probabilities",
    "span_loss",
    "token_loss",
]

PROBLEMS = ("regression", "single_label_classification", "multi_label_classification")
"""What a head for whole texts can be asked to learn, by transformers' names."""


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


def sequence_loss(
    logits: Float[Tensor, "batch labels"], labels: Tensor, *, problem: str | None = None
) -> Float[Tensor, ""]:
    """Sum over texts, and over labels where each has several, of a head's loss, in at least fp32.

    Args:
        logits: of each text.
        labels: `[batch]` classes or numbers; `[batch, labels]` for several numbers, or 0 and 1 for several labels.
        problem: of `PROBLEMS`: squared error, cross entropy, or binary cross entropy; None: the first with one label,
            the last where labels are floats, otherwise the second.

    Raises:
        UsageError: an unknown problem, or labels of another shape.

    Example:
        >>> float(sequence_loss(torch.zeros(1, 4), torch.tensor([2])))  # log 4
        1.3862943649291992
    """
    require_problem(problem)
    logits, count = logits.to(torch.promote_types(logits.dtype, torch.float32)), logits.shape[1]
    if problem is None:
        floats = "multi_label_classification" if labels.is_floating_point() else "single_label_classification"
        problem = "regression" if count == 1 else floats
    if problem == "single_label_classification":
        return functional.cross_entropy(logits, labels, reduction="sum")
    if labels.numel() != logits.numel():
        raise UsageError(
            f"`labels` must be [batch, labels], {list(logits.shape)}, for {problem}, got {list(labels.shape)}; "
            "pass a number for each label, or set `problem_type`"
        )
    labels = labels.reshape(logits.shape).to(logits.dtype)
    if problem == "regression":
        return functional.mse_loss(logits, labels, reduction="sum")
    return functional.binary_cross_entropy_with_logits(logits, labels, reduction="sum")


def require_problem(problem: str | None) -> None:
    """Refuse an unknown kind of problem.

    Raises:
        UsageError: it is none of `PROBLEMS`.
    """
    if problem is not None and problem not in PROBLEMS:
        raise UsageError(
            f"`problem_type` must be one of {', '.join(PROBLEMS)} or None, got {problem!r}; choose one of them"
        )


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
