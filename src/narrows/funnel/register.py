"""Registration of the Funnel classes with transformers' Auto classes."""

from typing import Any

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForPreTraining,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from narrows.funnel.config import FunnelConfig
from narrows.funnel.heads import (
    FunnelForEmbedding,
    FunnelForMaskedLM,
    FunnelForMultipleChoice,
    FunnelForQuestionAnswering,
    FunnelForReplacedTokenDetection,
    FunnelForSequenceClassification,
    FunnelForTokenClassification,
)
from narrows.funnel.model import FunnelBaseModel, FunnelModel

__all__ = ["register"]

_HEADS = (
    (AutoModelForMaskedLM, FunnelForMaskedLM),
    (AutoModelForMultipleChoice, FunnelForMultipleChoice),
    (AutoModelForPreTraining, FunnelForReplacedTokenDetection),
    (AutoModelForQuestionAnswering, FunnelForQuestionAnswering),
    (AutoModelForSequenceClassification, FunnelForSequenceClassification),
    (AutoModelForTokenClassification, FunnelForTokenClassification),
)


def register() -> None:
    """Register config, models and heads; a second call changes nothing.

    `AutoModel` is the model that a checkpoint was saved from: with the decoder, the encoder alone, or with a vector for
    a text.
    """
    AutoConfig.register(FunnelConfig.model_type, FunnelConfig, exist_ok=True)
    # Which of them is decided by `architectures` in the config, as for transformers' own Funnel.
    models: Any = (FunnelModel, FunnelBaseModel, FunnelForEmbedding)
    AutoModel.register(FunnelConfig, models, exist_ok=True)
    for auto, head in _HEADS:
        auto.register(FunnelConfig, head, exist_ok=True)
