"""The model that a recipe of classification starts from: any encoder, with a head for its labels."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoTokenizer

from narrows._plural import count
from narrows.errors import ConversionError, UsageError
from narrows.evaluation.classification import HEADS
from narrows.hf.checkpoints import checkpoint_folder, require_tokenizer
from narrows.hf.encoders import Encoder
from narrows.hf.register import register_all
from narrows.training.classification.recipe import ClassRecipe
from narrows.training.dropout import set_dropout
from narrows.training.loading import load_encoder
from narrows.training.tasks import find_checkpoint

__all__ = ["build_model", "build_tokenizer", "order_labels"]


def build_tokenizer(recipe: ClassRecipe, *, runs: Path | None) -> Any:
    """The checkpoint's tokenizer.

    Raises:
        ConversionError: there is none, or it cannot pad.
    """
    folder = _folder(recipe, runs)
    require_tokenizer(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if tokenizer.pad_token_id is None:
        raise ConversionError(
            f"expected a tokenizer with pad_token in {folder}, got none; add it to tokenizer_config.json"
        )
    return tokenizer


def order_labels(recipe: ClassRecipe, found: Sequence[str], *, runs: Path | None) -> list[str]:
    """Names of the classes, in the order of the recipe, of the checkpoint where it has the same, or of `found`.

    Args:
        found: those of the training data, sorted.

    Raises:
        UsageError: fewer than two.
    """
    if recipe.problem in ("regression", "choices"):
        return []
    labels = recipe.labels or list(found)
    if len(set(labels)) < 2 or len(set(labels)) < len(labels):
        raise UsageError(f"expected at least 2 labels, each once, got {labels}; check the training data or 'labels'")
    own: Any = AutoConfig.from_pretrained(_folder(recipe, runs)).id2label or {}
    named = [str(own[index]) for index in sorted(own)]
    return named if not recipe.labels and sorted(named) == sorted(labels) else list(labels)


def build_model(recipe: ClassRecipe, tokenizer: Any, labels: Sequence[str], *, runs: Path | None) -> Any:
    """The model in fp32; a head that the checkpoint lacks, or has for other labels, is new, by torch's seed.

    Raises:
        ConversionError: a checkpoint that is not there, damaged, or of a family without such a head.
        UsageError: fewer positions than `data.max_tokens`.
    """
    folder = _folder(recipe, runs)
    config = AutoConfig.from_pretrained(folder)
    if recipe.optimiser.dropout is not None:
        set_dropout(config, recipe.optimiser.dropout)
    auto = HEADS[recipe.problem]
    if type(config) not in auto._model_mapping:
        raise ConversionError(
            f"expected a family with a head for {recipe.problem}, got {recipe.model.checkpoint} of type "
            f"{config.model_type!r}; choose another checkpoint"
        )
    if recipe.problem == "regression":
        config.id2label, config.label2id, config.problem_type = {0: "score"}, {"score": 0}, "regression"
    elif labels:
        config.id2label = dict(enumerate(labels))
        config.label2id = {name: index for index, name in enumerate(labels)}
        if recipe.problem == "classes":
            config.problem_type = "single_label_classification"
    model = load_encoder(auto, folder, config, recipe.model.checkpoint)
    positions = Encoder(recipe.model.checkpoint, model, tokenizer).positions
    if positions is not None and recipe.data.max_tokens > positions:
        raise UsageError(
            f"expected data.max_tokens of at most the {count(positions, 'position')} of {recipe.model.checkpoint}, got "
            f"{recipe.data.max_tokens}; lower it"
        )
    return model.train()


def _folder(recipe: ClassRecipe, runs: Path | None) -> Path:
    register_all()
    return checkpoint_folder(find_checkpoint(recipe.model.checkpoint, runs))
