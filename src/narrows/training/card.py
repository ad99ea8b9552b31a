"""The model card that a run leaves beside its weights."""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from narrows._plural import count
from narrows.training.sections import CardText, Recipe

__all__ = ["write_card"]

_PACKAGES = ("narrows", "torch", "transformers", "tokenizers", "peft")

_TEMPLATE = """---
{head}---

# {name}

{description}

{about}

## Made with

```sh
{command}
```

{rows}, {steps}.

## Data

{data}

The licence of these weights: {licence}. The data sets keep their own licences.

## Scores

{scores}

## Recipe

```yaml
{recipe}```

## Versions

{versions}
"""


def write_card(folder: Path, recipe: Recipe, *, command: str, summary: Mapping[str, Any]) -> Path:
    """Write `README.md` in a model's folder.

    Args:
        folder: of the model.
        recipe: that it was trained with.
        command: the line that repeats the run.
        summary: of the run: `rows`, `steps`, and `tune`, a mapping of scores.
    """
    text = recipe.card_text()
    head = {
        "library_name": "transformers",
        "pipeline_tag": text.pipeline or recipe.task,
        "tags": ["narrows", text.family],
    }
    if recipe.licence:
        head["license"] = recipe.licence
    card = _TEMPLATE.format(
        head=yaml.safe_dump(head, sort_keys=False),
        name=recipe.name,
        description=recipe.description or f"Trained with the recipe `{recipe.name}`.",
        about=text.about,
        command=command,
        rows=count(summary["rows"], "row"),
        steps=count(summary["steps"], "step"),
        data=text.data,
        licence=recipe.licence or "not stated in the recipe",
        scores=_scores(summary["tune"], text),
        recipe=yaml.safe_dump(recipe.model_dump(), sort_keys=False, allow_unicode=True),
        versions=", ".join(f"{package} {version(package)}" for package in _PACKAGES),
    )
    path = folder / "README.md"
    path.write_text(card, encoding="utf-8")
    return path


def _scores(tune: Mapping[str, float], text: CardText) -> str:
    if not tune:
        return "None: the recipe has no tune data."
    rows = "\n".join(f"| {name} | {value:.{text.decimals}f} |" for name, value in tune.items())
    chosen = "by which the best checkpoint was chosen" if text.best else "of the last checkpoint"
    return f"On the tune data, {chosen}:\n\n| score | value |\n|---|---|\n{rows}"
