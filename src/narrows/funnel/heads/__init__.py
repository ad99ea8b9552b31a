"""Heads on the funnel: classes, choices, spans, vectors, and those of pretraining."""

from narrows.funnel.heads.classification import (
    FunnelForMultipleChoice,
    FunnelForSequenceClassification,
    FunnelForTokenClassification,
)
from narrows.funnel.heads.electra import FunnelForElectraPreTraining, generator_config
from narrows.funnel.heads.embedding import FunnelForEmbedding, save_sentence_modules
from narrows.funnel.heads.outputs import (
    ConditionalSpanOutput,
    ElectraOutput,
    ReplacedTokenOutput,
    TextEmbeddingOutput,
)
from narrows.funnel.heads.pretraining import FunnelForMaskedLM, FunnelForReplacedTokenDetection
from narrows.funnel.heads.spans import FunnelForConditionalQuestionAnswering, FunnelForQuestionAnswering

__all__ = [
    "ConditionalSpanOutput",
    "ElectraOutput",
    "FunnelForConditionalQuestionAnswering",
    "FunnelForElectraPreTraining",
    "FunnelForEmbedding",
    "FunnelForMaskedLM",
    "FunnelForMultipleChoice",
    "FunnelForQuestionAnswering",
    "FunnelForReplacedTokenDetection",
    "FunnelForSequenceClassification",
    "FunnelForTokenClassification",
    "ReplacedTokenOutput",
    "TextEmbeddingOutput",
    "generator_config",
    "save_sentence_modules",
]
