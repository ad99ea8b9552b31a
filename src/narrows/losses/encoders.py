"""Losses of one encoder against another: vectors, the texts near each of them, states at other lengths, logits.

Each is a sum over examples.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional

from narrows.errors import UsageError

__all__ = ["embedding_distance", "similarity_divergence", "state_distance", "token_distillation"]


def embedding_distance(
    student: Float[Tensor, "batch width"],
    teacher: Float[Tensor, "batch width"],
    *,
    distance: str = "cosine",
) -> Float[Tensor, ""]:
    """Sum over examples of how far the vectors of two encoders are apart, in at least fp32.

    Args:
        student, teacher: a vector an example.
        distance: `cosine` (1 less the cosine; lengths do not count) or `mse` (squared error, averaged over the width).

    Raises:
        UsageError: an unknown distance.

    Example:
        >>> float(embedding_distance(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0]])))
        1.0
    """
    dtype = torch.promote_types(student.dtype, torch.float32)
    student, teacher = student.to(dtype), teacher.to(dtype)
    if distance == "cosine":
        return (1 - functional.cosine_similarity(student, teacher, dim=-1)).sum()
    if distance == "mse":
        return (student - teacher).pow(2).mean(-1).sum()
    raise UsageError(f"`distance` must be 'cosine' or 'mse', got {distance!r}; choose one of them")


def similarity_divergence(
    student: Float[Tensor, "batch width"],
    teacher: Float[Tensor, "batch other_width"],
    *,
    temperature: float,
) -> Float[Tensor, ""]:
    """Sum over examples of KL(teacher ‖ student) of which of the batch's other examples is near, in at least fp32.

    Near is a softmax of cosine / temperature over the other examples, so that ranks count and not directions alone,
    and the closest most. A batch of one has nothing to rank and costs nothing.

    Args:
        student, teacher: a vector an example; their widths may differ.
        temperature: of the cosines; the smaller, the more the closest count.

    Raises:
        UsageError: a temperature that is not above 0.

    Source: Fang et al., SEED (ICLR 2021), equation 4, within the batch in the place of a queue.

    Example:
        >>> vectors = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> float(similarity_divergence(vectors, 2 * vectors, temperature=0.05))
        0.0
    """
    if temperature <= 0:
        raise UsageError(f"`temperature` must be above 0, got {temperature}; 0.05 is a usual one of cosines")
    ours, theirs = (_others(vectors, temperature) for vectors in (student, teacher))
    return (theirs.exp() * (theirs - ours)).sum()


def _others(vectors: Tensor, temperature: float) -> Tensor:
    """Log-probability of each of the other examples, `[batch, batch - 1]`."""
    examples = len(vectors)
    # Divided by a small temperature, the rounding of half precision would decide.
    with torch.autocast(vectors.device.type, enabled=False):
        unit = functional.normalize(vectors.to(torch.promote_types(vectors.dtype, torch.float32)), dim=-1)
        cosines = unit @ unit.T
    # Without the diagonal: what follows each of its entries, up to the next one.
    apart = cosines.flatten()[1:].view(examples - 1, examples + 1)[:, :-1].reshape(examples, examples - 1)
    return (apart / temperature).log_softmax(-1)


def state_distance(
    student: Float[Tensor, "batch slots width"],
    teacher: Float[Tensor, "batch slots width"],
    real: Bool[Tensor, "batch slots"],
) -> Float[Tensor, ""]:
    """Sum over examples of the squared error of the states, a mean over the width and an example's real slots.

    Args:
        student, teacher: states at the same slots; a longer teacher's are pooled first, by
            `narrows.core.pooling.window_means`.
        real: slots that hold a real token; an example without any costs nothing.

    Source: Jiao et al., TinyBERT (Findings of EMNLP 2020), equation 8, averaged over real tokens only.
    """
    dtype = torch.promote_types(student.dtype, torch.float32)
    apart = (student.to(dtype) - teacher.to(dtype)).pow(2).mean(-1)
    return _mean_over_real(apart, real).sum()


def token_distillation(
    student: Float[Tensor, "batch length classes"],
    teacher: Float[Tensor, "batch length classes"],
    real: Bool[Tensor, "batch length"],
    *,
    temperature: float,
) -> Float[Tensor, ""]:
    """Sum over examples of T² · KL(teacher ‖ student) at temperature T, a mean over an example's real tokens.

    Raises:
        UsageError: a temperature that is not above 0.
    """
    if temperature <= 0:
        raise UsageError(f"`temperature` must be above 0, got {temperature}; 2 is the usual one")
    dtype = torch.promote_types(student.dtype, torch.float32)
    student_log = (student.to(dtype) / temperature).log_softmax(-1)
    teacher_log = (teacher.to(dtype) / temperature).log_softmax(-1)
    divergence = (teacher_log.exp() * (teacher_log - student_log)).sum(-1)
    return temperature**2 * _mean_over_real(divergence, real).sum()


def _mean_over_real(values: Float[Tensor, "batch length"], real: Bool[Tensor, "batch length"]) -> Tensor:
    kept = torch.where(real, values, torch.zeros_like(values))
    return kept.sum(-1) / real.sum(-1).clamp_min(1)
