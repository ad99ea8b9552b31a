"""`narrows sweep RECIPE --ratios …`: a grid over bottleneck ratios, made of one recipe, and its tables."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from narrows.errors import UsageError

if TYPE_CHECKING:
    from narrows.training.ratios import Grid
    from narrows.training.sweep import Cell

__all__ = ["Heads", "Lengths", "Match", "Ratios", "Seeds", "read_grid", "show_ratios"]

_PANEL = "Of bottleneck ratios, with a recipe in the place of sweeps"
Ratios = Annotated[
    str | None,
    typer.Option("--ratios", help="Such as 2,4,8: beside the full model, these.", rich_help_panel=_PANEL),
]
Heads = Annotated[
    str | None,
    typer.Option(
        "--heads",
        help="Numbers of heads in the bottleneck, such as 1,2; as many as are 64, else 32 wide.",
        rich_help_panel=_PANEL,
    ),
]
Match = Annotated[
    str | None,
    typer.Option(
        "--match",
        help="What a narrow model has like the full one: width, and parameters or flops by wider feed-forward layers.",
        show_default="width,parameters,flops",
        rich_help_panel=_PANEL,
    ),
]
Lengths = Annotated[
    str | None,
    typer.Option("--lengths", help="Tokens of a row, such as 512,1024; else the recipe's.", rich_help_panel=_PANEL),
]
Seeds = Annotated[
    int | None,
    typer.Option("--seeds", help="Runs of each model.", show_default="3", rich_help_panel=_PANEL),
]


def read_grid(
    ratios: str | None, heads: str | None, match: str | None, lengths: str | None, seeds: int | None
) -> "Grid | None":
    """The grid that was asked for; None without `--ratios`.

    Raises:
        UsageError: a list that is none, or one of the others without `--ratios`.
    """
    others = {"heads": heads, "match": match, "lengths": lengths, "seeds": seeds}
    if ratios is None:
        alone = next((name for name, value in others.items() if value is not None), None)
        if alone is not None:
            raise UsageError(f"expected --ratios beside --{alone}, got --{alone} alone; add it or leave this out")
        return None
    from narrows.training.ratios import MATCHES, Grid

    return Grid(
        ratios=[int(one) if one == int(one) else one for one in _numbers(ratios, "ratios", float)],
        heads=[] if heads is None else _numbers(heads, "heads", int),
        matches=MATCHES if match is None else [name.strip() for name in match.split(",")],  # type: ignore[arg-type]
        lengths=[] if lengths is None else _numbers(lengths, "lengths", int),
        seeds=3 if seeds is None else seeds,
    )


def _numbers(text: str, name: str, kind: type) -> list[Any]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError as error:
        raise UsageError(
            f"expected numbers with commas between them for --{name}, such as 2,4,8, got {text!r}; mend it"
        ) from error


def show_ratios(
    cells: "list[Cell]", folder: Path, data: Path, report: Path | None, plot: Path | None, *, show: bool
) -> None:
    """Score the runs on their test text; show, keep and draw what they found."""
    from narrows.bench.ratios import find, ratio_table, rule_table, save_findings, score

    score(cells, data=data, folder=folder)
    findings = find(cells, folder)
    for table in (ratio_table(findings), rule_table(findings)) if show else ():
        typer.echo()
        typer.echo(table, nl=False)
    if report is not None:
        save_findings(report, findings)
    if plot is not None:
        from narrows.bench.ratios_plot import write_plot

        write_plot(plot, findings)
