"""`narrows train`: a recipe into a model."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from narrows.cli import options
from narrows.errors import UsageError

__all__ = ["command"]


def command(
    recipe: Annotated[Path, typer.Argument(help="YAML file of the recipe.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder of the run; RUNS/NAME by default.", show_default=False),
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
    when it is done.
    """
    if data is None:
        raise UsageError("expected a data folder, got none; pass --data DIR or set NARROWS_DATA")

    from narrows.training.build import find_checkpoint, plan_run
    from narrows.training.recipe import load_recipe
    from narrows.training.run import train

    loaded = load_recipe(recipe, settings=_settings(settings or []))
    from narrows.cli.convert import require_checkpoint

    for checkpoint in (loaded.model.checkpoint, loaded.teacher):
        if checkpoint is not None:
            require_checkpoint(find_checkpoint(checkpoint, runs))
    if dry_run:
        _show(loaded, plan_run(loaded, data=data, runs=runs), json=json)
        return
    from transformers.utils import logging

    logging.disable_progress_bar()
    folder = runs / loaded.name if output is None else output
    console = options.stderr_console(quiet=quiet)
    model = train(
        loaded,
        data=data,
        output=folder,
        quiet=quiet,
        runs=runs,
        command=_command_line(recipe, settings or []),
    )
    if model is None:
        console.print(f"stopped and saved in {folder}; the same command goes on", markup=False)
        raise typer.Exit(130)
    if json:
        options.emit_json({"model": model, **_summary(folder)})
    console.print(f"model in {model}", markup=False)


def _settings(pairs: list[str]) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"expected --set a.b=value, got {pair!r}; put an equals sign between key and value")
        settings[key] = value
    return settings


def _show(recipe: Any, plan: Any, *, json: bool) -> None:
    if json:
        options.emit_json({"recipe": recipe, "plan": plan})
        return
    import yaml

    typer.echo(yaml.safe_dump(recipe.model_dump(), sort_keys=False, allow_unicode=True).rstrip())
    typer.echo(f"# {plan.rows:,} rows of {plan.tokens:,} tokens an epoch, {plan.steps:,} steps in all")
    if plan.truncated_questions:
        typer.echo(f"# {plan.truncated_questions:,} questions are cut to {recipe.data.max_question_tokens} tokens")


def _command_line(recipe: Path, settings: list[str]) -> str:
    return shlex.join(["narrows", "train", recipe.name, *(part for pair in settings for part in ("--set", pair))])


def _summary(folder: Path) -> dict[str, Any]:
    from json import loads

    return loads((folder / "summary.json").read_text(encoding="utf-8"))
