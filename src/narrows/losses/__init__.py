"""Losses as pure functions of tensors. Each is a SUM over examples or tokens; the caller divides by how many there are.
Those of pretraining are told how many, and divide.

Dividing once by the count of the whole optimiser step, and not by each micro-batch's, is what makes a gradient step
independent of how the batch was split.
"""

from narrows.losses.distillation import layerwise_similarity, soft_cross_entropy, span_distillation
from narrows.losses.encoders import (
    embedding_distance,
    similarity_divergence,
    state_distance,
    token_distillation,
)
from narrows.losses.pretraining import (
    DISCRIMINATOR_WEIGHT,
    Replacements,
    masked_lm_loss,
    replaced_token_loss,
    sample_replacements,
)
from narrows.losses.task import (
    PROBLEMS,
    classification_loss,
    require_problem,
    sequence_loss,
    span_log_probabilities,
    span_loss,
    token_loss,
)

__all__ = [
    "DISCRIMINATOR_WEIGHT",
    "PROBLEMS",
    "Replacements",
    "classification_loss",
    "embedding_distance",
    "layerwise_similarity",
    "masked_lm_loss",
    "replaced_token_loss",
    "require_problem",
    "sample_replacements",
    "sequence_loss",
    "similarity_divergence",
    "soft_cross_entropy",
    "span_distillation",
    "span_log_probabilities",
    "span_loss",
    "state_distance",
    "token_distillation",
    "token_loss",
]
