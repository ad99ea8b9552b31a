"""Options and outputs that all verbs share: the same name, the same meaning, the same default everywhere.

A verb takes an option by its annotation and gives the default beside it:

    def command(model: options.Model, device: options.Device = "auto", json: options.Json = False): ...

Data goes to stdout (`emit_json`), progress and remarks go to stderr (`progress`, `stderr_console`).
"""

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

import typer

from narrows.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

_MODEL = typer.Option("--model", "-m", help="Checkpoint: a folder or a hub id.", show_default=True)

Model = Annotated[str, _MODEL]
OptionalModel = Annotated[str | None, _MODEL]
Device = Annotated[
    Literal["auto", "cpu", "cuda"],
    typer.Option("--device", help="Where to compute; auto takes the GPU when there is one."),
]
Dtype = Annotated[
    Literal["float32", "bfloat16"], typer.Option("--dtype", help="Number format of weights and activations.")
]
# More would not fit any machine; a number with too many zeros is told before it overflows.
_MOST_TOKENS = 1 << 24
BatchTokens = Annotated[
    int, typer.Option("--batch-tokens", min=1, max=_MOST_TOKENS, help="Tokens in one batch, padding included.")
]
Json = Annotated[bool, typer.Option("--json", help="Write the result to stdout as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no remarks on stderr.")]


def emit_json(obj: Any, *, indent: int | None = 2) -> None:
    """Write an object to stdout as JSON; `indent=None` gives one line, for JSON Lines.

    Dataclasses, NamedTuples, pydantic models, paths and NumPy or torch scalars are written as what they hold.
    Where stdout cannot write a character, as half of a surrogate pair, all that are not ASCII are written by number.

    Raises:
        TypeError: the object holds something that has no JSON form.
        ValueError: a number is NaN or infinite, which JSON cannot say.

    Example:
        >>> emit_json({"answer": "Lyon", "score": 0.5}, indent=None)
        {"answer": "Lyon", "score": 0.5}
    """
    plain = _plain(obj)
    for ensure_ascii in (False, True):
        text = json.dumps(plain, ensure_ascii=ensure_ascii, allow_nan=False, indent=indent, default=_encode)
        if ensure_ascii or _can_write(text):
            sys.stdout.write(f"{text}\n")
            return


def _can_write(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _plain(obj: Any) -> Any:
    """NamedTuples become mappings here, since `json` would take them for bare lists."""
    if hasattr(obj, "_asdict"):
        obj = obj._asdict()
    elif dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        obj = {field.name: getattr(obj, field.name) for field in dataclasses.fields(obj)}
    if isinstance(obj, dict):
        return {key: _plain(value) for key, value in obj.items()}
    if isinstance(obj, list | tuple):
        return [_plain(value) for value in obj]
    return obj


def _encode(obj: Any) -> Any:
    if isinstance(obj, os.PathLike):
        return os.fspath(obj)
    if hasattr(obj, "model_dump"):
        return obj.model_dump(mode="json")
    if hasattr(obj, "tolist"):
        return obj.tolist()
    raise TypeError(f"expected something with a JSON form, got {type(obj).__name__}; convert it first")


def stderr_console(*, quiet: bool = False) -> "Console":
    """The console for remarks; a quiet one swallows them."""
    from rich.console import Console

    return Console(stderr=True, quiet=quiet, highlight=False)


@contextmanager
def progress(total: int | None, label: str, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on stderr, with the rate and the time left.

    Args:
        total: how many units there are in all; None when that is not known.
        label: what is being done, such as "Encoding passages".
        quiet: show nothing.

    Yields:
        A function to call with the number of units done since the last call.

    Example:
        >>> with progress(2, "Counting", quiet=True) as advance:
        ...     advance(2)
    """
    if quiet:
        yield lambda _: None
        return
    with _progress_bar() as bar, erased_on_error(bar):
        task = bar.add_task(label, total=total)
        yield lambda done: bar.advance(task, done)


@contextmanager
def erased_on_error(bar: "Progress") -> Iterator[None]:
    """Leave nothing of a progress bar on the screen when the work in it fails: the error stands alone."""
    try:
        yield
    except BaseException:
        bar.live.transient = True
        bar.live.stop()
        # Where there is no terminal, the end of the bar would print an empty line.
        bar.console.quiet = True
        raise


def place(device: str) -> str:
    """The device that a choice of `--device` means on this machine.

    Raises:
        UsageError: a GPU where there is none.
    """
    import torch

    here = torch.cuda.is_available()
    if device == "cuda" and not here:
        raise UsageError("expected a device that is here (cpu), got --device cuda; use --device cpu or leave it out")
    return ("cuda" if here else "cpu") if device == "auto" else device


def stdin_bytes() -> BinaryIO:
    """What is piped or typed in, as bytes.

    Raises:
        UsageError: stdin is closed.
    """
    if sys.stdin is None:
        raise UsageError("expected something on stdin, but it is closed; pipe it in or name it on the command line")
    return sys.stdin.buffer


def _progress_bar() -> "Progress":
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class RateColumn(ProgressColumn):
        """Units a second, by the recent speed while running and the overall speed at the end."""

        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:,.1f}/s")

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
        console=stderr_console(),
        # Otherwise rich sends what is written to stdout to the bar's console, past a pipe or a file.
        redirect_stdout=sys.stdout.isatty(),
    )
