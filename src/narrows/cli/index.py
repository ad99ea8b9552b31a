"""`narrows index`: a folder of documents into a passage store."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from narrows._plural import count
from narrows._text import one_line
from narrows.cli import options
from narrows.errors import DocumentError

if TYPE_CHECKING:
    from narrows.serving.indexing import IndexProgress, IndexReport
    from narrows.serving.unknown import UnknownWords
    from narrows.store import StoreInfo

Folder = Annotated[
    Path,
    typer.Argument(metavar="FOLDER", help="Folder of documents (.txt, .md, .html, .jsonl, .pdf), or one file."),
]
CodecName = Annotated[
    Literal["fp32", "fp16", "int8"], typer.Option("--codec", help="Number format of the stored states.")
]
Dense = Annotated[bool, typer.Option("--dense", help="Store a vector a passage too, to find them by meaning.")]


def command(
    folder: Folder,
    output: Annotated[Path, typer.Option("--output", "-o", help="The store: a folder, made when missing.")],
    model: options.OptionalModel = None,
    codec: CodecName = "int8",
    dense: Dense = False,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Remove the documents of another folder that the store was made from."),
    ] = False,
    device: options.Device = "auto",
    batch_tokens: options.BatchTokens = 8192,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Read documents once and keep their passages in a store.

    Run it again after documents have changed, or after it was stopped: only what is new or changed is read, and
    documents that the folder no longer holds are removed. Another folder wants a store of its own, or --replace.
    Without --model the reader that comes with narrows is used.
    """
    from narrows.cli.ask import load_reader
    from narrows.serving.indexing import index_folder

    engine = load_reader(model, device=device, precision="float32", batch_tokens=batch_tokens).engine
    with reasons_of_failure() as on_problem, index_progress(quiet=quiet) as advance:
        report = index_folder(
            folder,
            output,
            engine,
            codec=codec,
            dense=dense,
            replace=replace,
            on_progress=advance,
            on_problem=on_problem,
        )
    info = look_at(output)
    if not quiet:
        show_skipped(report.skipped)
        show_unknown(report.unknown)
    if json:
        options.emit_json({**_numbers(report), "store": _summary(info)})
    else:
        show_report(report, info)
    if not report.documents_read + report.documents_unchanged:
        raise typer.Exit(1)


def look_at(path: Path) -> "StoreInfo":
    """What a store holds, whoever wrote it."""
    from narrows.store import Store

    with Store.open(path, expect=None) as store:
        return store.info()


@contextmanager
def index_progress(*, quiet: bool) -> Iterator[Callable[["IndexProgress"], None] | None]:
    """Show how far indexing is: by bytes of the source files, with passages a second and the time left."""
    if quiet:
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        TextColumn("Indexing"),
        BarColumn(),
        TextColumn("{task.fields[percent]}"),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=options.stderr_console()) as bar, options.erased_on_error(bar):
        task = bar.add_task("reading …", total=None, percent="")

        def advance(progress: "IndexProgress") -> None:
            done, total = progress.bytes_done, progress.bytes_total
            bar.update(
                task, completed=done, total=total, description=describe(progress), percent=percentage(done, total)
            )

        yield advance
        end = bar.tasks[task].total or 1
        bar.update(task, completed=end, total=end, percent=percentage(1, 1))


def percentage(done: int, total: int) -> str:
    """How much is done, rounded down: 100 % when nothing is left."""
    return f"{100 * done // total if total else 100:>3} %"


def describe(progress: "IndexProgress") -> str:
    """How far indexing is, in words."""
    if progress.cutting is not None:
        done, total = progress.cutting
        return f"reading a large document, {size(done)} of {size(total)}"
    rate = progress.passages / progress.seconds if progress.seconds else 0.0
    left = "" if progress.seconds_left is None else f", {duration(progress.seconds_left)} left"
    return f"{count(progress.passages, 'passage')}, {count(progress.tokens, 'token')}, {rate:,.1f} passages/s{left}"


def show_unknown(unknown: "Iterable[UnknownWords]") -> None:
    """Each document that the tokenizer hardly knows, a line each, on stderr."""
    for found in unknown:
        typer.echo(f"warning: {unknown_tokens(found.document, found.unknown, of=found.tokens)}", err=True)


def unknown_tokens(label: str, unknown: int, *, of: int | None = None) -> str:
    """How many tokens of a text stand for words that the tokenizer does not know; `of` how many, where that is told."""
    share = "" if of is None else f" of {of:,} ({100 * unknown // of} %)"
    return f"{one_line(label)}: {count(unknown, 'token')}{share} unknown to the model's tokenizer"


def show_skipped(skipped: Iterable[tuple[str, str]]) -> None:
    """Each skipped file or record with its sentence, a line each, on stderr."""
    for _, reason in skipped:
        typer.echo(f"skipped: {one_line(reason)}", err=True)


@contextmanager
def reasons_of_failure() -> Iterator[Callable[[str, DocumentError], None]]:
    """Where nothing at all could be read, say why of each file before the error, even when quiet: it is part of it.

    Yields:
        A function to call with the name and the error of whatever cannot be read.
    """
    problems: list[tuple[str, str]] = []
    try:
        yield lambda name, error: problems.append((name, str(error)))
    except DocumentError:
        show_skipped(problems)
        raise


def show_report(report: "IndexReport", info: "StoreInfo") -> None:
    """What a run did and what the store holds now, for people."""
    rate = f", {report.passages / report.seconds:,.1f} passages a second" if report.passages else ""
    others = f"{report.documents_unchanged} unchanged, {report.documents_removed} removed"
    typer.echo(
        f"read {count(report.documents_read, 'document')} in {duration(report.seconds)} "
        f"({others}, {len(report.skipped)} skipped)"
    )
    typer.echo(f"wrote {count(report.passages, 'passage')}, {count(report.tokens, 'token')}{rate}")
    show_info(info)


def show_info(info: "StoreInfo") -> None:
    """What a store holds, for people."""
    typer.echo(
        f"{info.path} holds {count(info.documents, 'document')}, {count(info.passages, 'passage')}, "
        f"{count(info.tokens, 'token')}"
    )
    typer.echo(
        f"  states {size(info.bytes_states)} ({info.codec}) beside {size(info.bytes_text)} of text; "
        f"on disk {size(info.bytes_on_disk)}"
    )


def size(number: int) -> str:
    """A number of bytes in units that a person reads, of 1000 each."""
    value = float(number)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def duration(seconds: float) -> str:
    """Seconds in units that a person reads."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"


def _numbers(report: "IndexReport") -> dict[str, Any]:
    rate = report.passages / report.seconds if report.seconds else 0.0
    skipped = [skipped._asdict() for skipped in report.skipped]
    unknown = [found._asdict() for found in report.unknown]
    return {**vars(report), "skipped": skipped, "unknown": unknown, "passages_per_second": rate}


def _summary(info: "StoreInfo") -> dict[str, Any]:
    return {key: value for key, value in vars(info).items() if key != "fingerprint"}
