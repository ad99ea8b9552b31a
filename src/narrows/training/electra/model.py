"""The two models that a recipe of ELECTRA starts from, as one."""

from pathlib import Path
from typing import Any

from narrows.errors import UsageError
from narrows.funnel import (
    FunnelConfig,
    FunnelForElectraPreTraining,
    FunnelForMaskedLM,
    FunnelForReplacedTokenDetection,
)
from narrows.hf.checkpoints import checkpoint_folder
from narrows.training.electra.recipe import ElectraRecipe
from narrows.training.families import ready
from narrows.training.tasks import find_checkpoint

__all__ = ["GENERATOR", "build_model", "save_model"]

GENERATOR = "generator"
"""The generator's folder, in that of the discriminator."""


def build_model(recipe: ElectraRecipe, config: Any, *, runs: Path | None = None) -> FunnelForElectraPreTraining:
    """Generator and discriminator in fp32, with random weights (by torch's seed) or those of the checkpoint.

    Raises:
        ConversionError: a checkpoint that is not there or damaged.
        UsageError: another family, a checkpoint without a generator, sizes that leave the generator no head, or an
            attention that the model does not have.
    """
    if not isinstance(config, FunnelConfig):
        raise UsageError(
            f"expected a checkpoint of {FunnelConfig.model_type} for electra, got {config.model_type}; convert it with "
            "`narrows convert --to funnel`, or choose task masked-lm"
        )
    if recipe.model.checkpoint is None:
        return ready(FunnelForElectraPreTraining(config), recipe.model.attention)
    return ready(
        _load(checkpoint_folder(find_checkpoint(recipe.model.checkpoint, runs)), config), recipe.model.attention
    )


def save_model(model: FunnelForElectraPreTraining, folder: Path) -> None:
    """Save the discriminator, which is the encoder to fine-tune, and below it the generator."""
    model.discriminator().save_pretrained(folder)
    model.generator.save_pretrained(folder / GENERATOR)


def _load(folder: Path, config: FunnelConfig) -> FunnelForElectraPreTraining:
    if (folder / GENERATOR).is_dir():
        return FunnelForElectraPreTraining.from_parts(
            FunnelForReplacedTokenDetection.from_pretrained(folder, config=config, dtype="float32"),
            FunnelForMaskedLM.from_pretrained(folder / GENERATOR, dtype="float32"),
        )
    architectures = config.architectures or ["a model without a name"]
    if architectures != [FunnelForElectraPreTraining.__name__]:
        raise UsageError(
            f"expected a discriminator with its generator in {folder}, got {', '.join(architectures)} alone; name the "
            "output of a run of electra, or start from model.family"
        )
    return FunnelForElectraPreTraining.from_pretrained(folder, config=config, dtype="float32")
