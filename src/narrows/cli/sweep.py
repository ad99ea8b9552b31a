"""`narrows sweep`: a recipe in several variants, under every combination of some settings; and a queue of such."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from narrows._plural import count
from narrows.cli import options
from narrows.cli.sweep_ratios import Heads, Lengths, Match, Ratios, Seeds, read_grid, show_ratios
from narrows.cli.train import require_starts
from narrows.errors import UsageError

if TYPE_CHECKING:
    from narrows.training.queue import Queued
    from narrows.training.sweep import Cell, Sweep

__all__ = ["command"]

_TEN = 10


class _Loaded(NamedTuple):
    """A sweep with its file, its runs and the folder they lie in."""

    path: Path
    sweep: "Sweep"
    cells: "list[Cell]"
    folder: Path


def command(
    sweeps: Annotated[
        list[Path], typer.Argument(help="YAML files: a recipe, and the values its keys take; one after another.")
    ],
    data: Annotated[
        Path | None,
        typer.Option("--data", envvar="NARROWS_DATA", help="Folder that the recipe's files lie in."),
    ] = None,
    runs: Annotated[
        Path,
        typer.Option("--runs", envvar="NARROWS_RUNS", help="Folder of runs; a sweep has one of its name there."),
    ] = Path("runs"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the runs and their sizes, and stop.")] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            help="Keep figures here: of sweeps that choose, test scores by task; of planted facts, accuracy by "
            "distance and length; of ratios, cost and perplexity.",
        ),
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Of planted facts or ratios: draw it, a PNG.")] = None,
    ratios: Ratios = None,
    heads: Heads = None,
    match: Match = None,
    lengths: Lengths = None,
    seeds: Seeds = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a recipe in several variants, under every combination of some settings, one run after another.

    The same command goes on where a sweep was stopped (Ctrl-C or SIGTERM saves first). What the finished runs
    say is kept in RUNS/NAME/sweep.json. With `choose` in the sweep, the best values by tune data are scored on
    the test data once, in RUNS/NAME/chosen.json. Several sweeps are a queue, in which one may start from what
    one before it writes; with --json one gives an object, several give {"sweeps": [...]}.

    With --ratios a recipe of a byte or word model (`task: causal-lm`, family narrows-bottleneck) is trained as the
    full Transformer and with each ratio; what each costs and loses is told, and which lose no more than 5 %.
    """
    if data is None:
        raise UsageError("expected a data folder, got none; pass --data DIR or set NARROWS_DATA")

    from narrows.training.queue import read_queue
    from narrows.training.sweep import cells_of, load_sweep

    grid = read_grid(ratios, heads, match, lengths, seeds)
    if grid is not None and len(sweeps) > 1:
        raise UsageError(f"expected one recipe with --ratios, got {len(sweeps)}; sweep them one by one")
    # All of them before the first run: a mistake in the last one shows now, not tomorrow.
    loaded = []
    for path in sweeps:
        sweep = load_sweep(path) if grid is None else _ratio_sweep(path, grid)
        loaded.append(_Loaded(path, sweep, cells_of(sweep, path), runs / sweep.name))
    _check_names([one.sweep.name for one in loaded])
    recipes = {f"{one.sweep.name}/{cell.recipe.name}": cell.recipe for one in loaded for cell in one.cells}
    queue = dict(zip(recipes, read_queue(recipes, runs), strict=True))
    for queued in queue.values():
        require_starts(queued, runs)
    if grid is None:
        _check_kinds(loaded, report, plot)
    _check_places(loaded, report, plot)
    given = {"--ratios": ratios, "--heads": heads, "--match": match, "--lengths": lengths, "--seeds": seeds}
    chosen = [word for name, value in given.items() if value is not None for word in (name, str(value))]
    line = shlex.join(["narrows", "sweep", *(path.name for path in sweeps), *chosen])
    found = []
    for one in loaded:
        found.append(_plans(one, queue, data, runs) if dry_run else _make(one, data, runs, line, quiet=quiet))
    if json:
        options.emit_json(found[0] if len(found) == 1 else {"sweeps": found})
    else:
        for result in found:
            _show(result, named=len(found) > 1)
    if dry_run:
        return
    if grid is not None:
        show_ratios(loaded[0].cells, loaded[0].folder, data, report, plot, show=not json)
    else:
        _show_findings(loaded, runs, report, plot, show=not json)


