"""Recipes: what to train, on what, and how. YAML, validated; an unknown key names the nearest known one."""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from narrows.errors import RecipeError
from narrows.training.sections import Recipe
from narrows.training.spans.recipe import SpanRecipe
from narrows.training.summaries.recipe import SummaryRecipe

__all__ = ["RECIPES", "load_recipe", "save_recipe"]

# The recipe of each task. A new task is a line here, and one in `tasks.py`.
RECIPES: dict[str, type[Recipe]] = {"question-answering": SpanRecipe, "summarization": SummaryRecipe}


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
    kind = _kind(raw.get("task", "question-answering"), path)
    try:
        recipe = kind.model_validate(raw)
    except ValidationError as error:
        raise RecipeError(_one_sentence(error, kind, path)) from error
    recipe.check(path)
    return recipe


def save_recipe(recipe: Recipe, path: Path) -> None:
    """Write the recipe with every default filled in."""
    path.write_text(yaml.safe_dump(recipe.model_dump(), sort_keys=False, allow_unicode=True), encoding="utf-8")


def _kind(task: Any, path: Path) -> type[Recipe]:
    kind = RECIPES.get(task) if isinstance(task, str) else None
    if kind is None:
        near = difflib.get_close_matches(str(task), RECIPES, n=1)
        advice = f"did you mean {near[0]!r}?" if near else "choose one of these"
        raise RecipeError(f"expected a valid 'task' in {path}, one of {', '.join(RECIPES)}, got {task!r}; {advice}")
    return kind


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


def _one_sentence(error: ValidationError, kind: type[Recipe], path: Path) -> str:
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
    return f"expected a valid {where!r} in {path}, got {first['input']!r}; {advice}"


def _known_keys(kind: type[Recipe], location: tuple[int | str, ...]) -> list[str]:
    model: Any = kind
    for part in location:
        if isinstance(part, int):
            continue
        annotation = model.model_fields[part].annotation
        inner = [a for a in (annotation, *get_args(annotation)) if isinstance(a, type) and issubclass(a, BaseModel)]
        model = inner[0]
    return list(model.model_fields)
