"""Sweeps: a recipe in several variants and under every combination of some settings, as a queue that can be stopped."""

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from narrows.errors import RecipeError
from narrows.training.kept import read_summary
from narrows.training.recipe import load_recipe, one_sentence, read_yaml
from narrows.training.sections import Recipe, RunName, Section
from narrows.training.writing import written_whole

__all__ = ["Cell", "ChooseSection", "Sweep", "cells_of", "collect", "load_sweep"]


_START = "model.checkpoint"
_LOWER = ("loss", "bits_per_byte", "perplexity")
# What tells the runs apart in a folder and in what is kept of them.
_OWN = ("name", "variant")
_MOST_RUNS = 10_000


class ChooseSection(Section):
    """What is chosen on tune data before test data is looked at.

    Attributes:
        keys: of `over`, whose values are chosen, such as `optimiser.learning_rate`.
        repeats: of `over`, such as `optimiser.seed`: runs that differ in them alone are of one choice,
            which is by their mean.
        score: of the tune data.
        better: whether `higher` or `lower` scores are; none: lower ones of losses, bits per byte and perplexity, higher
            ones of all others.
    """

    keys: list[str] = Field(min_length=1)
    repeats: list[str] = []
    score: str
    better: Literal["higher", "lower"] | None = None

    @property
    def lower_is_better(self) -> bool:
        """Whether the lowest score is chosen."""
        if self.better is not None:
            return self.better == "lower"
        return self.score in _LOWER or self.score.endswith("_loss")


class Sweep(Section):
    """What is varied.

    Attributes:
        name: of the folder that all its runs lie in.
        recipe: file of the recipe, from the sweep's own folder.
        settings: keys of the recipe, as `a.b`, that all runs have another value of.
        variants: settings that go together, by a name that the runs get, such as another family with its sizes; they
            hold against `settings`. A section or config that is given whole replaces the recipe's.
        starts: files of other sweeps, from the sweep's own folder, in the place of `variants`: what each of their runs
            writes is a variant, of its name there, which the recipe starts from (`model.checkpoint`).
        over: keys and the values each takes, in every combination, of every variant; the first key varies slowest.
        choose: for each combination of the other keys, and each variant, the best values of some; their runs alone see
            the test data.
    """

    name: RunName
    recipe: str
    settings: dict[str, Any] = {}
    variants: dict[str, dict[str, Any]] = Field(default_factory=dict)
    starts: list[str] = []
    over: dict[str, list[Any]] = Field(default_factory=dict)
    choose: ChooseSection | None = None

    @field_validator("over")
    @classmethod
    def _has_values(cls, over: dict[str, list[Any]]) -> dict[str, list[Any]]:
        empty = next((key for key, values in over.items() if not values), None)
        if empty is not None:
            raise ValueError(f"give {empty!r} at least one value")
        if math.prod(map(len, over.values())) > _MOST_RUNS:
            raise ValueError(f"give values of at most {_MOST_RUNS:,} combinations")
        # What the runs are told by is kept as JSON.
        dated = next((key for key, values in over.items() if not _is_json(values)), None)
        if dated is not None:
            raise ValueError(f"give {dated!r} numbers, texts, lists or sections, and quote dates")
        return over

    @model_validator(mode="after")
    def _varies(self) -> "Sweep":
        if not self.variants and not self.starts and not self.over:
            raise ValueError("name `variants`, or keys and their values under `over`")
        if self.variants and self.starts:
            raise ValueError("name `variants` or `starts`, not both")
        if self.starts and _START in self.over:
            raise ValueError(f"leave {_START!r} out of `over`, as `starts` says it")
        own = next((key for key in _OWN if key in self.over), None)
        if own is not None:
            raise ValueError(f"leave {own!r} out of `over`, as the sweep sets it")
        given = next((key for one in (self.settings, *self.variants.values()) for key in one if key == "name"), None)
        if given is not None:
            raise ValueError("leave 'name' out of `settings` and `variants`, as the sweep names its runs")
        both = next((key for key in self.over for settings in self.variants.values() if _meets(key, settings)), None)
        if both is not None:
            raise ValueError(f"leave {both!r} out of `over` or of the variants")
        inside = next((key for key in self.over if any(key.startswith(f"{other}.") for other in self.over)), None)
        if inside is not None:
            raise ValueError(f"leave {inside!r} out of `over`, or the section that it is a key of")
        named = [] if self.choose is None else [*self.choose.keys, *self.choose.repeats]
        unknown = next((key for key in named if key not in self.over or named.count(key) > 1), None)
        if unknown is not None:
            raise ValueError(f"choose among keys of 'over', each once, and not {unknown!r}")
        return self


