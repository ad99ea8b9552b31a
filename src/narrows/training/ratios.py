"""Sweeps over bottleneck ratios, made of a recipe: the plain model, each ratio with its heads, matched by cost."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast, get_args

from narrows._plural import count
from narrows.bottleneck.config import BottleneckConfig
from narrows.bottleneck.cost import matched, model_cost
from narrows.errors import UsageError
from narrows.training.language.recipe import LanguageRecipe
from narrows.training.recipe import load_recipe
from narrows.training.sweep import Sweep

__all__ = ["FULL", "MATCHES", "Grid", "Match", "Point", "point_of", "ratio_sweep"]

Match = Literal["width", "parameters", "flops"]
MATCHES: tuple[Match, ...] = get_args(Match)
"""What a narrow model has in common with the full one: only its width, or also its parameters or its arithmetic, by
wider feed-forward layers."""

FULL = "full"
_SEED, _CONFIG = "optimiser.seed", "model.config"
_FAMILY = BottleneckConfig.model_type


class Grid(NamedTuple):
    """What is swept over.

    Attributes:
        ratios: of the bottleneck, above 1; the full model, which is ratio 1, always belongs to it.
        heads: numbers of heads in the bottleneck; none: as many as are 64, else 32 wide.
        matches: of `MATCHES`. Those by cost are of the first number of heads alone.
        lengths: tokens of a row; none: the recipe's.
        seeds: how many, from the recipe's own on.
    """

    ratios: Sequence[float]
    heads: Sequence[int] = ()
    matches: Sequence[Match] = ("width",)
    lengths: Sequence[int] = ()
    seeds: int = 3


class Point(NamedTuple):
    """One model of a grid.

    Attributes:
        ratio: 1 of the full one.
        heads: in the bottleneck, or of the full one.
        match: what it has in common with the full one.
        length: tokens of a row.
        macs: multiplications and additions of the layers for a row.
        parameters: of the layers.
    """

    ratio: float
    heads: int
    match: str
    length: int
    macs: int
    parameters: int


def ratio_sweep(path: Path, grid: Grid) -> Sweep:
    """The sweep that a recipe becomes.

    Args:
        path: of a recipe of a causal language model of bottleneck layers.
        grid: what is swept over.

    Raises:
        RecipeError: no recipe.
        UsageError: one of another model, or numbers out of their range.
    """
    recipe = load_recipe(path)
    if not isinstance(recipe, LanguageRecipe) or recipe.model.family != _FAMILY:
        family = getattr(recipe.model, "family", None) if isinstance(recipe, LanguageRecipe) else None
        got = f"the task {recipe.task}" if not isinstance(recipe, LanguageRecipe) else f"the family {family}"
        raise UsageError(
            f"expected a recipe of a causal-lm of the family {_FAMILY} with --ratios, got {got} in {path}; name another"
        )
    _require_numbers(grid)
    variants: dict[str, dict[str, Any]] = {}
    for length in grid.lengths or (recipe.data.length,):
        suffix = f"-{length}" if grid.lengths else ""
        rows = _row_settings(recipe, length) if grid.lengths else {}
        variants[f"{FULL}{suffix}"] = {f"{_CONFIG}.layer_pattern": "full", **rows}
        for ratio, match in itertools.product(grid.ratios, grid.matches):
            for heads in (grid.heads or (None,)) if match == "width" else (grid.heads or (None,))[:1]:
                config = _config(recipe, ratio, heads)
                name = (
                    f"r{ratio:g}" + ("" if heads is None else f"-h{heads}") + ("" if match == "width" else f"-{match}")
                )
                own: dict[str, Any] = {f"{_CONFIG}.bottleneck_ratio": ratio}
                if heads is not None:
                    own[f"{_CONFIG}.bottleneck_heads"] = heads
                if match != "width":
                    full = _config(recipe, 1, None, layer_pattern="full")
                    own[f"{_CONFIG}.intermediate_size"] = matched(
                        config, full, by=cast(Any, match), length=length
                    ).intermediate_size
                variants[f"{name}{suffix}"] = {**own, **rows}
    first = recipe.optimiser.seed
    return Sweep(
        name=f"{recipe.name}-ratios",
        recipe=path.name,
        variants=variants,
        over={_SEED: list(range(first, first + grid.seeds))},
    )


def point_of(recipe: LanguageRecipe, *, match: str) -> Point:
    """Where a run of such a sweep stands.

    Args:
        recipe: of the run.
        match: what its variant's name says of it.
    """
    config = BottleneckConfig(**recipe.model.config)
    cost = model_cost(config, length=recipe.data.length)
    is_full = set(config.kinds) <= {"full", "window"}
    heads = cast(int, config.num_attention_heads) if is_full else config.inner_heads
    ratio = 1.0 if is_full else config.hidden_size / config.inner_size
    return Point(ratio, heads, match, recipe.data.length, cost.macs, cost.parameters)


def _config(recipe: LanguageRecipe, ratio: float, heads: int | None, **changes: Any) -> BottleneckConfig:
    fields: dict[str, Any] = {**recipe.model.config, "bottleneck_ratio": ratio, "bottleneck_size": None, **changes}
    return BottleneckConfig(**fields if heads is None else {**fields, "bottleneck_heads": heads})


def _row_settings(recipe: LanguageRecipe, length: int) -> dict[str, Any]:
    """Rows of another length, with as large a part of each scored, and not fewer tokens a step than one row."""
    settings: dict[str, Any] = {"data.length": length}
    if recipe.evaluate.stride is not None:
        settings["evaluate.stride"] = max(1, round(recipe.evaluate.stride * length / recipe.data.length))
    if recipe.optimiser.batch_tokens < length:
        settings["optimiser.batch_tokens"] = length
    return settings


def _require_numbers(grid: Grid) -> None:
    for name, values, least in (("ratios", grid.ratios, 1), ("heads", grid.heads, 1), ("lengths", grid.lengths, 2)):
        wrong = next((value for value in values if value < least or (name == "ratios" and value == least)), None)
        if wrong is not None:
            raise UsageError(
                f"expected --{name} {'above' if name == 'ratios' else 'from'} {least}, got {wrong:g}; leave it out"
            )
        if len(set(values)) < len(values):
            raise UsageError(f"expected each of --{name} once, got {', '.join(f'{one:g}' for one in values)}; mend it")
    if not grid.ratios or not grid.matches:
        raise UsageError("expected at least one of --ratios and of --match, got none; name one")
    unknown = next((match for match in grid.matches if match not in MATCHES), None)
    if unknown is not None:
        raise UsageError(f"expected --match of {', '.join(MATCHES)}, got {unknown!r}; choose among them")
    if grid.seeds < 1:
        raise UsageError(f"expected at least {count(1, 'seed')}, got {grid.seeds}; raise --seeds")
