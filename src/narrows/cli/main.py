"""Entry point of `narrows`: the table of verbs, the options before them, and how an error ends.

A verb is a file of this folder that has either a function `command` with typer annotations, or, for a verb
with verbs of its own, a typer application `app`. It is imported when it is called; the list of verbs comes
from the table below, so that `narrows --help` answers at once.
"""

import os
import sys
import traceback
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from narrows import __version__
from narrows.errors import NarrowsError

VERBS = {
    "demo": "Read a small library, ask it questions, and show what was saved.",
    "convert": "Turn a checkpoint into a DeFormer or a LongT5-Mulla, with a report of every tensor.",
    "train": "Train from a recipe: convert, distil or fine-tune.",
    "evaluate": "Score a checkpoint on a task and compare it with another.",
    "index": "Read documents once and keep their passages in a store.",
    "store": "Look at, size, check or empty a passage store.",
    "ask": "Answer a question from a store of passages.",
    "answer": "Answer a question from one file, without a store.",
    "summarize": "Summarise long texts, and tell what was read of them.",
    "inspect": "Draw what attention sees, and what the levels of a text hold.",
    "bench": "Measure time and memory beside a peer, behind a correctness check.",
}


class _VerbGroup(TyperGroup):
    """The top level; knows its verbs by name and imports one of them when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in VERBS:
            return _load(cmd_name)
        if near := get_close_matches(cmd_name, VERBS, n=1):
            ctx.fail(f"No such command {cmd_name!r}. Did you mean {near[0]!r}?")
        return None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


def _load(verb: str) -> Any:
    """Import the file of a verb and return its command."""
    module = import_module(f"narrows.cli.{verb}")
    parent = typer.Typer(rich_markup_mode=None)
    if hasattr(module, "app"):
        parent.add_typer(module.app, name=verb, help=VERBS[verb])
    else:
        parent.command(verb)(module.command)
    return typer.main.get_group(parent).commands[verb]


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"narrows {__version__}")
        raise typer.Exit()


app = typer.Typer(cls=_VerbGroup, add_completion=False, rich_markup_mode=None, subcommand_metavar="COMMAND [OPTIONS]")


@app.callback(epilog="`narrows COMMAND --help` shows the options of one command.")
def _top_level(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
    debug: Annotated[
        bool,
        typer.Option(
            "--debug",
            help="Show the traceback of an error; may stand anywhere. NARROWS_DEBUG=1 does the same.",
        ),
    ] = False,
) -> None:
    """Make a Transformer cheaper on long text, and measure what was saved and what was lost."""


def main(argv: list[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: the arguments after the program's name; those of the process when None.

    Returns:
        The exit code: 0 done, 1 failed, 2 used wrongly, 130 interrupted.

    Example:
        >>> main(["--version"])
        narrows 0.1.0
        0
    """
    arguments, debug = _split_debug(sys.argv[1:] if argv is None else argv)
    try:
        typer.main.get_command(app).main(arguments or ["--help"], prog_name="narrows")
    except SystemExit as leaving:
        return _flushed(_exit_code(leaving))
    except NarrowsError as error:
        return _failed(str(error), debug=debug, code=error.exit_code)
    except Exception as error:
        hint = "" if debug else " (run again with --debug for the traceback)"
        return _failed(f"{type(error).__name__}: {_one_line(error)}{hint}", debug=debug, code=1)
    return 0


def _split_debug(argv: list[str]) -> tuple[list[str], bool]:
    """Take `--debug` out of the arguments, wherever it stands before `--`, and ask the environment too."""
    end = argv.index("--") if "--" in argv else len(argv)
    arguments = [argument for argument in argv[:end] if argument != "--debug"] + argv[end:]
    asked = len(arguments) < len(argv) or os.environ.get("NARROWS_DEBUG", "0") not in ("", "0")
    return arguments, asked


def _exit_code(leaving: SystemExit) -> int:
    if leaving.code is None:
        return 0
    return leaving.code if isinstance(leaving.code, int) else 1


def _flushed(code: int) -> int:
    """Flush stdout here: a reader that left (`narrows ... | head`) is no error worth a message at exit."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


def _failed(sentence: str, *, debug: bool, code: int) -> int:
    if debug:
        traceback.print_exc(file=sys.stderr)
    sys.stderr.write(f"narrows: error: {sentence}\n")
    return code


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or "no message"


if __name__ == "__main__":
    sys.exit(main())
