"""Registration of the Mulla classes with transformers' Auto classes."""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTextEncoding,
)

from narrows.mulla.config import MullaT5Config
from narrows.mulla.encoder import MullaT5EncoderModel
from narrows.mulla.generation import MullaT5ForConditionalGeneration
from narrows.mulla.heads import MullaT5ForQuestionAnswering, MullaT5ForSequenceClassification

__all__ = ["register"]


def register() -> None:
    """Register config, models and heads; a second call changes nothing. `AutoModel` is the encoder."""
    AutoConfig.register(MullaT5Config.model_type, MullaT5Config, exist_ok=True)
    AutoModel.register(MullaT5Config, MullaT5EncoderModel, exist_ok=True)
    AutoModelForTextEncoding.register(MullaT5Config, MullaT5EncoderModel, exist_ok=True)
    AutoModelForSeq2SeqLM.register(MullaT5Config, MullaT5ForConditionalGeneration, exist_ok=True)
    AutoModelForQuestionAnswering.register(MullaT5Config, MullaT5ForQuestionAnswering, exist_ok=True)
    AutoModelForSequenceClassification.register(MullaT5Config, MullaT5ForSequenceClassification, exist_ok=True)
