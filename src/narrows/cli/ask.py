"""`narrows ask`: a question, a file of questions or a session of them, over a passage store."""

import json as jsonlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from narrows._plural import count
from narrows._text import UNREADABLE_JSON, json_problem, one_line, shown
from narrows.cli import options
from narrows.errors import NarrowsError, UsageError

if TYPE_CHECKING:
    from rich.text import Text

    from narrows.serving import Answer, Reader, Result
    from narrows.store import LeftOut, Store

Question = Annotated[str | None, typer.Argument(metavar="QUESTION", help="What to ask; none: a session.")]
Precision = Annotated[
    Literal["float32", "bfloat16", "int8"],
    typer.Option("--precision", help="Number format of the layers that run at question time."),
]
# More would be read for hours; a number with too many zeros is told before it overflows.
MOST_CANDIDATES = 1_000_000
# Documents that a warning names.
_NAMED = 5
Top = Annotated[int, typer.Option("--top", min=1, max=10_000, help="Most answers to a question.")]


def command(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="The folder that `narrows index` made.")],
    question: Question = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help='JSON Lines of {"id", "question"}; a line of JSON comes out for each.'),
    ] = None,
    model: options.OptionalModel = None,
    candidates: Annotated[
        int, typer.Option("--candidates", min=1, max=MOST_CANDIDATES, help="Passages to read a question.")
    ] = 32,
    top: Top = 3,
    retrieval: Annotated[
        Literal["bm25", "dense", "both"],
        typer.Option("--retrieval", help="Find passages by their words, by their vectors, or by both."),
    ] = "bm25",
    precision: Precision = "float32",
    device: options.Device = "auto",
    batch_tokens: options.BatchTokens = 8192,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Answer a question from a store of passages, with the place each answer was found.

    Without a question, questions are read line by line until an empty line. Without --model the reader that
    comes with narrows is used.
    """
    from narrows.store import Store

    if question is not None and file is not None:
        raise UsageError("expected a question or --file, got both; leave one of them out")
    total = count_questions(file) if file is not None else 0
    with Store.open(store, expect=None) as opened:
        opened.require_passages()
        reader = load_reader(model, device=device, precision=precision, batch_tokens=batch_tokens)

        def ask(asked: str) -> "Asked":
            damage: list[LeftOut] = []
            result = reader.ask(
                opened, asked, candidates=candidates, top_k=top, retrieval=retrieval, on_damage=damage.append
            )
            for left_out in damage:
                _warn(left_out)
            return Asked(result, damage)

        if file is not None:
            with options.progress(total, "Asking", quiet) as advance:
                for number, name, asked in read_questions(file):
                    try:
                        found = ask(asked)
                    except UsageError as error:
                        raise UsageError(f"line {number} of {file}: {error}") from error
                    options.emit_json({"id": name, **found.as_dict()}, indent=None)
                    sys.stdout.flush()
                    advance(1)
        elif question is not None:
            write(ask(question), json=json)
        else:
            _converse(ask, reader, opened, json=json, quiet=quiet)


class Asked(NamedTuple):
    """What a question gave, and what of the store was damaged and had to be left out."""

    result: "Result"
    damage: "list[LeftOut]"

    def as_dict(self) -> dict[str, Any]:
        """As JSON; says of damage only where there is some."""
        return self.result.as_dict() | ({"left_out": self.damage[0]._asdict()} if self.damage else {})


def _warn(left_out: "LeftOut") -> None:
    """Tell of damage also when it is to be quiet: the answer may have been in what was left out."""
    of = []
    if left_out.documents:
        more = len(left_out.documents) - _NAMED
        names = ", ".join(left_out.documents[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
        of.append(f"of {count(len(left_out.documents), 'document')} ({one_line(names)})")
    if left_out.nameless:
        of.append(f"of {'others' if of else 'documents'} whose names cannot be read")
    typer.echo(
        f"narrows: warning: damaged and left out: {count(left_out.passages, 'passage')} found for this question, "
        f"{' and '.join(of)}; {left_out.mend}",
        err=True,
    )


def load_reader(model: str | None, *, device: str, precision: str, batch_tokens: int) -> "Reader":
    """The reader of a checkpoint, or the one that comes with narrows."""
    from transformers.utils import logging

    from narrows.serving import Reader

    logging.disable_progress_bar()
    return Reader.from_pretrained(model, device=options.place(device), precision=precision, batch_tokens=batch_tokens)


def count_questions(file: Path) -> int:
    """Number of lines that are not blank.

    Raises:
        UsageError: the file cannot be read.
    """
    return sum(1 for _ in _lines(file))


def read_questions(file: Path) -> Iterator[tuple[int, str | int, str]]:
    """Line number, id and question of each line of a JSON Lines file; blank lines are passed over.

    Raises:
        UsageError: at a line that is not an object with an id and a question; the lines before have been
            given.
    """
    for number, line in _lines(file):
        where = f"line {number} of {file}"
        try:
            record = jsonlib.loads(line)
        except UNREADABLE_JSON as error:
            raise UsageError(
                f'expected {{"id", "question"}} on {where}, got no JSON ({json_problem(error)}); '
                "correct or remove the line"
            ) from error
        if not isinstance(record, dict) or not isinstance(record.get("question"), str):
            raise UsageError(f'expected a text "question" on {where}, got none; correct or remove the line')
        name = record.get("id")
        if not isinstance(name, str | int) or isinstance(name, bool):
            raise UsageError(
                f'expected an "id" (text or number) on {where}, got {shown(name, most=40)}; give the line one'
            )
        yield number, name, record["question"]


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    number = 0
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
                if text.strip():
                    yield number, text
    except OSError as error:
        raise UsageError(
            f"expected a file of questions, but {file} cannot be read ({error.strerror}); check the path"
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"expected UTF-8 on line {number} of {file}, but byte {error.start} is not; convert the file"
        ) from error


def _converse(ask: Any, reader: "Reader", store: "Store", *, json: bool, quiet: bool) -> None:
    """Answer line by line until an empty line or the end; an error ends its question only."""
    from narrows.serving.asking import check_store

    check_store(reader.engine, store)
    stdin = options.stdin_bytes()
    prompts = stdin.isatty() and not quiet
    if prompts:
        typer.echo("Ask a question; an empty line ends.", err=True)
    while True:
        if prompts:
            typer.echo("? ", nl=False, err=True)
        # A line at a time, and a byte that is no UTF-8 stands for itself: it ends its question, not those before.
        line = stdin.readline().decode("utf-8", "surrogateescape").strip()
        if not line:
            return
        try:
            write(ask(line), json=json, indent=None)
        except NarrowsError as error:
            typer.echo(f"narrows: error: {one_line(str(error))}", err=True)
        sys.stdout.flush()


def write(result: "Result | Asked", *, json: bool, where: str = "store", indent: int | None = 2) -> None:
    """Write a result to stdout, as JSON or for people; `where` names what was read."""
    if json:
        options.emit_json(result.as_dict(), indent=indent)
    else:
        show_result(result.result if isinstance(result, Asked) else result, where=where)


def show_result(result: "Result", *, where: str = "store") -> None:
    """A result for people: answers in their sentences with their places, or that there is none."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    colours = console.is_terminal and not console.no_color
    answers = result.answers
    if result.refused:
        answers = answers[1:2]
        console.print(f"No answer in this {where} ({_why(answers, result.threshold)}).")
        if answers:
            console.print("Nearest candidate:")
    for answer in answers:
        console.print(_sentence(answer, colours=colours))
        console.print(f"    {_one_line(answer.document)} {answer.start}–{answer.end}, score {answer.score:.2f}")
    console.print(f"Read {count(result.candidates, 'passage')} in {result.seconds:.2f} s.", style="dim")