class Cell(NamedTuple):
    """One run of a sweep: the name of its `variant`, if it has one, the values of the varied keys, and its recipe."""

    settings: Mapping[str, Any]
    recipe: Recipe


def load_sweep(path: Path) -> Sweep:
    """Read and check a sweep.

    Raises:
        RecipeError: not YAML, an unknown key, or a value of the wrong kind.
    """
    raw = read_yaml(path)
    try:
        return Sweep.model_validate(raw)
    except ValidationError as error:
        raise RecipeError(one_sentence(error, Sweep, path)) from error


def cells_of(sweep: Sweep, path: Path) -> list[Cell]:
    """The runs of a sweep, each recipe checked.

    Args:
        sweep: what is varied.
        path: its file; the recipe, and the sweeps that it starts from, are looked for beside it.

    Raises:
        RecipeError: a recipe that cannot be, two runs or starts of one name, or a sweep that starts from itself.
    """
    return _cells(sweep, path, above=())


def _cells(sweep: Sweep, path: Path, *, above: tuple[Path, ...]) -> list[Cell]:
    base, cells = path.parent / sweep.recipe, []
    name = load_recipe(base).name
    variants = _starts(sweep, path, above=(*above, path.resolve())) if sweep.starts else sweep.variants
    for settings in _combinations({"variant": list(variants), **sweep.over} if variants else sweep.over):
        varied = {key: value for key, value in settings.items() if key in sweep.over}
        variant = variants[settings["variant"]] if variants else {}
        values = {**_layers(sweep.settings, variant, varied), "name": "-".join([name, *map(_word, settings.values())])}
        texts = {key: yaml.safe_dump(value, default_flow_style=True) for key, value in values.items()}
        cells.append(Cell(settings, load_recipe(base, settings=texts)))
    names = Counter(cell.recipe.name for cell in cells)
    twice = next((name for name, times in names.items() if times > 1), None)
    if twice is not None:
        raise RecipeError(f"expected runs of different names in {path}, got {twice!r} twice; remove one of the values")
    return cells


def _starts(sweep: Sweep, path: Path, *, above: tuple[Path, ...]) -> dict[str, dict[str, Any]]:
    """What the runs of other sweeps write, as variants."""
    variants: dict[str, dict[str, Any]] = {}
    for file in sweep.starts:
        other = path.parent / file
        if other.resolve() in above:
            raise RecipeError(
                f"expected other sweeps under `starts` in {path}, got {file}, which leads back to itself; remove it"
            )
        started = load_sweep(other)
        for cell in _cells(started, other, above=above):
            name = "-".join(map(str, cell.settings.values()))
            if name in variants:
                raise RecipeError(
                    f"expected starts of different names in {path}, got {name!r} twice; rename it in {other.name}"
                )
            variants[name] = {_START: f"{started.name}/{cell.recipe.name}/model"}
    return variants


def collect(cells: list[Cell], folder: Path) -> list[dict[str, Any]]:
    """What the finished runs of a sweep say: settings, folder and summary of each; also kept in `sweep.json`."""
    found = []
    for cell in cells:
        summary = read_summary(folder / cell.recipe.name)
        if summary is not None:
            found.append({"name": cell.recipe.name, "settings": dict(cell.settings), "summary": summary})
    with written_whole(folder / "sweep.json") as partial:
        partial.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found


def _combinations(over: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    for values in itertools.product(*over.values()):
        yield dict(zip(over, values, strict=True))


def _layers(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Settings in the order in which they are to be set: later layers last, and in each a section before its keys."""
    values: dict[str, Any] = {}
    for layer in layers:
        for key in sorted(layer, key=lambda key: key.count(".")):
            # Not at the place that it had in the layer before.
            values.pop(key, None)
            values[key] = layer[key]
    return values


def _meets(key: str, settings: Mapping[str, Any]) -> bool:
    """Whether settings hold a key, or one inside the section that it is: of these the section would leave nothing."""
    return any(other == key or other.startswith(f"{key}.") for other in settings)


def _is_json(values: list[Any]) -> bool:
    try:
        json.dumps(values)
    except (TypeError, ValueError):
        return False
    return True


def _word(value: Any) -> str:
    """A value as a part of a folder's name."""
    text = json.dumps(value) if isinstance(value, dict | list) else str(value)
    return "".join(mark if mark.isalnum() or mark in "._-" else "_" for mark in text)
