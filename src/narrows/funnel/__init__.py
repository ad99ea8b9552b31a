"""Funnel-Transformer: an encoder whose sequence gets shorter from block to block, and longer again for tokens.

The mechanism needs torch only; the models, which need transformers, are loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from narrows.funnel.attention import Geometry, RelativeTerms, attend_relative
from narrows.funnel.pooling import Pooling, Slots, upsample

if TYPE_CHECKING:
    from narrows.funnel.config import FunnelConfig
    from narrows.funnel.convert import convert_arrays, convert_checkpoint
    from narrows.funnel.heads import (
        FunnelForConditionalQuestionAnswering,
        FunnelForElectraPreTraining,
        FunnelForEmbedding,
        FunnelForMaskedLM,
        FunnelForMultipleChoice,
        FunnelForQuestionAnswering,
        FunnelForReplacedTokenDetection,
        FunnelForSequenceClassification,
        FunnelForTokenClassification,
    )
    from narrows.funnel.model import FunnelBaseModel, FunnelModel, FunnelPreTrainedModel
    from narrows.funnel.outputs import FunnelOutput
    from narrows.funnel.presets import preset
    from narrows.funnel.to_transformers import to_transformers

_LAZY = {
    "FunnelBaseModel": "narrows.funnel.model",
    "FunnelConfig": "narrows.funnel.config",
    "FunnelForConditionalQuestionAnswering": "narrows.funnel.heads",
    "FunnelForElectraPreTraining": "narrows.funnel.heads",
    "FunnelForEmbedding": "narrows.funnel.heads",
    "FunnelForMaskedLM": "narrows.funnel.heads",
    "FunnelForMultipleChoice": "narrows.funnel.heads",
    "FunnelForQuestionAnswering": "narrows.funnel.heads",
    "FunnelForReplacedTokenDetection": "narrows.funnel.heads",
    "FunnelForSequenceClassification": "narrows.funnel.heads",
    "FunnelForTokenClassification": "narrows.funnel.heads",
    "FunnelModel": "narrows.funnel.model",
    "FunnelOutput": "narrows.funnel.outputs",
    "FunnelPreTrainedModel": "narrows.funnel.model",
    "convert_arrays": "narrows.funnel.convert",
    "convert_checkpoint": "narrows.funnel.convert",
    "preset": "narrows.funnel.presets",
    "to_transformers": "narrows.funnel.to_transformers",
}

__all__ = [
    "FunnelBaseModel",
    "FunnelConfig",
    "FunnelForConditionalQuestionAnswering",
    "FunnelForElectraPreTraining",
    "FunnelForEmbedding",
    "FunnelForMaskedLM",
    "FunnelForMultipleChoice",
    "FunnelForQuestionAnswering",
    "FunnelForReplacedTokenDetection",
    "FunnelForSequenceClassification",
    "FunnelForTokenClassification",
    "FunnelModel",
    "FunnelOutput",
    "FunnelPreTrainedModel",
    "Geometry",
    "Pooling",
    "RelativeTerms",
    "Slots",
    "attend_relative",
    "convert_arrays",
    "convert_checkpoint",
    "preset",
    "to_transformers",
    "upsample",
]


def __getattr__(name: str) -> Any:
    """Import a model on first use (PEP 562) and keep it."""
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value
