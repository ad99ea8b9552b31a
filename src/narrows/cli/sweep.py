"""`narrows sweep`: a recipe in several variants, under every combination of some settings."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from narrows._plural import count
from narrows.cli import options
from narrows.errors import UsageError

if TYPE_CHECKING:
    from narrows.training.sweep import Cell

__all__ = ["command"]


def command(
    sweep: Annotated[Path, typer.Argument(help="YAML file: a recipe, and the values its keys take.")],
    data: Annotated[
        Path | None,
        typer.Option("--data", envvar="NARROWS_DATA", help="Folder that the recipe's files lie in."),
    ] = None,
    runs: Annotated[
        Path,
        typer.Option("--runs", envvar="NARROWS_RUNS", help="Folder of runs; the sweep has one of its name there."),
    ] = Path("runs"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the runs and their sizes, and stop.")] = False,
    report: Annotated[
        Path | None, typer.Option("--report", help="Of planted facts: keep accuracy by distance and length here.")
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Of planted facts: draw it, a PNG.")] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a recipe in several variants, under every combination of some settings, one run after another.

    The same command goes on where a sweep was stopped (Ctrl-C or SIGTERM saves first). What the finished runs
    say is kept in RUNS/NAME/sweep.json. With `choose` in the sweep, the best values by tune data are scored on
    the test data once, in RUNS/NAME/chosen.json.
    """
    if data is None:
        raise UsageError("expected a data folder, got none; pass --data DIR or set NARROWS_DATA")

    from narrows.training.sweep import cells_of, collect, load_sweep

    loaded = load_sweep(sweep)
    cells, folder = cells_of(loaded, sweep), runs / loaded.name
    _check_places(cells, folder, report, plot)
    console = options.stderr_console(quiet=quiet)
    if dry_run:
        found: list[dict[str, Any]] = [_plan(cell, data, runs) for cell in cells]
    else:
        for number, cell in enumerate(cells, 1):
            console.print(f"run {number} of {len(cells)}: {cell.recipe.name}", markup=False)
            _train(cell, data, runs, folder, sweep, quiet=quiet)
        found = collect(cells, folder)
    chosen = None
    if loaded.choose is not None and not dry_run:
        from narrows.training.choosing import choose_runs, score_choices

        chosen = score_choices(choose_runs(cells, loaded.choose, folder), data=data, folder=folder)
    if json:
        options.emit_json({"name": loaded.name, "runs": found, **({} if chosen is None else {"chosen": chosen})})
        return
    for run in found:
        _show(run)
    for choice in chosen or []:
        _show_choice(choice)
    if not dry_run and _is_planted(cells):
        _show_findings(cells, folder, loaded.name, report, plot)


def _show_choice(choice: dict[str, Any]) -> None:
    values = ", ".join(f"{key} {value}" for key, value in {**choice["settings"], **choice["chosen"]}.items())
    typer.echo(f"chosen on tune data: {values}")
    for name, test in choice["test"].items():
        spread = ", ".join(f"{run['mean']:.2f} [{run['low']:.2f}, {run['high']:.2f}]" for run in test["runs"])
        typer.echo(
            f"  test {name}: mean {test['mean']:.2f}, always the commonest {test['majority']:.2f}; runs {spread}"
        )


def _is_planted(cells: "list[Cell]") -> bool:
    return all(cell.recipe.task == "planted-facts" for cell in cells)


def _check_places(cells: "list[Cell]", folder: Path, report: Path | None, plot: Path | None) -> None:
    """Refuse before hours of training what could not be written after them."""
    if report is not None or plot is not None:
        from narrows.bench.planted import find

        find(cells, folder)
    if report is not None and not report.parent.is_dir():
        raise UsageError(f"expected a folder to write to, got {report.parent}, which is none; make it first")
    if plot is not None:
        from narrows.inspection.plot import check_place

        check_place(plot)


def _show_findings(cells: "list[Cell]", folder: Path, name: str, report: Path | None, plot: Path | None) -> None:
    from narrows.bench.planted import distance_table, find, length_table, save_findings

    findings = find(cells, folder)
    lengths = sorted({row.length for finding in findings for row in finding.accuracies})
    for table in (length_table(findings), *(distance_table(findings, length) for length in lengths)):
        typer.echo()
        typer.echo(table, nl=False)
    if report is not None:
        save_findings(report, name, findings)
    if plot is not None:
        from narrows.bench.planted_plot import write_plot

        write_plot(plot, findings)


def _plan(cell: "Cell", data: Path, runs: Path) -> dict[str, Any]:
    from narrows.training.tasks import plan_run

    return {"name": cell.recipe.name, "settings": cell.settings, "plan": plan_run(cell.recipe, data=data, runs=runs)}


def _train(cell: "Cell", data: Path, runs: Path, folder: Path, sweep: Path, *, quiet: bool) -> None:
    from transformers.utils import logging

    from narrows.training.run import train

    logging.disable_progress_bar()
    output = folder / cell.recipe.name
    command_line = shlex.join(["narrows", "sweep", sweep.name])
    if train(cell.recipe, data=data, output=output, quiet=quiet, runs=runs, command=command_line) is None:
        options.stderr_console(quiet=quiet).print(f"stopped and saved in {output}; the same command goes on")
        raise typer.Exit(130)


def _show(run: dict[str, Any]) -> None:
    settings = ", ".join(f"{key} {value}" for key, value in run["settings"].items())
    if "plan" in run:
        plan = run["plan"]
        size = (
            f"{count(plan.rows, 'row')} of {count(plan.tokens, 'token')} an epoch, {count(plan.steps, 'step')} in all"
        )
        typer.echo(f"{settings}: {size}")
        return
    scores = ", ".join(f"{name} {value:.2f}" for name, value in run["summary"]["tune"].items() if name != "epoch")
    typer.echo(f"{settings}: {scores}")
