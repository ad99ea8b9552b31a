"""Losses against a teacher. Source: Cao et al., DeFormer (ACL 2020), section 2.2."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from narrows.errors import UsageError
from narrows.losses.task import span_log_probabilities

__all__ = ["layerwise_similarity", "soft_cross_entropy", "span_distillation"]


def soft_cross_entropy(
    student: Float[Tensor, "batch classes"],
    teacher: Float[Tensor, "batch classes"],
    *,
    temperature: float,
    attention_mask: Tensor | None = None,
) -> Float[Tensor, ""]:
    """Sum over examples of T² · KL(teacher ‖ student) at temperature T, over real tokens when a mask is given.

    T² keeps the gradient's size independent of T.

    Raises:
        UsageError: a temperature that is not above 0.

    Example:
        >>> logits = torch.tensor([[1.0, 2.0]])
        >>> float(soft_cross_entropy(logits, logits, temperature=2.0))
        0.0
    """
    if temperature <= 0:
        raise UsageError(f"`temperature` must be above 0, got {temperature}; 2 is the paper's")
    student_log = span_log_probabilities(student, attention_mask, temperature=temperature)
    teacher_log = span_log_probabilities(teacher, attention_mask, temperature=temperature)
    divergence = (teacher_log.exp() * (teacher_log - student_log)).sum()
    return temperature**2 * divergence


def span_distillation(
    student: tuple[Float[Tensor, "batch length"], Float[Tensor, "batch length"]],
    teacher: tuple[Float[Tensor, "batch length"], Float[Tensor, "batch length"]],
    *,
    temperature: float,
    attention_mask: Tensor | None = None,
) -> Float[Tensor, ""]:
    """Sum over examples of the mean of the start's and the end's `soft_cross_entropy`."""
    start = soft_cross_entropy(student[0], teacher[0], temperature=temperature, attention_mask=attention_mask)
    end = soft_cross_entropy(student[1], teacher[1], temperature=temperature, attention_mask=attention_mask)
    return (start + end) / 2


def layerwise_similarity(
    student: Sequence[Float[Tensor, "batch length width"]],
    teacher: Sequence[Float[Tensor, "batch length width"]],
    *,
    attention_mask: Tensor | None = None,
    distance: str = "mse",
) -> Float[Tensor, ""]:
    """Sum over real tokens of the distance between the two models' states, averaged over the layers.

    Args:
        student: states after layers k+1..n.
        teacher: the teacher's states after the same layers.
        attention_mask: `[batch, length]`, nonzero for real tokens.
        distance: `mse` (squared error averaged over the width; the released code) or `euclidean` (length of the
            difference; the paper's words).

    Raises:
        UsageError: unlike numbers of layers, or an unknown distance.
    """
    if len(student) != len(teacher):
        raise UsageError(
            f"student and teacher must give states of as many layers, got {len(student)} and {len(teacher)}; "
            "pass the layers above the split of both"
        )
    if distance not in ("mse", "euclidean"):
        raise UsageError(f"`distance` must be 'mse' or 'euclidean', got {distance!r}; choose one of them")
    total = student[0].new_zeros((), dtype=torch.promote_types(student[0].dtype, torch.float32))
    for ours, theirs in zip(student, teacher, strict=True):
        squared = (ours.to(total.dtype) - theirs.to(total.dtype)).pow(2)
        # The square root has no gradient at 0, where the states already agree.
        apart = squared.mean(-1) if distance == "mse" else (squared.sum(-1) + 1e-12).sqrt()
        total = total + (apart if attention_mask is None else apart * (attention_mask != 0)).sum()
    return total / len(student)
