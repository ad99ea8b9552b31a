"""Registration of the bottleneck classes with transformers' Auto classes."""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from narrows.bottleneck.bert import (
    BottleneckBertConfig,
    BottleneckBertForMaskedLM,
    BottleneckBertForQuestionAnswering,
    BottleneckBertForSequenceClassification,
    BottleneckBertForTokenClassification,
    BottleneckBertModel,
)
from narrows.bottleneck.config import BottleneckConfig
from narrows.bottleneck.generation import BottleneckForCausalLM
from narrows.bottleneck.heads import (
    BottleneckForMaskedLM,
    BottleneckForSequenceClassification,
    BottleneckForTokenClassification,
)
from narrows.bottleneck.model import BottleneckModel

__all__ = ["register"]


def register() -> None:
    """Register config, model and heads; a second call changes nothing."""
    AutoConfig.register(BottleneckConfig.model_type, BottleneckConfig, exist_ok=True)
    AutoModel.register(BottleneckConfig, BottleneckModel, exist_ok=True)
    AutoModelForCausalLM.register(BottleneckConfig, BottleneckForCausalLM, exist_ok=True)
    AutoModelForMaskedLM.register(BottleneckConfig, BottleneckForMaskedLM, exist_ok=True)
    AutoModelForSequenceClassification.register(BottleneckConfig, BottleneckForSequenceClassification, exist_ok=True)
    AutoModelForTokenClassification.register(BottleneckConfig, BottleneckForTokenClassification, exist_ok=True)
    AutoConfig.register(BottleneckBertConfig.model_type, BottleneckBertConfig, exist_ok=True)
    AutoModel.register(BottleneckBertConfig, BottleneckBertModel, exist_ok=True)
    for auto, model in (
        (AutoModelForMaskedLM, BottleneckBertForMaskedLM),
        (AutoModelForSequenceClassification, BottleneckBertForSequenceClassification),
        (AutoModelForTokenClassification, BottleneckBertForTokenClassification),
        (AutoModelForQuestionAnswering, BottleneckBertForQuestionAnswering),
    ):
        auto.register(BottleneckBertConfig, model, exist_ok=True)
