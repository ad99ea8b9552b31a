"""`narrows train`: a recipe into a model."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from narrows._plural import count
from narrows.cli import options
from narrows.errors import UsageError

if TYPE_CHECKING:
    from narrows.training.queue import Queued
    from narrows.training.tasks import Plan

__all__ = ["command", "require_starts"]


def command(
    recipes: Annotated[list[Path], typer.Argument(help="YAML files of recipes, trained one after another.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Folder of the run (of one recipe); RUNS/NAME by default.", show_default=False
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", envvar="NARROWS_DATA", help="Folder that the recipe's files lie in."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Replace a key of the recipe, as a.b=value; may be repeated."),
    ] = None,
    runs: Annotated[
        Path,
        typer.Option("--runs", envvar="NARROWS_RUNS", help="Folder of runs, where checkpoints are looked for first."),
    ] = Path("runs"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the whole recipe and the size of the run, and stop.")
    ] = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train from a recipe: convert, distil or fine-tune.

    The same command goes on with a run that was stopped (Ctrl-C or SIGTERM saves first), and does nothing
    when it is done: several recipes are a queue that can be stopped and started again. With --json one
    recipe gives an object, several give {"runs": [...]}. A recipe may start from what one before it in the
    queue writes.
    """
    if data is None:
        raise UsageError("expected a data folder, got none; pass --data DIR or set NARROWS_DATA")
    if output is not None and len(recipes) > 1:
        raise UsageError(
            f"expected one recipe with --output, got {len(recipes)}; leave out --output, or pass --runs DIR"
        )

    from narrows.training.queue import read_queue
    from narrows.training.recipe import load_recipe

    # All of them before the first run: a mistake in the last one shows now, not tomorrow.
    loaded = [(path, load_recipe(path, settings=_settings(settings or []))) for path in recipes]
    _check_names([recipe.name for _, recipe in loaded])
    queue = read_queue({recipe.name: recipe for _, recipe in loaded}, runs)
    for queued in queue:
        require_starts(queued, runs)
    if dry_run:
        found = [_dry_run(queued, data, runs, show=not json) for queued in queue]
        if json:
            options.emit_json(found[0] if len(found) == 1 else {"runs": found})
        return
    found = []
    for path, recipe in loaded:
        folder = runs / recipe.name if output is None else output
        found.append(_train(recipe, data, runs, folder, _command_line(path, settings or []), quiet=quiet))
    if json:
        options.emit_json(found[0] if len(found) == 1 else {"runs": found})


def _check_names(names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"expected recipes of different names, got {twice[0]!r} twice; rename one of them")


def require_starts(queued: "Queued", runs: Path) -> None:
    """Refuse a checkpoint that is not there and that no recipe before it writes."""
    from narrows.cli.convert import require_checkpoint
    from narrows.training.tasks import find_checkpoint

    for checkpoint in queued.recipe.checkpoints():
        if checkpoint not in queued.awaits:
            require_checkpoint(find_checkpoint(checkpoint, runs))


def _train(recipe: Any, data: Path, runs: Path, folder: Path, command_line: str, *, quiet: bool) -> dict[str, Any]:
    """Train to the end; what to tell of the run."""
    from transformers.utils import logging

    from narrows.training.run import train

    logging.disable_progress_bar()
    console = options.stderr_console(quiet=quiet)
    model = train(recipe, data=data, output=folder, quiet=quiet, runs=runs, command=command_line)
    if model is None:
        console.print(f"stopped and saved in {folder}; the same command goes on", markup=False)
        raise typer.Exit(130)
    console.print(f"model in {model}", markup=False)
    return {"model": model, **_summary(folder)}


def _settings(pairs: list[str]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"expected --set a.b=value, got {pair!r}; put an equals sign between key and value")
        settings[key] = value
    return settings


def _dry_run(queued: "Queued", data: Path, runs: Path, *, show: bool) -> dict[str, Any]:
    """What a run would be; shown to people, or not."""
    from narrows.hf.register import register_all
    from narrows.training.tasks import plan_run

    # Without it, transformers warns of the model type of a checkpoint that is a DeFormer already.
    register_all()
    plan = None if queued.counted is None else plan_run(queued.counted, data=data, runs=runs)
    if show:
        _show_plan(queued, plan)
    return {"recipe": queued.recipe, "awaits": queued.awaits, "plan": plan}


def _show_plan(queued: "Queued", plan: "Plan | None") -> None:
    import yaml

    typer.echo(yaml.safe_dump(queued.recipe.model_dump(), sort_keys=False, allow_unicode=True).rstrip())
    for checkpoint, writer in queued.awaits.items():
        typer.echo(f"# {checkpoint} is not there yet: {writer} writes it before")
    if plan is None:
        typer.echo("# not counted, as its tokenizer is not there yet")
        return
    epoch = f"{count(plan.rows, 'row')} of {count(plan.tokens, 'token')} an epoch"
    typer.echo(f"# {epoch}, {count(plan.steps, 'step')} in all")
    for what, number in plan.truncated.items():
        typer.echo(f"# {what} cut to the recipe's room: {number:,}")


def _command_line(recipe: Path, settings: list[str]) -> str:
    return shlex.join(["narrows", "train", recipe.name, *(part for pair in settings for part in ("--set", pair))])


def _summary(folder: Path) -> dict[str, Any]:
    from json import loads

    # A model that was put there by hand has none.
    path = folder / "summary.json"
    return loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
