"""The model that a recipe of pretraining starts from: a checkpoint, or a family with random weights."""

from functools import partial
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer

from narrows._plural import count
from narrows.errors import UsageError
from narrows.funnel import FunnelConfig, preset
from narrows.hf.byte_tokenizer import BYTES, byte_tokenizer
from narrows.hf.checkpoints import checkpoint_folder, require_tokenizer
from narrows.hf.register import register_all
from narrows.training.families import family_config, model_of, ready, set_rates
from narrows.training.heads import load_with_head
from narrows.training.pretraining.recipe import PretrainingModelSection, PretrainingRecipe
from narrows.training.tasks import find_checkpoint

__all__ = ["build_config", "build_model", "build_tokenizer"]

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
    set_rates(config, recipe.optimiser.dropout, said=section.config)
    return config


def build_model(recipe: PretrainingRecipe, config: Any, *, runs: Path | None = None) -> Any:
    """The masked language model in fp32, with random weights (by torch's seed) or those of the checkpoint.

    Raises:
        ConversionError: a checkpoint that is not there, damaged or without all weights of its encoder.
        UsageError: sizes that do not go together, or an attention that the model does not have.
    """
    section = recipe.model
    if section.checkpoint is None:
        model = model_of(AutoModelForMaskedLM, config)
    else:
        folder = checkpoint_folder(find_checkpoint(section.checkpoint, runs))
        model = load_with_head(AutoModelForMaskedLM, folder, config, section.checkpoint)
    return ready(model, section.attention)


def _of_family(section: PretrainingModelSection, tokenizer: Any) -> Any:
    decided = {name: len(tokenizer) if name == "vocab_size" else getattr(tokenizer, name) for name in _OF_THE_TOKENIZER}
    return family_config(
        section.family or FunnelConfig.model_type,
        section.config,
        decided,
        example="bert",
        make=None if section.preset is None else partial(preset, section.preset),
    )
