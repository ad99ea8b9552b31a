"""Bottleneck attention: attention in a width d / r between a down- and an up-projection.

The mechanism needs torch only; the models, which need transformers, are loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from narrows.bottleneck.attention import BottleneckAttention, NarrowConvolution, SelfAttention, heads_of
from narrows.bottleneck.reach import Reach, attend_after, attend_rows
from narrows.bottleneck.rows import Rows, arrange

if TYPE_CHECKING:
    from narrows.bottleneck.bert import (
        BottleneckBertConfig,
        BottleneckBertForMaskedLM,
        BottleneckBertForQuestionAnswering,
        BottleneckBertForSequenceClassification,
        BottleneckBertForTokenClassification,
        BottleneckBertModel,
    )
    from narrows.bottleneck.cache import BottleneckCache
    from narrows.bottleneck.config import BottleneckConfig
    from narrows.bottleneck.generation import BottleneckForCausalLM
    from narrows.bottleneck.heads import (
        BottleneckForMaskedLM,
        BottleneckForSequenceClassification,
        BottleneckForTokenClassification,
    )
    from narrows.bottleneck.model import BottleneckModel, BottleneckPreTrainedModel
    from narrows.bottleneck.presets import preset

_LAZY = {
    "BottleneckBertConfig": "narrows.bottleneck.bert",
    "BottleneckBertForMaskedLM": "narrows.bottleneck.bert",
    "BottleneckBertForQuestionAnswering": "narrows.bottleneck.bert",
    "BottleneckBertForSequenceClassification": "narrows.bottleneck.bert",
    "BottleneckBertForTokenClassification": "narrows.bottleneck.bert",
    "BottleneckBertModel": "narrows.bottleneck.bert",
    "BottleneckCache": "narrows.bottleneck.cache",
    "BottleneckConfig": "narrows.bottleneck.config",
    "BottleneckForCausalLM": "narrows.bottleneck.generation",
    "BottleneckForMaskedLM": "narrows.bottleneck.heads",
    "BottleneckForSequenceClassification": "narrows.bottleneck.heads",
    "BottleneckForTokenClassification": "narrows.bottleneck.heads",
    "BottleneckModel": "narrows.bottleneck.model",
    "BottleneckPreTrainedModel": "narrows.bottleneck.model",
    "preset": "narrows.bottleneck.presets",
}

__all__ = [
    "BottleneckAttention",
    "BottleneckBertConfig",
    "BottleneckBertForMaskedLM",
    "BottleneckBertForQuestionAnswering",
    "BottleneckBertForSequenceClassification",
    "BottleneckBertForTokenClassification",
    "BottleneckBertModel",
    "BottleneckCache",
    "BottleneckConfig",
    "BottleneckForCausalLM",
    "BottleneckForMaskedLM",
    "BottleneckForSequenceClassification",
    "BottleneckForTokenClassification",
    "BottleneckModel",
    "BottleneckPreTrainedModel",
    "NarrowConvolution",
    "Reach",
    "Rows",
    "SelfAttention",
    "arrange",
    "attend_after",
    "attend_rows",
    "heads_of",
    "preset",
]


def __getattr__(name: str) -> Any:
    """Import a model on first use (PEP 562) and keep it."""
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value