def _check_names(names: Sequence[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"expected sweeps of different names, got {twice!r} twice; rename one of them")


def _choosing(loaded: Sequence[_Loaded]) -> "list[tuple[Sweep, list[Cell]]]":
    return [(one.sweep, one.cells) for one in loaded if one.sweep.choose is not None]


def _is_planted(one: _Loaded) -> bool:
    return all(cell.recipe.task == "planted-facts" for cell in one.cells)


def _ratio_sweep(path: Path, grid: Any) -> "Sweep":
    from narrows.training.ratios import ratio_sweep

    return ratio_sweep(path, grid)


def _check_kinds(loaded: Sequence[_Loaded], report: Path | None, plot: Path | None) -> None:
    """Refuse before hours of training sweeps that could not be reported or drawn after them."""
    if report is not None and (len(loaded) > 1 or _choosing(loaded)):
        from narrows.bench.layouts import check

        check(_choosing(loaded))
    if plot is not None and len(loaded) > 1:
        raise UsageError(f"expected one sweep with --plot, got {len(loaded)}; draw them one by one")
    if plot is not None or (report is not None and len(loaded) == 1 and not _choosing(loaded)):
        from narrows.bench.planted import find

        find(loaded[0].cells, loaded[0].folder)


def _check_places(loaded: Sequence[_Loaded], report: Path | None, plot: Path | None) -> None:
    """Refuse before hours of training what could not be written after them."""
    if report is not None:
        from narrows.bench.kept import check_report

        check_report(report, "tasks" if _choosing(loaded) else "findings", [one.folder for one in loaded])
    if plot is not None:
        from narrows.inspection.plot import check_place

        check_place(plot)


def _plans(one: _Loaded, queue: "Mapping[str, Queued]", data: Path, runs: Path) -> dict[str, Any]:
    """What the runs of a sweep would be."""
    from narrows.hf.register import register_all
    from narrows.training.tasks import plan_run

    register_all()
    found = []
    for cell in one.cells:
        queued = queue[f"{one.sweep.name}/{cell.recipe.name}"]
        plan = None if queued.counted is None else plan_run(queued.counted, data=data, runs=runs)
        run = {"name": cell.recipe.name, "settings": cell.settings, "plan": plan}
        found.append({**run, "awaits": queued.awaits} if queued.awaits else run)
    return {"name": one.sweep.name, "runs": found}


def _make(one: _Loaded, data: Path, runs: Path, line: str, *, quiet: bool) -> dict[str, Any]:
    """Train the runs of a sweep, and score the chosen ones; what they say."""
    from narrows.training.sweep import collect

    console = options.stderr_console(quiet=quiet)
    for number, cell in enumerate(one.cells, 1):
        console.print(f"{one.sweep.name}, run {number} of {len(one.cells)}: {cell.recipe.name}", markup=False)
        _train(cell, data, runs, one.folder, line, quiet=quiet)
    found: dict[str, Any] = {"name": one.sweep.name, "runs": collect(one.cells, one.folder)}
    if one.sweep.choose is not None:
        from narrows.training.choosing import choose_runs, score_choices

        choices = choose_runs(one.cells, one.sweep.choose, one.folder)
        found["chosen"] = score_choices(choices, data=data, folder=one.folder)
    return found


def _train(cell: "Cell", data: Path, runs: Path, folder: Path, line: str, *, quiet: bool) -> None:
    from transformers.utils import logging

    from narrows.training.run import train

    logging.disable_progress_bar()
    output = folder / cell.recipe.name
    if train(cell.recipe, data=data, output=output, quiet=quiet, runs=runs, command=line) is None:
        options.stderr_console(quiet=quiet).print(f"stopped and saved in {output}; the same command goes on")
        raise typer.Exit(130)


def _show(found: dict[str, Any], *, named: bool) -> None:
    if named:
        typer.echo(f"{found['name']}:")
    for run in found["runs"]:
        _show_run(run)
    for choice in found.get("chosen", []):
        _show_choice(choice)


def _show_run(run: dict[str, Any]) -> None:
    settings = ", ".join(f"{key} {value}" for key, value in run["settings"].items())
    if "plan" not in run:
        tune = run["summary"]["tune"]
        scores = ", ".join(f"{name} {_number(value)}" for name, value in tune.items() if name != "epoch")
        typer.echo(f"{settings}: {scores}")
        return
    plan, waits = run["plan"], ", ".join(run.get("awaits", {}).values())
    start = f"starts from {waits}, which is trained before"
    if plan is None:
        typer.echo(f"{settings}: not counted, as it {start}")
        return
    size = f"{count(plan.rows, 'row')} of {count(plan.tokens, 'token')} an epoch, {count(plan.steps, 'step')} in all"
    typer.echo(f"{settings}: {size}{f'; {start}' if waits else ''}")


def _show_choice(choice: dict[str, Any]) -> None:
    values = ", ".join(f"{key} {value}" for key, value in {**choice["settings"], **choice["chosen"]}.items())
    typer.echo(f"chosen on tune data: {values}")
    baseline = choice.get("baseline_is", "always the commonest")
    for name, test in choice["test"].items():
        runs = ", ".join(
            f"{_number(run['mean'])} [{_number(run['low'])}, {_number(run['high'])}]" for run in test["runs"]
        )
        typer.echo(f"  test {name}: mean {_number(test['mean'])}, {baseline} {_number(test['majority'])}; runs {runs}")


def _number(value: float) -> str:
    """Percent as they are shown everywhere; of losses and bits the third decimal tells models apart."""
    return f"{value:.2f}" if abs(value) >= _TEN else f"{value:.3f}"


def _show_findings(
    loaded: Sequence[_Loaded], runs: Path, report: Path | None, plot: Path | None, *, show: bool
) -> None:
    """Show the tables, and keep and draw what they are of."""
    if report is not None and _choosing(loaded):
        _show_tasks(loaded, runs, report, show=show)
        return
    for one in loaded:
        if _is_planted(one):
            _show_planted(one, report, plot, show=show)


def _show_tasks(loaded: Sequence[_Loaded], runs: Path, report: Path, *, show: bool) -> None:
    from narrows.bench.layouts import find, save_findings, task_table

    findings = find(_choosing(loaded), runs)
    save_findings(report, findings)
    if show:
        typer.echo()
        typer.echo(task_table(findings), nl=False)


def _show_planted(one: _Loaded, report: Path | None, plot: Path | None, *, show: bool) -> None:
    from narrows.bench.planted import distance_table, find, length_table, save_findings

    findings = find(one.cells, one.folder)
    lengths = sorted({row.length for finding in findings for row in finding.accuracies})
    tables = (length_table(findings), *(distance_table(findings, length) for length in lengths))
    for table in tables if show else ():
        typer.echo()
        typer.echo(table, nl=False)
    if report is not None:
        save_findings(report, one.sweep.name, findings)
    if plot is not None:
        from narrows.bench.planted_plot import write_plot

        write_plot(plot, findings)
