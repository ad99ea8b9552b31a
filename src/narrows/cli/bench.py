"""`narrows bench`: measure a family beside its peers, behind a correctness gate."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from narrows.cli import options
from narrows.errors import UsageError

if TYPE_CHECKING:
    from narrows.bench.runner import Line

# Columns of a table that no terminal folds.
_WIDE = 200


def command(
    family: Annotated[str, typer.Argument(help="What to measure: bottleneck, deformer, funnel or mulla.")],
    quick: Annotated[
        bool,
        typer.Option("--quick", help="End within 50 seconds: smaller sizes, the rest from the last full run."),
    ] = False,
    rows: Annotated[
        str, typer.Option("--rows", help="Rows to measure, by name, with commas and `*`.", show_default="all")
    ] = "",
    models: Annotated[str, typer.Option("--models", help="Other checkpoints to score: NAME=FOLDER, with commas.")] = "",
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder of data sets (squad/).", envvar="NARROWS_DATA")
    ] = None,
    examples: Annotated[Path, typer.Option("--examples", help="Folder with library/ and questions.jsonl.")] = Path(
        "examples"
    ),
    results: Annotated[Path, typer.Option("--results", help="Folder of the results files.")] = Path(
        "benchmarks/results"
    ),
    rounds: Annotated[
        int | None, typer.Option("--rounds", min=1, max=10_000, help="Repeats of each timing.", show_default="by row")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="mulla: draw time and memory from short to long, a PNG.")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="Where to compute; cpu is the one there is.")] = "cpu",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure time, memory and quality of a family beside its peers.

    A correctness gate runs first: when a check fails, nothing is measured. Ours and the peers are timed in
    turn, and a value is the median of pairwise ratios. Full runs are kept in benchmarks/results/FAMILY.json.
    The exit code is 1 when a row falls short of its bar.
    """
    import time

    began = time.monotonic()
    from narrows.bench.registry import FAMILIES

    if family not in FAMILIES:
        raise UsageError(
            f"expected a family to measure, one of {', '.join(FAMILIES)}, got {family!r}; choose one of these"
        )
    if device != "cpu":
        raise UsageError(f"expected --device cpu for {family}, got {device!r}; its bars are for a CPU, leave it out")
    from narrows.bench.rows import Context
    from narrows.bench.runner import run

    if plot is not None:
        _check_plot(family, plot)
    _quieten()
    console = options.stderr_console(quiet=quiet)
    context = Context(
        data=data,
        examples=examples,
        models=_models(models),
        rounds=rounds,
        say=lambda text: console.print(text),
    )
    only = [name.strip() for name in rows.split(",") if name.strip()]
    lines = run(family, context, quick=quick, only=only, folder=results, began=began)
    if plot is not None:
        from narrows.bench.curve_plot import write_curves
        from narrows.bench.results import load_results, results_file

        write_curves(plot, load_results(results_file(results, family))["rows"])
    if json:
        options.emit_json({"rows": lines})
    else:
        _show(lines)
    if any(line.holds is False for line in lines):
        raise typer.Exit(1)


def _check_plot(family: str, plot: Path) -> None:
    """Refuse a picture that could not be drawn before anything is measured."""
    if family != "mulla":
        raise UsageError(f"expected no --plot for {family}, got {plot}; only mulla has rows from short to long")
    from narrows.inspection.plot import check_place

    check_place(plot)


def _models(named: str) -> dict[str, Path]:
    models = {}
    for part in filter(None, (part.strip() for part in named.split(","))):
        name, mark, folder = part.partition("=")
        if not (name and mark and folder):
            raise UsageError(f"expected --models NAME=FOLDER,…, got {part!r}; give each folder a name")
        models[name] = Path(folder)
    return models


def _quieten() -> None:
    """No remarks of the libraries that are measured: stderr says what is being measured."""
    import warnings

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.filterwarnings("ignore", message=".*torch.ao.quantization is deprecated.*")
    warnings.filterwarnings("ignore", message=".*quantiz.*", category=UserWarning)
    warnings.filterwarnings("ignore", message=".*gradient_checkpointing.*", category=FutureWarning)
    from transformers.utils import logging

    logging.disable_progress_bar()


def _show(lines: "list[Line]") -> None:
    from rich.console import Console
    from rich.table import Table

    from narrows.bench.report import number

    table = Table("row", "value", "bar", "", "beside", "spread", "arithmetic", "measured")
    table.columns[0].no_wrap = True
    marks = {True: "[green]holds[/]", False: "[red]short[/]", None: ""}
    sides = {"at least": "≥", "at most": "≤", "below": "<"}
    for line in lines:
        table.add_row(
            line.name.replace("[", "\\["),
            f"{number(line.value)} {line.unit}",
            "" if line.bar is None else f"{sides[line.side]} {number(line.bar)}",
            marks[line.holds],
            line.peer,
            "" if line.spread is None else " … ".join(number(end) for end in line.spread),
            "" if line.arithmetic is None else number(line.arithmetic),
            "now" if line.measured else f"{(line.date or 'never')[:10]} {(line.commit or '')[:10]}",
        )
    # Where no terminal says how wide it is, as in a pipe, nothing is folded.
    Console(width=None if sys.stdout.isatty() else _WIDE).print(table)
    carried: dict[str, list[str]] = {}
    for line in lines:
        if not line.measured and line.note:
            carried.setdefault(line.note, []).append(line.name)
    for note, names in carried.items():
        typer.echo(f"not measured now ({note}): {', '.join(names)}")
