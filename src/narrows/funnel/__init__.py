"""Funnel-Transformer: an encoder whose sequence gets shorter from block to block, and longer again for tokens.

The mechanism needs torch only; the models, which need transformers, are loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from narrows.funnel.attention import Geometry, RelativeTerms, attend_relative
from narrows.funnel.pooling import Pooling, Slots, upsample

if TYPE_CHECKING:
    from narrows.funnel.config import FunnelConfig
    from narrows.funnel.model import FunnelBaseModel, FunnelModel, FunnelPreTrainedModel
    from narrows.funnel.outputs import FunnelOutput

_LAZY = {
    "FunnelBaseModel": "narrows.funnel.model",
    "FunnelConfig": "narrows.funnel.config",
    "FunnelModel": "narrows.funnel.model",
    "FunnelOutput": "narrows.funnel.outputs",
    "FunnelPreTrainedModel": "narrows.funnel.model",
}

__all__ = [
    "FunnelBaseModel",
    "FunnelConfig",
    "FunnelModel",
    "FunnelOutput",
    "FunnelPreTrainedModel",
    "Geometry",
    "Pooling",
    "RelativeTerms",
    "Slots",
    "attend_relative",
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
