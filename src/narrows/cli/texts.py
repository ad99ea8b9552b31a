"""What `narrows embed` and `narrows classify` share: their inputs, and the way from texts to a file or to stdout."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from narrows._plural import count
from narrows.cli import options

if TYPE_CHECKING:
    from narrows.documents.texts import Text
    from narrows.serving.batching import Row
    from narrows.serving.result_files import Totals
    from narrows.serving.result_formats import RowFormat

__all__ = [
    "Field",
    "Force",
    "Inputs",
    "MaxTokens",
    "Truncate",
    "report",
    "require_encoder",
    "run_texts",
    "texts_of",
    "to_stdout",
]

Inputs = Annotated[
    list[str],
    typer.Argument(
        metavar="INPUT...",
        help="Texts (.txt, .md, .html, .jsonl, .pdf), or folders of them; - is stdin, a text a line.",
    ),
]
Field = Annotated[
    str | None,
    typer.Option(
        "--field", help="Field of JSON Lines that holds the text; stdin is JSON Lines then.", show_default="text"
    ),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(
        "--max-tokens", min=1, help="Longest text, special tokens included.", show_default="what the model was made for"
    ),
]
Truncate = Annotated[
    bool, typer.Option("--truncate", help="Read the beginning of texts that are too long; else they are refused.")
]
Force = Annotated[
    bool,
    typer.Option("--force", help="Write over a finished file, or over the rest of a run that does not fit this one."),
]


def require_encoder(model: str) -> None:
    """Refuse what can be no encoder, before anything is loaded; a folder of sentence-transformers has its own layout.

    Raises:
        UsageError: see `narrows.cli.convert.require_checkpoint`.
    """
    from narrows.cli.convert import require_checkpoint

    if not (Path(model) / "modules.json").is_file():
        require_checkpoint(model)


@contextmanager
def texts_of(
    inputs: list[str], *, field: str | None = None, pair_field: str | None = None, quiet: bool = False
) -> "Iterator[Iterator[Text]]":
    """The texts of the inputs; what cannot be read in a folder is named at the end, on stderr."""
    from narrows.cli.index import show_skipped
    from narrows.documents.texts import read_texts

    problems: list[tuple[str, str]] = []
    failed = True
    try:
        stream = options.stdin_bytes() if "-" in inputs else None
        yield read_texts(
            inputs,
            lambda name, error: problems.append((name, str(error))),
            field=field,
            pair_field=pair_field,
            stdin=stream,
        )
        failed = False
    finally:
        # Where nothing can be read, the reasons belong to the error.
        if failed or not quiet:
            show_skipped(problems)


def run_texts(
    windows: "Callable[..., Iterator[list[Row]]]",
    texts: "Iterator[Text]",
    *,
    out: Path,
    rows: "RowFormat",
    settings: Mapping[str, Any],
    force: bool,
    label: str,
    quiet: bool,
) -> "Totals":
    """Read texts into a file, from where a run with the same settings was stopped.

    Args:
        windows: of an `Embedder` or a `Classifier`, taking texts and `on_tokens`.
        texts: all of them.
        out: the file.
        rows: how it is written.
        settings: all that a row depends on.
        force: whether what does not fit is begun anew.
        label: what is done, for the progress bar.
        quiet: show nothing.
    """
    from narrows.serving.result_files import ResultFile

    console = options.stderr_console(quiet=quiet)
    with ResultFile(out, rows, settings=settings, force=force) as file:
        remaining = file.remaining(texts)
        if file.resumed:
            console.print(f"{count(file.resumed, 'text')} done before; going on", markup=False, soft_wrap=True)
        try:
            with options.progress(None, f"{label}, tokens", quiet) as advance:
                for window in windows(remaining, on_tokens=advance):
                    file.append(window)
        except BaseException:
            if file.totals.texts:
                kept = f"{count(file.totals.texts, 'text')} done and kept; the same command goes on from there"
                console.print(kept, markup=False, soft_wrap=True)
            raise
        return file.finish()


def to_stdout(
    windows: "Callable[..., Iterator[list[Row]]]",
    texts: "Iterator[Text]",
    show: "Callable[[Row], None]",
    *,
    quiet: bool,
) -> "Totals":
    """Show each row on stdout as soon as its window is read."""
    import sys

    from narrows.serving.result_files import Totals

    totals = Totals()
    with options.progress(None, "Reading, tokens", quiet) as advance:
        for window in windows(texts, on_tokens=advance):
            for row in window:
                show(row)
            sys.stdout.flush()
            totals = totals.plus((row.tokens, row.tokens_not_read) for row in window)
    return totals


def report(totals: "Totals", *, seconds: float, max_tokens: int | None, quiet: bool) -> None:
    """How much was read, and what was not, on stderr."""
    console = options.stderr_console(quiet=quiet)
    console.print(
        f"{count(totals.texts, 'text')}, {count(totals.tokens, 'token')}, {seconds:.1f} s", markup=False, soft_wrap=True
    )
    if totals.texts_cut:
        console.print(
            f"warning: {count(totals.texts_cut, 'text')} of {totals.texts:,} cut to {count(max_tokens or 0, 'token')}; "
            f"{count(totals.tokens_not_read, 'token')} not read",
            markup=False,
            soft_wrap=True,
        )
