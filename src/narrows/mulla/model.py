"""The models of this room, by name."""

from narrows.mulla.encoder import MullaT5EncoderModel, MullaT5PreTrainedModel, MullaT5Stack
from narrows.mulla.generation import MullaT5ForConditionalGeneration
from narrows.mulla.heads import MullaT5ForEmbedding, MullaT5ForQuestionAnswering, MullaT5ForSequenceClassification

__all__ = [
    "MullaT5EncoderModel",
    "MullaT5ForConditionalGeneration",
    "MullaT5ForEmbedding",
    "MullaT5ForQuestionAnswering",
    "MullaT5ForSequenceClassification",
    "MullaT5PreTrainedModel",
    "MullaT5Stack",
]