def _why(refused: "list[Answer]", threshold: float) -> str:
    """Why the best of the answers, if there is one, is not given; with as many digits as tell it from the threshold."""
    if not refused:
        return "none of the passages read holds anything that could be one"
    digits = 2
    while digits < 17 and f"{refused[0].score:.{digits}f}" == f"{threshold:.{digits}f}":
        digits += 1
    return f"the likeliest has {refused[0].score:.{digits}f}, the model answers from {threshold:.{digits}f} on"


def _sentence(answer: "Answer", *, colours: bool) -> "Text":
    """The answer in its sentence: in bold, or between marks where there is no bold."""
    from rich.text import Text

    start = answer.start - answer.context_start
    end = start + len(answer.answer)
    before, after = _one_line(answer.context[:start]), _one_line(answer.context[end:])
    shown = _one_line(answer.answer)
    return Text.assemble("  ", before, (shown, "bold green") if colours else f"«{shown}»", after, overflow="fold")


def _one_line(text: str) -> str:
    """A document's text without line ends, and without the control characters that a terminal would obey."""
    printable = one_line(text)
    squeezed = " ".join(printable.split())
    left = " " if printable[:1].isspace() and squeezed else ""
    right = " " if printable[-1:].isspace() and squeezed else ""
    return f"{left}{squeezed}{right}"
