"""`narrows answer`: a question to one file, without a store."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from narrows.cli import options
from narrows.cli.ask import Precision, Top, load_reader, write
from narrows.cli.index import show_skipped
from narrows.errors import DocumentError

if TYPE_CHECKING:
    from narrows.documents import Document


def command(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What to ask.")],
    context: Annotated[
        str, typer.Option("--context", "-c", help="The file to read (.txt, .md, .html, .jsonl, .pdf); - is stdin.")
    ],
    model: options.OptionalModel = None,
    top: Top = 3,
    precision: Precision = "float32",
    device: options.Device = "auto",
    batch_tokens: options.BatchTokens = 8192,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Answer a question from one file, without a store.

    Without --model the reader that comes with narrows is used.
    """
    documents = read_context(context, quiet=quiet)
    reader = load_reader(model, device=device, precision=precision, batch_tokens=batch_tokens)
    write(reader.answer(question, documents, top_k=top), json=json, where="file")


def read_context(name: str, *, quiet: bool, folders: bool = False) -> "list[Document]":
    """The documents of a file, or what stdin holds; records that cannot be read are named on stderr.

    Args:
        name: a file, or `-` for stdin.
        quiet: whether what was skipped goes untold.
        folders: whether a folder may be named too; all that can be read below it is then meant.

    Raises:
        DocumentError: nothing can be read, or a folder where one file is wanted.
    """
    from narrows.documents import Document, read_documents
    from narrows.documents.decoding import decode_text

    if name == "-":
        text = decode_text(options.stdin_bytes().read(), "stdin")
        if not text.strip():
            raise DocumentError("expected text on stdin, but it is empty; pipe a document in")
        return [Document(id="-", title="", text=text, sha256="")]
    if not name:
        # As a path it would be the folder one is in.
        raise DocumentError("expected the name of a file, got an empty one; name a file, or - for stdin")
    if not folders and Path(name).is_dir():
        raise DocumentError(f"expected one file, but {name} is a folder; name a file, or use `narrows index` on it")
    problems: list[tuple[str, str]] = []
    try:
        documents = list(read_documents(Path(name), lambda name, error: problems.append((name, str(error)))))
    except DocumentError:
        if len(problems) == 1:
            raise DocumentError(problems[0][1]) from None
        show_skipped(problems)
        raise
    if not quiet:
        show_skipped(problems)
    return documents
