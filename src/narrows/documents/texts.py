"""Texts to run a model over, from files, folders and stdin, one at a time, each with its id."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from narrows.documents.decoding import decode_text, starts_as_utf16
from narrows.documents.reading import read_file
from narrows.documents.records import TEXT_FIELDS, parse_record, record_id, text_field
from narrows.documents.sources import OnProblem, Source, format_of, scan, unreadable
from narrows.errors import DocumentError, MissingExtraError, UsageError

__all__ = ["Text", "read_texts", "require_inputs"]

STDIN = "-"


class Text(NamedTuple):
    """A text, or a pair of them.

    Attributes:
        id: of a file, its path as it was named; of a record, its `id` or `_id` as it stands there, else the path, `#`
            and the line's number from 1; of stdin, the record's id, else the line's number.
        text: what is read.
        pair: the second text of a pair.
    """

    id: str | int
    text: str
    pair: str | None = None


def require_inputs(names: Sequence[str], *, field: str | None = None, pair_field: str | None = None) -> None:
    """Refuse names that hold nothing to read, before a model is loaded. Nothing is opened.

    Args:
        names: files, folders, or `-` for stdin.
        field: the field of JSON Lines that is read.
        pair_field: the field that holds the second text.

    Raises:
        DocumentError: a path is missing or holds nothing of a known format.
        UsageError: stdin twice, or a field asked of what has none.
    """
    if list(names).count(STDIN) > 1:
        raise UsageError("expected - for stdin once, got it several times; name it once")
    if pair_field is not None and field is None:
        raise UsageError("expected --field beside --field-pair, got none; name the field of the first text")
    if pair_field is not None and pair_field == field:
        raise UsageError(f"expected two fields for a pair, got {field!r} twice; name another for --field-pair")
    for name in names:
        if name == STDIN:
            continue
        for source in scan(name):
            if field is not None and format_of(source.path.name) != "jsonl":
                raise UsageError(
                    f"expected JSON Lines (.jsonl) where a field is named, got {_path_of(name, source)}; leave out "
                    "--field, or name other inputs"
                )


def read_texts(
    names: Sequence[str],
    on_problem: OnProblem,
    *,
    field: str | None = None,
    pair_field: str | None = None,
    stdin: BinaryIO | None = None,
) -> Iterator[Text]:
    """Read texts in the order of the names; in a folder in the order of paths.

    A file is one text, each line of JSON Lines another. One of them is in memory at a time.

    Args:
        names: files, folders, or `-` for stdin, of which each line is a text, or with a `field` a record.
        on_problem: called with the path and the error of what cannot be read in a folder; reading goes on.
        field: of JSON Lines; None: `text`, `contents`, `body` or `document`.
        pair_field: of the second text of a pair.
        stdin: the bytes behind `-`.

    Raises:
        DocumentError: a named file, or a record, cannot be read, or there is no text at all.

    Example:
        >>> import io
        >>> list(read_texts(["-"], print, stdin=io.BytesIO(b"A boat.\\n\\nA bird.\\n")))
        [Text(id=1, text='A boat.', pair=None), Text(id=3, text='A bird.', pair=None)]
    """
    found = False
    for name in names:
        for text in _texts_of(name, on_problem, field, pair_field, stdin):
            found = True
            yield text
    if not found:
        raise DocumentError(f"expected text in {', '.join(map(_said, names))}, but there is none; name other inputs")


def _texts_of(
    name: str, on_problem: OnProblem, field: str | None, pair_field: str | None, stdin: BinaryIO | None
) -> Iterator[Text]:
    if name == STDIN:
        if stdin is None:
            raise UsageError("expected something on stdin, got no stream; pass one")
        yield from _records(stdin, "stdin", field, pair_field) if field else _plain_lines(stdin)
        return
    folder = Path(name).is_dir()
    for source in scan(name, on_problem=on_problem):
        path = _path_of(name, source)
        if format_of(source.path.name) == "jsonl":
            with _opened(source, path) as stream:
                yield from _records(stream, path, field, pair_field)
            continue
        try:
            text = read_file(source).text
        except (DocumentError, MissingExtraError, OSError) as error:
            problem = unreadable(path, error) if isinstance(error, OSError) else error
            if not folder:
                raise problem from error
            on_problem(path, problem if isinstance(problem, DocumentError) else DocumentError(str(problem)))
            continue
        yield Text(path, text)


def _opened(source: Source, path: str) -> BinaryIO:
    try:
        return source.path.open("rb")
    except OSError as error:
        raise unreadable(path, error) from error


def _plain_lines(stream: BinaryIO) -> Iterator[Text]:
    for number, line in _lines(stream, "stdin"):
        yield Text(number, line)


def _records(stream: BinaryIO, name: str, field: str | None, pair_field: str | None) -> Iterator[Text]:
    for number, line in _lines(stream, name):
        where = f"line {number} of {name}"
        record = parse_record(line, where)
        first = field if field is not None else next((known for known in TEXT_FIELDS if known in record), "text")
        texts = [_text(record, wanted, where) for wanted in (first, pair_field) if wanted is not None]
        found = record_id(record, where)
        if found is None:
            found = number if name == "stdin" else f"{name}#{number}"
        yield Text(found, *texts)


def _text(record: dict, field: str, where: str) -> str:
    if field not in record:
        raise DocumentError(
            f"expected a field {field!r} on {where}, but got {sorted(record)[:8]}; name the field that holds the text"
        )
    return text_field(record, field, where)


def _lines(stream: BinaryIO, name: str) -> Iterator[tuple[int, str]]:
    """Number from 1 and text of each line that is not blank."""
    first = stream.readline()
    if starts_as_utf16(first):
        # No byte ends its lines.
        lines = decode_text(first + stream.read(), name).split("\n")
        yield from ((number, line.rstrip("\r")) for number, line in enumerate(lines, start=1) if line.strip())
        return
    line, offset, number = first, 0, 1
    while line:
        text = decode_text(line, name, offset=offset).rstrip("\r\n")
        if text.strip():
            yield number, text
        offset += len(line)
        line, number = stream.readline(), number + 1


def _path_of(name: str, source: Source) -> str:
    path = Path(name)
    return (path / source.id if path.is_dir() else path).as_posix()


def _said(name: str) -> str:
    return "stdin" if name == STDIN else name
