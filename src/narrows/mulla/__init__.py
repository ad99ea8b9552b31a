"""LongT5-Mulla: each query sees its neighbours at every level of a pyramid, from tokens to ever coarser means.

The mechanism needs torch only; the models, which need transformers, are loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from narrows.mulla.attention import MullaPlan, chosen_backend, mulla_attention, plan_attention
from narrows.mulla.levels import Pyramid

if TYPE_CHECKING:
    from narrows.mulla.config import MullaT5Config
    from narrows.mulla.convert import convert_checkpoint
    from narrows.mulla.model import (
        MullaT5EncoderModel,
        MullaT5ForConditionalGeneration,
        MullaT5ForEmbedding,
        MullaT5ForQuestionAnswering,
        MullaT5ForSequenceClassification,
        MullaT5PreTrainedModel,
    )

_LAZY = {
    "MullaT5Config": "narrows.mulla.config",
    "MullaT5EncoderModel": "narrows.mulla.model",
    "MullaT5ForConditionalGeneration": "narrows.mulla.model",
    "MullaT5ForEmbedding": "narrows.mulla.model",
    "MullaT5ForQuestionAnswering": "narrows.mulla.model",
    "MullaT5ForSequenceClassification": "narrows.mulla.model",
    "MullaT5PreTrainedModel": "narrows.mulla.model",
    "convert_checkpoint": "narrows.mulla.convert",
}

__all__ = [
    "MullaPlan",
    "MullaT5Config",
    "MullaT5EncoderModel",
    "MullaT5ForConditionalGeneration",
    "MullaT5ForEmbedding",
    "MullaT5ForQuestionAnswering",
    "MullaT5ForSequenceClassification",
    "MullaT5PreTrainedModel",
    "Pyramid",
    "chosen_backend",
    "convert_checkpoint",
    "mulla_attention",
    "plan_attention",
]


def __getattr__(name: str) -> Any:
    """Import a model on first use (PEP 562) and keep it."""
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value
