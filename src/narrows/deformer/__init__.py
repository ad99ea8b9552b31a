"""DeFormer: layers below the split read question and passage apart, so that passages are read once and stored."""

from narrows.deformer.config import DeformerConfig
from narrows.deformer.model import (
    DeformerForQuestionAnswering,
    DeformerForSequenceClassification,
    DeformerModel,
    DeformerPreTrainedModel,
)

__all__ = [
    "DeformerConfig",
    "DeformerForQuestionAnswering",
    "DeformerForSequenceClassification",
    "DeformerModel",
    "DeformerPreTrainedModel",
]
