"""The language model that a recipe starts from: a checkpoint, or a family with random weights; its tokenizer."""

from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, AutoTokenizer

from narrows._plural import count
from narrows.errors import UsageError
from narrows.evaluation.language_models import (
    load_language_config,
    load_language_model,
    positions_of,
    require_causal_family,
    require_left_to_right,
    trained_language,
)
from narrows.hf.byte_tokenizer import BYTES, byte_tokenizer
from narrows.hf.checkpoints import checkpoint_folder, require_tokenizer
from narrows.hf.register import register_all
from narrows.training.families import family_config, model_of, ready, set_rates
from narrows.training.language.recipe import LanguageRecipe
from narrows.training.tasks import find_checkpoint

__all__ = ["build_config", "build_model", "build_tokenizer", "tokenizer_of"]

_SPECIAL = ("bos_token_id", "eos_token_id", "pad_token_id")


def build_tokenizer(recipe: LanguageRecipe, *, data: Path, runs: Path | None) -> Any | None:
    """The tokenizer that a recipe's model reads with; None: bytes.

    Raises:
        ConversionError: there is none at the place that the recipe names.
    """
    model = recipe.model
    if model.tokenizer == BYTES:
        return None
    if model.tokenizer is None:
        return tokenizer_of(find_checkpoint(str(model.checkpoint), runs))
    name = find_checkpoint(model.tokenizer, runs)
    folder = data / name if (data / name).is_dir() else checkpoint_folder(name)
    require_tokenizer(folder)
    return AutoTokenizer.from_pretrained(folder)


def tokenizer_of(checkpoint: str | Path) -> Any | None:
    """The tokenizer of a language model's checkpoint; None where its config says that it reads bytes.

    Raises:
        ConversionError: neither is there, or the checkpoint itself is not.
        UsageError: a family without a causal language model.
    """
    folder = checkpoint_folder(checkpoint)
    noted = trained_language(load_language_config(folder))
    if noted is not None and noted.reads == BYTES:
        return None
    require_tokenizer(folder)
    return AutoTokenizer.from_pretrained(folder)


def build_config(recipe: LanguageRecipe, tokenizer: Any | None, *, runs: Path | None = None) -> Any:
    """The config of the model: that of the checkpoint, or that of the family with the recipe's fields.

    Args:
        tokenizer: None: bytes.

    Raises:
        UsageError: an unknown family or field, a field that the tokenizer decides, a family without a causal language
            model, fewer positions than a row has tokens, or no dropout to set.
    """
    register_all()
    section = recipe.model
    if section.checkpoint is not None:
        config = load_language_config(find_checkpoint(section.checkpoint, runs))
    else:
        reads = byte_tokenizer() if tokenizer is None else tokenizer
        decided: dict[str, Any] = {"vocab_size": len(reads)}
        # Those that families have as defaults are of their own vocabularies.
        decided |= {name: getattr(reads, name) for name in _SPECIAL}
        config = family_config(str(section.family), section.config, decided, example="gpt2")
        require_causal_family(config)
    positions = positions_of(config)
    if positions is not None and recipe.data.length > positions:
        name = getattr(config, "attribute_map", {}).get("max_position_embeddings", "max_position_embeddings")
        advice = "lower it" if section.checkpoint is not None else f"lower it, or raise model.config.{name}"
        raise UsageError(
            f"expected data.length of at most the model's {count(positions, 'position')}, got {recipe.data.length}; "
            f"{advice}"
        )
    set_rates(config, recipe.optimiser.dropout, said=section.config)
    return config


def build_model(recipe: LanguageRecipe, config: Any, *, runs: Path | None = None) -> Any:
    """The language model in fp32, with random weights (by torch's seed) or those of the checkpoint.

    Raises:
        ConversionError: a checkpoint that is not there, damaged or without all weights of a causal language model.
        UsageError: sizes that do not go together, a model that looks ahead, or an attention that it does not have.
    """
    section = recipe.model
    if section.checkpoint is None:
        model = model_of(AutoModelForCausalLM, config)
        require_left_to_right(model)
    else:
        model = load_language_model(find_checkpoint(section.checkpoint, runs), config)
    return ready(model, section.attention)
