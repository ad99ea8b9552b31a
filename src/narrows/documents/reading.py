"""Files into documents, one at a time."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from narrows.documents.decoding import UnsupportedEncoding, decode_text, starts_as_utf16
from narrows.documents.html_text import extract_html
from narrows.documents.pdf import extract_pdf
from narrows.documents.records import TEXT_FIELDS, parse_record, record_id, string_field, text_field
from narrows.documents.sources import EXPECTED_SUFFIXES, OnProblem, Source, format_of, scan, unreadable
from narrows.errors import DocumentError, MissingExtraError

__all__ = ["Document", "read_documents", "read_file"]

# The texts of one record, as in summary data; each is a document.
_TEXTS_FIELD = "documents"
_SNIFFED_BYTES = 8192
_HASHED_AT_ONCE = 1 << 20
_HEADING_OR_FENCE = re.compile(r"^ {0,3}(?:# ([^\r\n]*)|(```|~~~))", re.MULTILINE)


@dataclass(frozen=True)
class Document:
    """A text and what it is called.

    Attributes:
        id: the path below the folder with forward slashes; for JSONL followed by `#` and the record's id or,
            when it has none, its line number counted from 1; a text of a record's list of `documents` has `/` and
            its place, counted from 1, after that.
        title: the record's or page's title, the first `# ` heading of Markdown, or else the file's stem.
        text: the characters that all offsets refer to.
        sha256: hexadecimal digest over title and text.
    """

    id: str
    title: str
    text: str
    sha256: str


def read_documents(folder_or_file: Path | str, on_problem: OnProblem) -> Iterator[Document]:
    """Read every document of a folder, or of one file, in the order of their ids.

    One file is in memory at a time, of a JSONL file in UTF-8 one line and the ids seen so far. Plain text and
    Markdown come out exactly as they are in the file, line ends included; only a byte order mark is dropped.
    PDF needs the extra `pdf`; without it each PDF is a problem of its own.

    Args:
        folder_or_file: a folder (read with everything below it), or a file of a known suffix.
        on_problem: called with the id of the file and a `DocumentError` for whatever cannot be read; reading
            goes on. Files of other suffixes come as `UnsupportedSuffix`.

    Returns:
        An iterator over the documents.

    Raises:
        DocumentError: at once when the path is missing, holds no file of a known suffix or is a file of
            another one; at the end when not one document could be read.

    Example:
        >>> def complain(name, error): print(f"{name}: {error}")
        >>> for document in read_documents("library", complain): ...  # doctest: +SKIP
    """
    sources = scan(folder_or_file, on_problem=on_problem)
    return _read_all(sources, Path(folder_or_file), on_problem)


def _read_all(sources: list[Source], root: Path, on_problem: OnProblem) -> Iterator[Document]:
    found = False
    for source in sources:
        for document in _read_source(source, on_problem):
            found = True
            yield document
    if not found and root.is_file():
        raise DocumentError(
            f"expected text that can be read in {root}, but nothing in it could be; correct the problems reported"
        )
    if not found:
        raise DocumentError(
            f"expected a folder with {EXPECTED_SUFFIXES} files that can be read, but of the "
            f"{len(sources)} in {root} not one could be; correct the problems reported for each of them"
        )


def _read_source(source: Source, on_problem: OnProblem) -> Iterator[Document]:
    kind = format_of(source.path.name)
    try:
        if kind == "jsonl":
            yield from _read_records(source, on_problem)
        else:
            yield read_file(source)
    except DocumentError as error:
        on_problem(source.id, error)
    except MissingExtraError as error:
        # In a folder of texts, one PDF is not a reason to read none of them.
        on_problem(source.id, DocumentError(str(error)))
    except OSError as error:
        on_problem(source.id, unreadable(source.id, error))


def read_file(source: Source) -> Document:
    """The one document of a file that is no JSONL.

    Raises:
        DocumentError: it is no text, or has none.
        MissingExtraError: a PDF, without the extra `pdf`.
        OSError: it cannot be read.
    """
    kind = format_of(source.path.name)
    if kind == "pdf":
        text, title = extract_pdf(source.path.read_bytes(), source.id)
        return _document(source.id, title or source.path.stem, text)
    text = decode_text(source.path.read_bytes(), source.id)
    title = ""
    if kind == "markdown":
        title = _markdown_title(text)
    elif kind == "html":
        try:
            text, title = extract_html(text)
        except ValueError as error:
            message = (
                f"expected HTML in {source.id}, but it has a character reference of too many digits; "
                "correct it or leave it out"
            )
            raise DocumentError(message) from error
    if not text or text.isspace():
        raise DocumentError(f"expected text in {source.id}, but it is empty; fill it or leave it out")
    return _document(source.id, title or source.path.stem, text)


def _read_records(source: Source, on_problem: OnProblem) -> Iterator[Document]:
    seen: set[str] = set()
    is_empty = True
    for number, start, line in _lines(source):
        try:
            content = line if isinstance(line, str) else decode_text(line, source.id, offset=start)
            # A long line does not stay in memory beside its document.
            line = ""
            if not content or content.isspace():
                continue
            is_empty = False
            documents = _record(source, number, content)
            for document in documents:
                if document.id in seen:
                    raise DocumentError(
                        f"expected every record id once in {source.id}, but line {number} repeats "
                        f"{document.id.removeprefix(source.id + '#')!r}; give it another id or remove it"
                    )
        except DocumentError as error:
            is_empty = False
            on_problem(source.id, error)
            continue
        seen.update(document.id for document in documents)
        content = ""
        yield from documents
    if is_empty:
        raise DocumentError(f"expected text in {source.id}, but it is empty; fill it or leave it out")


def _lines(source: Source) -> Iterator[tuple[int, int, bytes | str]]:
    """Yield (line number from 1, byte offset, line); UTF-16 is decoded whole: no byte ends its lines."""
    with source.path.open("rb") as file:
        head = file.read(_SNIFFED_BYTES)
        file.seek(0)
        if starts_as_utf16(head):
            text = decode_text(file.read(), source.id)
            for number, line in enumerate(text.split("\n"), start=1):
                yield number, 0, line
            return
        nul = head.find(b"\0")
        if nul >= 0:
            raise UnsupportedEncoding(
                f"expected text in {source.id}, but byte {nul} is a NUL as in binary files; "
                "convert the file to UTF-8 text or leave it out"
            )
        number = 0
        while file.peek(1):
            number += 1
            yield number, file.tell(), file.readline()


def _record(source: Source, number: int, line: str) -> list[Document]:
    where = f"line {number} of {source.id}"
    record = parse_record(line, where)
    title = string_field(record, "title", where).strip() if record.get("title") is not None else ""
    title = title or source.path.stem
    found = record_id(record, where)
    name = f"{source.id}#{number if found is None else found}"
    field = next((name for name in TEXT_FIELDS if name in record), None)
    if field is not None:
        return [_document(name, title, text_field(record, field, where))]
    if _TEXTS_FIELD not in record:
        raise DocumentError(
            f"expected a field {', '.join(map(repr, TEXT_FIELDS))} or {_TEXTS_FIELD!r} on {where}, but got "
            f"{sorted(record)[:8]}; give the field that holds the text one of these names, or add it"
        )
    texts = record[_TEXTS_FIELD]
    if not isinstance(texts, list) or not texts:
        kind = "an empty one" if isinstance(texts, list) else f"a {type(texts).__name__}"
        raise DocumentError(
            f"expected a list of texts in {_TEXTS_FIELD!r} on {where}, but got {kind}; correct or remove the line"
        )
    numbered = {f"{_TEXTS_FIELD}[{place}]": text for place, text in enumerate(texts)}
    return [
        _document(f"{name}/{place}", title, text_field(numbered, field, where))
        for place, field in enumerate(numbered, start=1)
    ]


def _markdown_title(text: str) -> str:
    fence = None
    for match in _HEADING_OR_FENCE.finditer(text):
        heading, mark = match.groups()
        if mark is not None:
            fence = mark if fence is None else (None if mark == fence else fence)
        elif fence is None:
            title = heading.strip()
            unclosed = title.rstrip("#")
            # "# Title ##" ends with closing marks, "# C#" does not.
            if not unclosed or unclosed[-1].isspace():
                title = unclosed.rstrip()
            if title:
                return title
    return ""


def _document(name: str, title: str, text: str) -> Document:
    # The length of the title keeps ("ab", "c") and ("a", "bc") apart.
    digest = hashlib.sha256(f"{len(title)}\n{title}".encode())
    # A slice at a time: as a whole, the bytes of a large text would stand beside it once more.
    for start in range(0, len(text), _HASHED_AT_ONCE):
        digest.update(text[start : start + _HASHED_AT_ONCE].encode("utf-8"))
    return Document(id=name, title=title, text=text, sha256=digest.hexdigest())
