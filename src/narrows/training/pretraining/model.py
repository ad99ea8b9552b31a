"""The model that a recipe of pretraining starts from: a checkpoint, or a family with random weights."""

import difflib
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer

from narrows._plural import count
from narrows.errors import UsageError
from narrows.funnel import FunnelConfig, preset
from narrows.hf.byte_tokenizer import BYTES, byte_tokenizer
from narrows.hf.checkpoints import checkpoint_folder, require_tokenizer
from narrows.hf.register import register_all
from narrows.training.heads import UNFIT, load_with_head
from narrows.training.pretraining.recipe import PretrainingModelSection, PretrainingRecipe
from narrows.training.tasks import find_checkpoint

__all__ = ["build_config", "build_model", "build_tokenizer", "ready"]

# Of hidden states, embeddings and attention, as encoders of transformers and of this library name them.
_DROPOUTS = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "hidden_dropout",
    "attention_dropout",
    "dropout",
    "embedding_dropout",
    "mlp_dropout",
)
# What the tokenizer decides.
_OF_THE_TOKENIZER = ("vocab_size", "pad_token_id", "cls_token_id", "sep_token_id", "mask_token_id")
_NEEDED = ("cls_token_id", "sep_token_id", "mask_token_id", "pad_token_id")


def build_tokenizer(recipe: PretrainingRecipe, *, data: Path, runs: Path | None) -> Any:
    """The tokenizer that a recipe's model reads with.

    Raises:
        ConversionError: there is none at the place that the recipe names.
        UsageError: it has no [CLS], [SEP], [MASK] or [PAD].
    """
    model = recipe.model
    if model.tokenizer == BYTES:
        return byte_tokenizer()
    if model.checkpoint is not None:
        folder = checkpoint_folder(find_checkpoint(model.checkpoint, runs))
    else:
        name = find_checkpoint(str(model.tokenizer), runs)
        folder = data / name if (data / name).is_dir() else checkpoint_folder(name)
    require_tokenizer(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for name in _NEEDED:
        if getattr(tokenizer, name) is None:
            raise UsageError(
                f"expected a tokenizer with a {name.removesuffix('_id')} in {folder}, got one without; choose another"
            )
    return tokenizer


def build_config(recipe: PretrainingRecipe, tokenizer: Any, *, runs: Path | None = None) -> Any:
    """The config of the model: that of the checkpoint, or that of the family or preset with the recipe's fields.

    Raises:
        UsageError: an unknown family, preset or field, a field that the tokenizer decides, a model without a masked
            language model, fewer positions than a row has tokens, or no dropout to set.
    """
    register_all()
    section = recipe.model
    if section.checkpoint is not None:
        config = AutoConfig.from_pretrained(checkpoint_folder(find_checkpoint(section.checkpoint, runs)))
    else:
        config = _of_family(section, tokenizer)
    if type(config) not in AutoModelForMaskedLM._model_mapping:
        raise UsageError(
            f"expected a family with a masked language model, got {config.model_type}; choose another, such as bert"
        )
    # Funnel's relative positions have no end, whatever is written here.
    relative = getattr(config, "position_type", None) == "relative"
    positions = None if relative else getattr(config, "max_position_embeddings", None)
    if positions is not None and recipe.data.length > positions:
        raise UsageError(
            f"expected data.length of at most the model's {count(positions, 'position')}, got {recipe.data.length}; "
            "lower it, or raise model.config.max_position_embeddings"
        )
    _set_dropout(config, recipe)
    return config


def build_model(recipe: PretrainingRecipe, config: Any, *, runs: Path | None = None) -> Any:
    """The masked language model in fp32, with random weights (by torch's seed) or those of the checkpoint.

    Raises:
        ConversionError: a checkpoint that is not there, damaged or without all weights of its encoder.
        UsageError: sizes that do not go together, or an attention that the model does not have.
    """
    section = recipe.model
    if section.checkpoint is None:
        try:
            model = AutoModelForMaskedLM.from_config(config)
        except UsageError:
            # Of a family of narrows: it says it all.
            raise
        except UNFIT as error:
            raise _unfit(config, error) from error
    else:
        folder = checkpoint_folder(find_checkpoint(section.checkpoint, runs))
        model = load_with_head(AutoModelForMaskedLM, folder, config, section.checkpoint)
    return ready(model, section)


def ready(model: Any, section: PretrainingModelSection) -> Any:
    """The model in training, with the attention that the recipe names.

    Raises:
        UsageError: an attention that the model does not have.
    """
    if section.attention is not None:
        try:
            model.set_attn_implementation(section.attention)
        except (ValueError, ImportError) as error:
            raise UsageError(
                f"expected an attention that {model.config.model_type} has, got {section.attention!r} "
                f"({' '.join(str(error).split())}); leave model.attention out"
            ) from error
    return model.train()


def _of_family(section: PretrainingModelSection, tokenizer: Any) -> Any:
    family, fields = section.family or FunnelConfig.model_type, section.config
    try:
        default = AutoConfig.for_model(family)
    except ValueError as error:
        raise UsageError(f"expected a model type as model.family, got {family!r}; name one such as bert") from error
    known = {*default.to_dict(), *type(default).attribute_map}
    for name in fields:
        if name in _OF_THE_TOKENIZER:
            raise UsageError(f"expected no model.config.{name}, which the tokenizer decides; leave it out")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            advice = f"did you mean {near[0]!r}?" if near else "see the config class in transformers' documentation"
            raise UsageError(f"expected fields of {type(default).__name__} in model.config, got {name!r}; {advice}")
    decided = {
        name: len(tokenizer) if name == "vocab_size" else getattr(tokenizer, name)
        for name in _OF_THE_TOKENIZER
        if name in known
    }
    try:
        if section.preset is not None:
            return preset(section.preset, **fields, **decided)
        return AutoConfig.for_model(family, **fields, **decided)
    except UsageError:
        # Of a family of narrows: it says it all.
        raise
    except UNFIT as error:
        raise _unfit(default, error) from error


def _unfit(config: Any, error: Exception) -> UsageError:
    """The sentence for sizes that do not go together: transformers' own words, and the place they came from."""
    return UsageError(
        f"expected values in model.config that {type(config).__name__} takes, got an error from it "
        f"({' '.join(str(error).split())}); mend them"
    )


def _set_dropout(config: Any, recipe: PretrainingRecipe) -> None:
    found = [name for name in _DROPOUTS if hasattr(config, name)]
    if not found and recipe.optimiser.dropout:
        raise UsageError(
            f"expected a model with dropout for optimiser.dropout {recipe.optimiser.dropout}, got {config.model_type}; "
            "set it to 0"
        )
    for name in found:
        if name not in recipe.model.config:
            setattr(config, name, recipe.optimiser.dropout)
