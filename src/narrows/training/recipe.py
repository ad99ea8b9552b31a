"""Recipes: what to train, on what, and how. YAML, validated; an unknown key names the nearest known one."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from narrows.errors import RecipeError

__all__ = ["DataPart", "Recipe", "load_recipe", "save_recipe"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ModelSection(_Section):
    """Attributes:
    checkpoint: folder, hub id, or the output of another run.
    split_layer: k of the model to train.
    """

    checkpoint: str
    split_layer: int = Field(ge=0)


class LossSection(_Section):
    """γ·task + α·kd + β·lrs. `distance` is of LRS; `temperature` of KD."""

    task: float = Field(1.0, ge=0)
    kd: float = Field(0.0, ge=0)
    lrs: float = Field(0.0, ge=0)
    temperature: float = Field(2.0, gt=0)
    distance: Literal["mse", "euclidean"] = "mse"


class TuneSection(_Section):
    """What is trained: everything, all layers but not the embeddings, the layers from the split up (and the
    head), or LoRA adapters on those layers. `layers` saves a tenth to a fifth of a step, since the word
    embeddings' gradient is dense. With `upper` and `lora` the layers below the split read every text once,
    before training, in fp32 and without dropout, into a file of the run's folder.
    """

    what: Literal["all", "layers", "upper", "lora"] = "all"
    lora_rank: int = Field(16, ge=1)


class DataPart(_Section):
    """One source of examples.

    Attributes:
        format: `squad` (v1.1 or v2.0 JSON), `qamr` (JSONL), `pairs` (questions and texts without labels), or
            `cloze` (running text, out of which questions are made; see `narrows.data.cloze`).
        file: path under the data folder, or under that of the runs, which is looked at first.
        split: JSON file with lists of titles by part, and the part taken.
        part: name of that part.
        answers: keep all questions, or only those with or without an answer.
        negatives: share of questions repeated with another passage that does not answer.
        join: contexts in a passage; above 1 the neighbours of an example's context in the file stand around it.
        times: how often the part is seen in an epoch.
    """

    format: Literal["squad", "qamr", "pairs", "cloze"]
    file: str
    split: str | None = None
    part: str | None = None
    answers: Literal["all", "answerable", "unanswerable"] = "all"
    negatives: float = Field(0.0, ge=0, le=1)
    join: int = Field(1, ge=1)
    times: int = Field(1, ge=1)


class DataSection(_Section):
    train: list[DataPart] = Field(min_length=1)
    tune: list[DataPart] = Field(default_factory=list)
    tune_limit: int | None = Field(None, ge=1)
    max_question_tokens: int = Field(64, ge=1)
    max_passage_tokens: int = Field(320, ge=8)
    overlap: int = Field(128, ge=0)


class OptimiserSection(_Section):
    """Attributes:
    epochs: passes over the training data; a part of one is allowed.
    batch_tokens: padded tokens a forward pass holds at most.
    accumulation: forward passes an optimiser step.
    warmup: share of the steps in which the learning rate rises.
    layer_decay: factor of the learning rate from a layer to the one below; 1 is none.
    """

    # The order of all epochs is drawn before the first step: a slip of the pen would fill the memory.
    epochs: float = Field(1.0, gt=0, le=1000)
    batch_tokens: int = Field(4096, ge=16)
    accumulation: int = Field(1, ge=1)
    learning_rate: float = Field(5e-5, gt=0)
    warmup: float = Field(0.1, ge=0, le=1)
    weight_decay: float = Field(0.01, ge=0)
    layer_decay: float = Field(1.0, gt=0, le=1)
    max_grad_norm: float = Field(1.0, gt=0)
    dropout: float = Field(0.0, ge=0, lt=1)
    dtype: Literal["float32", "bfloat16"] = "float32"
    seed: int = Field(0, ge=0, lt=2**32)


class Recipe(_Section):
    """A whole run.

    Attributes:
        name: of the run and its model.
        model: what is trained.
        teacher: checkpoint to distil from.
        evaluate_every: optimiser steps between evaluations on the tune data, each with a checkpoint.
        description: first lines of the model card.
        licence: of the trained weights, for the card.
    """

    name: str
    task: Literal["question-answering"] = "question-answering"
    model: ModelSection
    teacher: str | None = None
    losses: LossSection = LossSection()  # type: ignore[call-arg]
    tune: TuneSection = TuneSection()  # type: ignore[call-arg]
    data: DataSection
    optimiser: OptimiserSection = OptimiserSection()  # type: ignore[call-arg]
    evaluate_every: int = Field(200, ge=1)
    description: str = ""
    licence: str = ""

    @field_validator("name")
    @classmethod
    def _is_a_folder_name(cls, name: str) -> str:
        # RUNS/NAME is written to: not above it, not beside it.
        if not name.strip() or name.startswith(".") or any(mark in "/\\" or not mark.isprintable() for mark in name):
            raise ValueError("name a folder below that of the runs, without slashes and without a dot at its front")
        return name


def load_recipe(path: str | Path, *, settings: Mapping[str, str] | None = None) -> Recipe:
    """Read and check a recipe.

    Args:
        path: YAML file.
        settings: `a.b` → value (YAML), each replacing one key.

    Raises:
        RecipeError: not YAML, an unknown key (the nearest known one is named), a value of the wrong kind, or
            losses without what they need.
    """
    path = Path(path)
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(
            f"expected a recipe at {path}, got a file that cannot be read ({error}); check the path"
        ) from error
    except yaml.YAMLError as error:
        raise RecipeError(f"expected YAML in {path}, got {' '.join(str(error).split())}; mend that place") from error
    if not isinstance(raw, dict):
        raise RecipeError(f"expected a recipe in {path}, got {type(raw).__name__}; write `key: value` lines")
    for key, value in (settings or {}).items():
        _set(raw, key, _setting(key, value))
    try:
        recipe = Recipe.model_validate(raw)
    except ValidationError as error:
        raise RecipeError(_one_sentence(error, path)) from error
    if (recipe.losses.kd or recipe.losses.lrs) and recipe.teacher is None:
        raise RecipeError(
            f"expected `teacher` in {path} since losses.kd or losses.lrs is above 0, got none; "
            "name a checkpoint or set both to 0"
        )
    if not (recipe.losses.task or recipe.losses.kd or recipe.losses.lrs):
        raise RecipeError(f"expected a loss above 0 in {path}, got 0 for task, kd and lrs; raise one of them")
    return recipe


def save_recipe(recipe: Recipe, path: Path) -> None:
    """Write the recipe with every default filled in."""
    path.write_text(yaml.safe_dump(recipe.model_dump(), sort_keys=False, allow_unicode=True), encoding="utf-8")


def _setting(key: str, value: str) -> Any:
    try:
        return yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise RecipeError(f"expected YAML as the value of the setting {key!r}, got {value!r}; quote it") from error


def _set(raw: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        raw = raw.setdefault(parent, {})
        if not isinstance(raw, dict):
            raise RecipeError(
                f"expected a section at {parent!r} of the setting {key!r}, got a value; name a key inside a section"
            )
    raw[last] = value


def _one_sentence(error: ValidationError, path: Path) -> str:
    errors = error.errors()
    # A misspelt key is an unknown one and a missing one: the unknown one tells which was meant.
    first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        known = _known_keys(first["loc"][:-1])
        near = difflib.get_close_matches(str(first["loc"][-1]), known, n=1)
        advice = f"did you mean {near[0]!r}?" if near else f"known keys are {', '.join(sorted(known))}"
        return f"expected only known keys in {path}, got {where!r}; {advice}"
    if first["type"] == "missing":
        return f"expected a key {where!r} in {path}, got none; add it"
    message = first["msg"].removeprefix("Value error, ")
    advice = f"{message[0].lower()}{message[1:]}"
    return f"expected a valid {where!r} in {path}, got {first['input']!r}; {advice}"


def _known_keys(location: tuple[int | str, ...]) -> list[str]:
    model: Any = Recipe
    for part in location:
        if isinstance(part, int):
            continue
        annotation = model.model_fields[part].annotation
        inner = [a for a in (annotation, *get_args(annotation)) if isinstance(a, type) and issubclass(a, BaseModel)]
        model = inner[0]
    return list(model.model_fields)
