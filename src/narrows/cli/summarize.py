"""`narrows summarize`: files into a summary, with what was read of them and what was not."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from narrows._plural import count
from narrows.cli import options
from narrows.cli.index import unknown_tokens
from narrows.errors import UsageError

if TYPE_CHECKING:
    from narrows.documents import Document
    from narrows.serving.summarizer import Summarizer, Summary

__all__ = ["Beams", "Dtype", "MaxInputTokens", "MaxNewTokens", "Prefix", "TruncationName", "command"]

MaxInputTokens = Annotated[
    int | None,
    typer.Option("--max-input-tokens", min=1, help="Longest input that the model reads at once.", show_default=False),
]
TruncationName = Annotated[
    str | None,
    typer.Option(
        "--truncation",
        help="What is read of a longer text: head, head+tail, windows (each is summarised) or retriever.",
        show_default=False,
    ),
]
Beams = Annotated[
    int | None,
    typer.Option("--beams", min=1, help="Texts that are written side by side; 1 is greedy.", show_default=False),
]
MaxNewTokens = Annotated[
    int | None, typer.Option("--max-new-tokens", min=1, help="Longest summary, in tokens.", show_default=False)
]
Prefix = Annotated[
    str | None,
    typer.Option(
        "--prefix",
        help="What every input begins with, such as plain T5's 'summarize: '.",
        show_default="what it was trained with",
    ),
]
# A plain text, so that fp16 is refused with its reason.
Dtype = Annotated[str, typer.Option("--dtype", help="Number format: float32 or bfloat16.")]


def command(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Texts (.txt, .md, .html, .jsonl, .pdf), or folders of them; several are one input; - is stdin.",
        ),
    ],
    model: options.Model,
    query: Annotated[
        str | None,
        typer.Option("--query", help="What the summary is to answer; else the whole.", show_default=False),
    ] = None,
    each: Annotated[bool, typer.Option("--each", help="Summarise each document by itself.")] = False,
    max_input_tokens: MaxInputTokens = None,
    truncation: TruncationName = None,
    beams: Beams = None,
    max_new_tokens: MaxNewTokens = None,
    prefix: Prefix = None,
    device: options.Device = "auto",
    dtype: Dtype = "float32",
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Summarise long texts with a LongT5-Mulla, a LongT5 or a T5.

    All is read unless --max-input-tokens or --truncation says otherwise (with --truncation alone, as much as the
    model was trained on). How many tokens were read, and how many not, is told on stderr. Of a line of .jsonl, the
    field text, contents, body, document or documents is read; `narrows evaluate` heeds queries in such data too.
    """
    from narrows.cli.answer import read_context
    from narrows.cli.convert import require_checkpoint

    require_checkpoint(model)
    if query is not None and not query.strip():
        raise UsageError("expected a question for --query, got nothing; leave it out for a summary of the whole")
    if files.count("-") > 1:
        raise UsageError("expected - for stdin once, got it several times; name it once")
    documents = [document for name in files for document in read_context(name, quiet=quiet, folders=True)]
    summarizer = _load(model, device=device, dtype=dtype)
    asked = {
        "query": query,
        "max_input_tokens": max_input_tokens,
        "truncation": truncation,
        "num_beams": beams,
        "max_new_tokens": max_new_tokens,
        "prefix": prefix,
    }
    groups = [[document] for document in documents] if each else [documents]
    found = []
    for group in groups:
        summary = _summarize(summarizer, group, asked, quiet=quiet)
        names = [document.id for document in group]
        _tell(names, summary, summarizer, quiet=quiet)
        found.append({"documents": names, **summary._asdict()})
        if not json:
            _show(names, summary, several=len(groups) > 1)
    if json:
        options.emit_json({"summaries": found} if each else found[0])


def _load(model: str, *, device: str, dtype: str) -> "Summarizer":
    from transformers.utils import logging

    from narrows.serving.summarizer import Summarizer

    logging.disable_progress_bar()
    return Summarizer.from_pretrained(model, device=device, dtype=dtype)


def _summarize(summarizer: "Summarizer", group: "list[Document]", asked: dict[str, Any], *, quiet: bool) -> "Summary":
    label = group[0].id if len(group) == 1 else count(len(group), "document")
    longest = asked["max_new_tokens"] or summarizer.max_new_tokens
    # Each window is written by itself, and how many there are is known only after the text is cut.
    total = None if asked["truncation"] == "windows" else longest
    with options.progress(total, f"Summarising {label}, tokens written", quiet) as advance:
        return summarizer.summarize([document.text for document in group], **asked, on_token=advance)


def _tell(names: list[str], summary: "Summary", summarizer: "Summarizer", *, quiet: bool) -> None:
    """What was read; and that the model was not trained for it, also when it is to be quiet."""
    label = names[0] if len(names) == 1 else count(len(names), "document")
    parts = "" if summary.truncation.parts == 1 else f" in {count(summary.truncation.parts, 'part')}"
    console = options.stderr_console(quiet=quiet)
    console.print(
        f"{label}: {count(summary.tokens_read, 'token')} read{parts}, {summary.tokens_not_read:,} not read, "
        f"{summary.seconds:.1f} s",
        markup=False,
        soft_wrap=True,
    )
    if summary.unknown:
        console.print(unknown_tokens(label, summary.unknown), markup=False, soft_wrap=True)
    if not summary.summary.strip():
        options.stderr_console().print(
            f"warning: the model wrote nothing about {label}; see what it writes of others by `narrows evaluate`",
            markup=False,
            soft_wrap=True,
        )
    if summary.beyond_trained and summarizer.trained is not None:
        options.stderr_console().print(
            f"warning: the input ({label}) is longer by {count(summary.beyond_trained, 'token')} than what the model "
            f"was trained to read ({summarizer.trained.max_input_tokens:,}); --truncation head reads no more than that",
            markup=False,
            soft_wrap=True,
        )


def _show(names: list[str], summary: "Summary", *, several: bool) -> None:
    if several:
        typer.echo(f"{', '.join(names)}:")
    typer.echo(summary.summary)
    if several:
        typer.echo("")
