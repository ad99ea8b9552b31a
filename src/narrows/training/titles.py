"""The part of a split that a recipe takes."""

from pathlib import Path
from typing import Protocol

from narrows.data import read_split
from narrows.errors import UsageError

__all__ = ["titles_of"]


class _WithSplit(Protocol):
    @property
    def split(self) -> str | None: ...
    @property
    def part(self) -> str | None: ...


def titles_of(part: _WithSplit, folder: Path) -> frozenset[str] | None:
    """The titles (or ids), normalised, that `part.split` lists under `part.part`; None where all are taken.

    Args:
        part: of a recipe.
        folder: of the data.

    Raises:
        UsageError: a file that is no split, or without that part.

    Example:
        `read_squad(folder / part.file, titles=titles_of(part, folder))`
    """
    if part.split is None:
        return None
    parts = read_split(folder / part.split)
    if part.part not in parts:
        raise UsageError(f"expected `part` to be one of {', '.join(parts)}, got {part.part!r}; mend the recipe")
    return parts[part.part]
