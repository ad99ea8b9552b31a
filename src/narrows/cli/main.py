"""Entry point of `narrows`: the table of verbs, the options before them, and how an error ends.

A verb is a file of this folder that has either a function `command` with typer annotations, or, for a verb
with verbs of its own, a typer application `app`. It is imported when it is called; the list of verbs comes
from the table below, so that `narrows --help` answers at once.
"""

import errno
import io
import os
import sys
import traceback
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from narrows import __version__
from narrows._text import one_line, shown
from narrows.errors import NarrowsError

VERBS = {
    "demo": "Read a small library, ask it questions, and show what was saved.",
    "convert": "Turn a checkpoint into a DeFormer, a LongT5-Mulla or a Funnel, with a report of every tensor.",
    "train": "Train from a recipe: convert, distil or fine-tune.",
    "evaluate": "Score a checkpoint on a task and compare it with another.",
    "index": "Read documents once and keep their passages in a store.",
    "store": "Look at, size, check or empty a passage store.",
    "ask": "Answer a question from a store of passages.",
    "answer": "Answer a question from one file, without a store.",
    "summarize": "Summarise long texts, and tell what was read of them.",
    "generate": "Go on with a text, by any causal language model.",
    "embed": "Turn texts into vectors with any encoder, from files, folders and stdin.",
    "classify": "Label or score texts and pairs with any encoder that has a head.",
    "sweep": "Train a recipe under every combination of some settings.",
    "inspect": "Draw what attention sees, what the levels of a text hold, and what memory it takes.",
    "bench": "Measure time and memory beside a peer, behind a correctness check.",
}


# What is wrong with a path that was named, found wherever it is first looked at.
_OF_PATHS = (errno.ELOOP, errno.ENAMETOOLONG, errno.EROFS)


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
    _open_streams()
    arguments, debug = _split_debug(sys.argv[1:] if argv is None else argv)
    return _flushed(_run(arguments or ["--help"], debug=debug))


def _run(arguments: list[str], *, debug: bool) -> int:
    try:
        # Not standalone: wrong use is told here too, in one sentence as everything else.
        code = typer.main.get_command(app).main(arguments, prog_name="narrows", standalone_mode=False)
    except SystemExit as leaving:
        return _exit_code(leaving)
    except TyperException as error:
        return _misused(error, debug=debug)
    except typer.Abort:
        sys.stderr.write("Aborted!\n")
        return 1
    except NarrowsError as error:
        return _failed(str(error), debug=debug, code=error.exit_code)
    except OSError as error:
        return _refused_by_system(error, debug=debug)
    except Exception as error:
        return _unforeseen(error, debug=debug)
    return code if isinstance(code, int) else 0


def _refused_by_system(error: OSError, *, debug: bool) -> int:
    """Tell of a full disk, of a file or folder without permission, or of a path that cannot be, wherever it was met."""
    if error.errno == errno.ENOSPC:
        sentence = f"expected room for what is written, got {error.strerror}; make room or write it elsewhere"
        return _failed(sentence, debug=debug, code=1)
    if error.filename is None:
        return _unforeseen(error, debug=debug)
    name = shown(os.fsdecode(error.filename) if isinstance(error.filename, bytes) else error.filename)
    if error.errno in (errno.EACCES, errno.EPERM):
        sentence = f"expected permission to use {name}, got {error.strerror}; change it or choose another place"
        return _failed(sentence, debug=debug, code=1)
    if error.errno in _OF_PATHS:
        sentence = f"expected a path that can be used, got {name} ({error.strerror}); check it"
        return _failed(sentence, debug=debug, code=2)
    return _unforeseen(error, debug=debug)


def _unforeseen(error: Exception, *, debug: bool) -> int:
    hint = "" if debug else " (run again with --debug for the traceback)"
    return _failed(f"{type(error).__name__}: {_squeezed(str(error))}{hint}", debug=debug, code=1)


def _open_streams() -> None:
    """Give a stream that was closed (`>&-`) nowhere to write to, and spell out what an encoding cannot write."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # It takes the free number, so that no file of ours is opened under it.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


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
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if code == 0 and not isinstance(error, BrokenPipeError):
            sentence = f"expected room for the output, got {error.strerror}; make room or write it elsewhere"
            return _failed(sentence, debug=False, code=1)
        return code or 1
    return code


def _misused(error: TyperException, *, debug: bool) -> int:
    """Wrong use in one sentence, with where to read on; a verb of verbs alone gives its whole help instead."""
    if error.message.startswith("Usage: "):
        sys.stderr.write(f"{error.message}\n")
        return error.exit_code
    context = getattr(error, "ctx", None)
    path = "narrows" if context is None else context.command_path
    sentence = _squeezed(error.format_message()).rstrip(".")
    return _failed(f"{sentence}; see `{path} --help`", debug=debug, code=error.exit_code)


def _failed(sentence: str, *, debug: bool, code: int) -> int:
    if debug:
        traceback.print_exc(file=sys.stderr)
    sys.stderr.write(f"narrows: error: {one_line(sentence)}\n")
    return code


def _squeezed(text: str) -> str:
    return " ".join(text.split()) or "no message"


if __name__ == "__main__":
    sys.exit(main())
