"""Registration of the Funnel classes with transformers' Auto classes."""

from typing import Any

from transformers import AutoConfig, AutoModel

from narrows.funnel.config import FunnelConfig
from narrows.funnel.model import FunnelBaseModel, FunnelModel

__all__ = ["register"]


def register() -> None:
    """Register config and models; a second call changes nothing.

    `AutoModel` is the model that a checkpoint was saved from: with the decoder, or the encoder alone.
    """
    AutoConfig.register(FunnelConfig.model_type, FunnelConfig, exist_ok=True)
    # Which of the two is decided by `architectures` in the config, as for transformers' own Funnel.
    models: Any = (FunnelModel, FunnelBaseModel)
    AutoModel.register(FunnelConfig, models, exist_ok=True)
