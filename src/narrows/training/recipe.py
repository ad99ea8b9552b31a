"""Recipes: what to train, on what, and how. YAML, validated; an unknown key names the nearest known one."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from narrows._text import shown
from narrows.errors import RecipeError
from narrows.training.classification.recipe import ClassRecipe
from narrows.training.electra.recipe import ElectraRecipe
from narrows.training.encoders.recipe import EncoderRecipe
from narrows.training.language.recipe import LanguageRecipe
from narrows.training.planted.recipe import PlantedRecipe
from narrows.training.pretraining.recipe import PretrainingRecipe
from narrows.training.sections import Recipe
from narrows.training.spans.recipe import SpanRecipe
from narrows.training.summaries.recipe import SummaryRecipe
from narrows.training.yaml_files import load_strict

__all__ = ["RECIPES", "load_recipe", "one_sentence", "read_yaml", "save_recipe"]

# The recipe of each task. A new task is a line here, and one in `tasks.py`.
RECIPES: dict[str, type[Recipe]] = {
    "question-answering": SpanRecipe,
    "summarization": SummaryRecipe,
    "masked-lm": PretrainingRecipe,
    "electra": ElectraRecipe,
    "planted-facts": PlantedRecipe,
    "encoder-distillation": EncoderRecipe,
    "classification": ClassRecipe,
    "causal-lm": LanguageRecipe,
}

# What PyYAML lets through from the making of dates, numbers and truth values, and from deep nesting.
_NO_YAML = (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def load_recipe(path: str | Path, *, settings: Mapping[str, str] | None = None) -> Recipe:
    """Read and check a recipe.

    Args:
        path: YAML file.
        settings: `a.b` → value (YAML), each replacing one key.

    Returns:
        The recipe of the file's `task`; question answering when it names none.

    Raises:
        RecipeError: not YAML, an unknown task or key (the nearest known one is named), a value of the wrong kind, or
            values that do not go together.
    """
    path = Path(path)
    raw = read_yaml(path)
    for key, value in (settings or {}).items():
        _set(raw, key, _setting(key, value))
    kind = _kind(raw.get("task", "question-answering"), path)
    try:
        recipe = kind.model_validate(raw)
    except ValidationError as error:
        raise RecipeError(one_sentence(error, kind, path)) from error
    recipe.check(path)
    return recipe


def read_yaml(path: Path) -> dict[str, Any]:
    """The keys and values of a YAML file.

    Raises:
        RecipeError: a file that cannot be read, or is not YAML, or holds something else than keys and values; a key
            that stands there twice.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        # A ValueError: no UTF-8, or a path with a zero byte.
        raise RecipeError(
            f"expected a recipe at {path}, got a file that cannot be read ({error}); check the path"
        ) from error
    try:
        raw = load_strict(text)
    except _NO_YAML as error:
        raise RecipeError(f"expected YAML in {path}, got {_yaml_problem(error)}; mend that place") from error
    if not isinstance(raw, dict):
        raise RecipeError(f"expected a recipe in {path}, got {type(raw).__name__}; write `key: value` lines")
    return raw


def save_recipe(recipe: Recipe, path: Path) -> None:
    """Write the recipe with every default filled in."""
    path.write_text(yaml.safe_dump(recipe.model_dump(), sort_keys=False, allow_unicode=True), encoding="utf-8")


def _kind(task: Any, path: Path) -> type[Recipe]:
    kind = RECIPES.get(task) if isinstance(task, str) else None
    if kind is None:
        near = difflib.get_close_matches(task, RECIPES, n=1) if isinstance(task, str) else []
        advice = f"did you mean {near[0]!r}?" if near else "choose one of these"
        raise RecipeError(
            f"expected a valid 'task' in {path}, one of {', '.join(RECIPES)}, got {shown(task)}; {advice}"
        )
    return kind


def _setting(key: str, value: str) -> Any:
    try:
        return yaml.safe_load(value)
    except _NO_YAML as error:
        raise RecipeError(f"expected YAML as the value of the setting {key!r}, got {shown(value)}; quote it") from error


def _yaml_problem(error: Exception) -> str:
    if isinstance(error, yaml.YAMLError):
        return " ".join(str(error).split())
    if isinstance(error, RecursionError):
        return "lists or sections that are nested too deep"
    return "a value that is not of the kind it is written as, such as a date that is none or a number of many digits"


def _set(raw: dict[str, Any], key: str, value: Any) -> None:
    *parents, last = key.split(".")
    for parent in parents:
        raw = raw.setdefault(parent, {})
        if not isinstance(raw, dict):
            raise RecipeError(
                f"expected a section at {parent!r} of the setting {key!r}, got a value; name a key inside a section"
            )
    raw[last] = value


def one_sentence(error: ValidationError, kind: type[BaseModel], path: Path) -> str:
    """The first of the things that are wrong with a recipe, and what to do about it."""
    errors = error.errors()
    # A misspelt key is an unknown one and a missing one: the unknown one tells which was meant.
    first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        known = _known_keys(kind, first["loc"][:-1])
        near = difflib.get_close_matches(str(first["loc"][-1]), known, n=1)
        advice = f"did you mean {near[0]!r}?" if near else f"known keys are {', '.join(sorted(known))}"
        return f"expected only known keys in {path}, got {where!r}; {advice}"
    if first["type"] == "missing":
        return f"expected a key {where!r} in {path}, got none; add it"
    message = first["msg"].removeprefix("Value error, ")
    advice = f"{message[0].lower()}{message[1:]}"
    if not where:
        return f"expected a valid {kind.__name__.lower()} in {path}; {advice}"
    return f"expected a valid {where!r} in {path}, got {shown(first['input'])}; {advice}"


def _known_keys(kind: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    model: Any = kind
    for part in location:
        if isinstance(part, int):
            continue
        annotation = model.model_fields[part].annotation
        inner = [a for a in (annotation, *get_args(annotation)) if isinstance(a, type) and issubclass(a, BaseModel)]
        model = inner[0]
    return list(model.model_fields)
