"""Registration of the DeFormer classes with transformers' Auto classes."""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
)

from narrows.deformer.config import DeformerConfig
from narrows.deformer.model import (
    DeformerForQuestionAnswering,
    DeformerForSequenceClassification,
    DeformerModel,
)

__all__ = ["register"]


def register() -> None:
    """Register config, encoder and heads; a second call changes nothing."""
    AutoConfig.register(DeformerConfig.model_type, DeformerConfig, exist_ok=True)
    AutoModel.register(DeformerConfig, DeformerModel, exist_ok=True)
    AutoModelForQuestionAnswering.register(DeformerConfig, DeformerForQuestionAnswering, exist_ok=True)
    AutoModelForSequenceClassification.register(DeformerConfig, DeformerForSequenceClassification, exist_ok=True)
