"""What the verbs of `narrows inspect` share: options of a pyramid, and the console."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["LocalRadius", "NumLevels", "PoolingRate", "Variant", "console"]

Variant = Annotated[
    Literal["fixed", "dynamic"] | None,
    typer.Option(
        "--variant", help="Levels: a fixed number, or as many as the whole text needs (mulla).", show_default="dynamic"
    ),
]
LocalRadius = Annotated[
    int | None,
    typer.Option("--local-radius", help="Keys that a query sees to each side, at every level.", show_default="127"),
]
PoolingRate = Annotated[
    int | None,
    typer.Option(
        "--pooling-rate",
        help="Slots of a level that one of the next covers (mulla).",
        show_default="8 when dynamic, 4 when fixed",
    ),
]
NumLevels = Annotated[
    int | None, typer.Option("--num-levels", help="Levels of the fixed variant (mulla).", show_default="3")
]


def console() -> "Console":
    """For people, on stdout: lines as they are, however long."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
