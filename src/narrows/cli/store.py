"""`narrows store`: look at, size, check or delete a passage store."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from narrows._plural import count
from narrows._text import one_line
from narrows.cli import options
from narrows.cli.index import (
    CodecName,
    Dense,
    Folder,
    duration,
    look_at,
    reasons_of_failure,
    show_info,
    show_skipped,
    size,
)

if TYPE_CHECKING:
    from narrows.store import VerifyReport

StorePath = Annotated[Path, typer.Argument(metavar="STORE", help="The folder that `narrows index` made.")]

# Documents that a sentence names.
_NAMED = 10

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)


@app.command()
def info(store: StorePath, json: options.Json = False) -> None:
    """Say what a store holds and which model wrote it."""
    found = look_at(store)
    if json:
        options.emit_json(found)
        return
    show_info(found)
    identity = found.fingerprint
    typer.echo(
        f"  written by weights {identity.weights[:12]}, tokenizer {identity.tokenizer[:12]}, split layer "
        f"{identity.split_layer}, width {identity.width}"
    )
    typer.echo(f"  layout {identity.layout}; format version {found.format_version}, store version {found.version}")
    typer.echo(f"  vectors: {f'width {found.vector_width}' if found.vector_width else 'none'}")


@app.command()
def estimate(
    folder: Folder,
    model: options.OptionalModel = None,
    codec: CodecName = "int8",
    dense: Dense = False,
    device: options.Device = "auto",
    batch_tokens: options.BatchTokens = 8192,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Say how large a folder's store is going to be and how long it takes, without building it."""
    from narrows.cli.ask import load_reader
    from narrows.serving.estimate import estimate_folder

    engine = load_reader(model, device=device, precision="float32", batch_tokens=batch_tokens).engine
    with reasons_of_failure() as on_problem, options.progress(None, "Cutting documents", quiet) as advance:
        found = estimate_folder(
            folder, engine, codec=codec, dense=dense, on_document=lambda _: advance(1), on_problem=on_problem
        )
    if not quiet:
        show_skipped(found.skipped)
    if json:
        skipped = [{"name": name, "reason": reason} for name, reason in found.skipped]
        options.emit_json({**vars(found), "skipped": skipped})
        return
    typer.echo(
        f"{count(found.documents, 'document')}, {count(found.passages, 'passage')}, {count(found.tokens, 'token')}"
    )
    typer.echo(f"size of the store: {size(found.bytes)} ({found.codec}), of which {size(found.bytes_text)} text")
    typer.echo(f"time to build it: {duration(found.seconds)}, at {found.tokens_per_second:,.0f} tokens a second")


@app.command()
def verify(
    store: StorePath,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Save what is whole and drop damaged documents, so that `narrows index` writes them anew."
        ),
    ] = False,
    json: options.Json = False,
) -> None:
    """Compare everything in a store with what was written; exit code 1 when something differs."""
    from narrows.store import Store
    from narrows.store import verify as verify_store

    report = verify_store(store)
    dropped = []
    if repair and not report.ok and not report.beyond_repair:
        with Store.open(store, expect=None) as opened, opened.writer() as writer:
            dropped = writer.repair(report)
    if json:
        options.emit_json({**vars(report), "ok": report.ok, "dropped": dropped})
    else:
        typer.echo(f"{store}: {count(report.documents, 'document')}, {count(report.passages, 'passage')} read")
        for damage in report.damages:
            typer.echo(f"damaged: {damage.reason}")
        for remark in report.remarks:
            typer.echo(f"remark: {remark}")
        typer.echo(_verdict(report, dropped if repair else None))
    if not report.ok:
        raise typer.Exit(1)


def _verdict(report: "VerifyReport", dropped: list[str] | None) -> str:
    """How the store is, and what to do; `dropped` are the documents that a repair has dropped, None without one."""
    if report.ok:
        return "every passage is as it was written" if report.remarks else "everything is as it was written"
    if report.beyond_repair:
        return (
            "this cannot be repaired: bring the store back from a copy, or run `narrows store delete` on it and then "
            "`narrows index`"
        )
    if dropped is None:
        return "run `narrows store verify --repair` and then `narrows index` to write them anew"
    gone = []
    if dropped:
        more = f" and {len(dropped) - _NAMED:,} more" if len(dropped) > _NAMED else ""
        gone.append(f"{count(len(dropped), 'damaged document')} ({one_line(', '.join(dropped[:_NAMED]))}{more})")
    if report.nameless_passages:
        gone.append(f"{count(report.nameless_passages, 'passage')} of documents whose names cannot be read")
    if not gone:
        return "repaired, without dropping a document"
    return f"dropped {' and '.join(gone)}; run `narrows index` to write them anew"


@app.command()
def delete(
    store: StorePath,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: options.Json = False,
) -> None:
    """Delete a store and everything in it."""
    from narrows.errors import UsageError
    from narrows.store import delete as delete_store

    if not yes:
        if json:
            raise UsageError("expected --yes beside --json, where no question can be asked; add --yes to delete")
        typer.confirm(f"Delete the store {store}?", abort=True, err=True)
    delete_store(store)
    if json:
        options.emit_json({"deleted": str(store)})
    else:
        typer.echo(f"deleted {store}")
