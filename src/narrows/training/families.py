"""A model of a family with random weights: its config out of a recipe's fields, and what the tokenizer decides."""

import difflib
from collections.abc import Callable, Container, Mapping
from functools import partial
from typing import Any

from transformers import AutoConfig

from narrows.errors import UsageError
from narrows.training.heads import UNFIT

__all__ = ["family_config", "model_of", "ready", "set_rates", "unfit"]

# Of hidden states, embeddings and attention, as models of transformers and of this library name them.
_DROPOUTS = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "hidden_dropout",
    "attention_dropout",
    "dropout",
    "embedding_dropout",
    "mlp_dropout",
    "resid_pdrop",
    "embd_pdrop",
    "attn_pdrop",
)


def family_config(
    family: str,
    fields: Mapping[str, Any],
    decided: Mapping[str, Any],
    *,
    example: str,
    make: Callable[..., Any] | None = None,
) -> Any:
    """The config of a family with a recipe's fields; the others have its defaults.

    Args:
        family: model type of transformers or of this library.
        fields: of the recipe's `model.config`.
        decided: what the tokenizer decides, which the recipe may not say; fields that the family lacks are left out.
        example: a family to name in an error.
        make: makes the config out of the fields; None: as transformers does for the family.

    Raises:
        UsageError: an unknown family or field, a field that the tokenizer decides, or values that do not go together.
    """
    try:
        default = AutoConfig.for_model(family)
    except ValueError as error:
        raise UsageError(
            f"expected a model type as model.family, got {family!r}; name one such as {example}"
        ) from error
    known = {*default.to_dict(), *type(default).attribute_map}
    for name in fields:
        if name in decided:
            raise UsageError(f"expected no model.config.{name}, which the tokenizer decides; leave it out")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            advice = f"did you mean {near[0]!r}?" if near else "see the config class in transformers' documentation"
            raise UsageError(f"expected fields of {type(default).__name__} in model.config, got {name!r}; {advice}")
    values = {name: value for name, value in decided.items() if name in known}
    try:
        return (make or partial(AutoConfig.for_model, family))(**fields, **values)
    except UsageError:
        # Of a family of narrows: it says it all.
        raise
    except UNFIT as error:
        raise unfit(default, error) from error


def model_of(auto: Any, config: Any) -> Any:
    """The model of a config with random weights, by torch's seed.

    Args:
        auto: an Auto class.

    Raises:
        UsageError: sizes that do not go together.
    """
    try:
        return auto.from_config(config)
    except UsageError:
        # Of a family of narrows: it says it all.
        raise
    except UNFIT as error:
        raise unfit(config, error) from error


def ready(model: Any, attention: str | None) -> Any:
    """The model in training, with the attention that the recipe names.

    Raises:
        UsageError: an attention that the model does not have.
    """
    if attention is not None:
        try:
            model.set_attn_implementation(attention)
        except (ValueError, ImportError) as error:
            raise UsageError(
                f"expected an attention that {model.config.model_type} has, got {attention!r} "
                f"({' '.join(str(error).split())}); leave model.attention out"
            ) from error
    return model.train()


def unfit(config: Any, error: Exception) -> UsageError:
    """The sentence for sizes that do not go together: transformers' own words, and the place they came from."""
    return UsageError(
        f"expected values in model.config that {type(config).__name__} takes, got an error from it "
        f"({' '.join(str(error).split())}); mend them"
    )


def set_rates(config: Any, rate: float, *, said: Container[str]) -> None:
    """Set every rate of dropout of a config but those that the recipe's `model.config` says.

    Raises:
        UsageError: a rate above 0, and no dropout to set.
    """
    found = [name for name in _DROPOUTS if hasattr(config, name)]
    if not found and rate:
        raise UsageError(
            f"expected a model with dropout for optimiser.dropout {rate}, got {config.model_type}; set it to 0"
        )
    for name in found:
        if name not in said:
            setattr(config, name, rate)
