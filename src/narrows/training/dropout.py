"""One rate of dropout for a whole model, under the names that configs have for it."""

from typing import Any

__all__ = ["set_dropout"]

# A model has some of them.
_NAMES = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "hidden_dropout",
    "attention_dropout",
    "activation_dropout",
    "classifier_dropout",
    "embedding_dropout",
    "mlp_dropout",
    "dropout",
    "dropout_rate",
)


def set_dropout(config: Any, rate: float) -> Any:
    """The config, with this rate in the place of all of its own."""
    for name in _NAMES:
        if isinstance(getattr(config, name, None), float | int):
            setattr(config, name, rate)
    return config
