"""Two sets of choices: the article's, and the one that measures best here (docs/bottleneck.md)."""

from typing import Any

from narrows.bottleneck.config import BottleneckConfig
from narrows.errors import UsageError

__all__ = ["PRESETS", "article_ratio", "preset"]

# Above it the article narrows by 4, up to it by 2.
_LONG = 1024


def article_ratio(length: int) -> int:
    """The article's rule: 2 up to 1,024 tokens, 4 above.

    Example:
        >>> article_ratio(1024), article_ratio(1025)
        (2, 4)
    """
    return 2 if length <= _LONG else 4


def _article(length: int) -> dict[str, Any]:
    return {
        "bottleneck_ratio": article_ratio(length),
        "bottleneck_heads": 8,
        "bottleneck_kernel": 0,
        "bottleneck_inner_residual": False,
        "norm_position": "post",
        "initializer": "article",
    }


def _narrows(length: int) -> dict[str, Any]:
    # A layer of full attention in four, and five tokens mixed before attention, keep most of what narrowness loses.
    return {"layer_pattern": "bottleneck,bottleneck,bottleneck,full", "bottleneck_kernel": 5}


def _full(length: int) -> dict[str, Any]:
    return {"layer_pattern": "full"}


_FIELDS = {"article": _article, "full": _full, "narrows": _narrows}
PRESETS = tuple(_FIELDS)
"""`article`: as printed, with what it lacks (positions, a causal mask); `narrows`; `full`: the plain Transformer."""


def preset(name: str, *, length: int, **changes: Any) -> BottleneckConfig:
    """The config of a set of choices.

    Args:
        name: of `PRESETS`.
        length: tokens of a text, by which the article chooses its ratio.
        changes: fields of `BottleneckConfig` in the place of the preset's.

    Raises:
        UsageError: an unknown name or field, or a value out of its range.

    Example:
        >>> config = preset("article", length=2048, hidden_size=512)
        >>> config.inner_size, config.inner_heads, config.norm_position
        (128, 8, 'post')
    """
    if name not in _FIELDS:
        raise UsageError(f"expected a preset, one of {', '.join(PRESETS)}, got {name!r}; choose one of them")
    unknown = sorted(set(changes) - set(BottleneckConfig.__dataclass_fields__))
    if unknown:
        raise UsageError(
            f"expected fields of BottleneckConfig, got {', '.join(unknown)}; see its documentation for their names"
        )
    return BottleneckConfig(**{**_FIELDS[name](length), **changes})
