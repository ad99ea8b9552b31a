"""What the recipes of all tasks have in common."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from narrows._plural import count
from narrows.errors import RecipeError

__all__ = [
    "CardText",
    "FineTuningSection",
    "OptimiserSection",
    "Recipe",
    "RunName",
    "Section",
    "Times",
    "require_once",
]


# What file systems take.
_LONGEST_NAME = 255


def _folder_below(name: str) -> str:
    if not name.strip() or name.startswith(".") or any(mark in "/\\" or not mark.isprintable() for mark in name):
        raise ValueError("name a folder below that of the runs, without slashes and without a dot at its front")
    if len(name.encode()) > _LONGEST_NAME:
        raise ValueError(f"shorten it to {count(_LONGEST_NAME, 'byte')}, as it is the name of a folder")
    return name


# RUNS/NAME is written to: not above it, not beside it.
RunName = Annotated[str, AfterValidator(_folder_below)]

# How often an epoch sees a part of the data. Its rows are listed as often: a slip of the pen would fill the memory.
Times = Annotated[int, Field(ge=1, le=1000)]


class Section(BaseModel):
    """A part of a recipe: fixed once read, and without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class OptimiserSection(Section):
    """Attributes:
    epochs: passes over the training data; a part of one is allowed.
    batch_tokens: padded tokens a forward pass holds at most.
    accumulation: forward passes an optimiser step.
    warmup: share of the steps in which the learning rate rises.
    learning_rate: of the top layer and all above it.
    layer_decay: factor of the learning rate from a layer to the one below: layer m out of n learns with
        learning_rate · layer_decay^(n − m), embeddings being layer 0; 1 is none.
    """

    # The order of all epochs is drawn before the first step: a slip of the pen would fill the memory.
    epochs: float = Field(1.0, gt=0, le=1000)
    batch_tokens: int = Field(4096, ge=16)
    accumulation: int = Field(1, ge=1)
    learning_rate: float = Field(5e-5, gt=0)
    # From 1 on transformers takes it for a number of steps.
    warmup: float = Field(0.1, ge=0, lt=1)
    weight_decay: float = Field(0.01, ge=0)
    layer_decay: float = Field(1.0, gt=0, le=1)
    max_grad_norm: float = Field(1.0, gt=0)
    dropout: float = Field(0.0, ge=0, lt=1)
    dtype: Literal["float32", "bfloat16"] = "float32"
    seed: int = Field(0, ge=0, lt=2**32)


class FineTuningSection(OptimiserSection):
    """The common section, with what the Funnel paper sets.

    Attributes:
        batch_rows: examples of a forward pass at most, however short they are; none: as `batch_tokens` lets.
        beta2: of AdamW.
        dropout: in the place of all rates of the checkpoint's config; none: these.
        gradient_checkpointing: compute layers again in the backward pass, for memory.
    """

    batch_rows: int | None = Field(None, ge=1)
    beta2: float = Field(0.999, gt=0, lt=1)
    dropout: float | None = Field(None, ge=0, lt=1)  # type: ignore[assignment]
    gradient_checkpointing: bool = False


class CardText(Section):
    """What a recipe says of itself in its model's card.

    Attributes:
        family: tag of the card.
        about: what the model is, and how it is loaded.
        data: a Markdown list of the data, a line a source.
        pipeline: of transformers, that uses the model; the task's name when empty.
        best: whether the scores chose the checkpoint; otherwise it is the last one.
        decimals: of the scores.
    """

    family: str
    about: str
    data: str
    pipeline: str = ""
    best: bool = True
    decimals: int = 2


class Recipe(Section, ABC):
    """A whole run. The recipe of a task adds a model, data and what else it needs.

    Attributes:
        name: of the run and its model.
        task: what the model learns; it decides which other keys there are.
        evaluate_every: optimiser steps between evaluations on the tune data, each with a checkpoint.
        description: first lines of the model card.
        licence: of the trained weights, for the card.
    """

    name: RunName
    task: str
    evaluate_every: int = Field(200, ge=1)
    description: str = ""
    licence: str = ""

    def check(self, path: Path) -> None:
        """Whether keys that are right one by one go together.

        Raises:
            RecipeError: they do not.
        """

    def checkpoints(self) -> tuple[str, ...]:
        """The checkpoints that the run starts from or looks at: folders, hub ids or names of other runs.

        That of the model comes first.
        """
        return ()

    @abstractmethod
    def card_text(self) -> CardText:
        """What the card says beyond what all cards say."""


def require_once(parts: Sequence[Any], use: str, path: Path) -> None:
    """Refuse data to evaluate on that is to be read several times: a score of them would count some twice.

    Args:
        parts: with the attributes `times` and `file`.
        use: their key in the recipe's `data`.
        path: of the recipe.

    Raises:
        RecipeError: a part with `times`.
    """
    again = next((part for part in parts if part.times != 1), None)
    if again is not None:
        raise RecipeError(
            f"expected `times` of training data only in {path}, got {again.times} for {again.file} of data.{use}; "
            "leave it out"
        )
