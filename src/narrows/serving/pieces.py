"""A document of any length into tokenized passages, a piece of its text at a time."""

import re
from array import array
from collections.abc import Iterator
from typing import NamedTuple

from narrows.documents import Document
from narrows.serving.engine import Engine
from narrows.serving.passages import passages_of

__all__ = ["TokenizedPassage", "is_large", "pieces_of", "tokenized_between", "tokenized_passages"]

# A longer text is tokenized in pieces: the places of its tokens take some hundred bytes each.
_PIECE_CHARACTERS = 200_000
_TOKENIZED_AT_ONCE = 64
_PARAGRAPH = re.compile(r"\n\s*\n|\r\n\s*\r\n")


class TokenizedPassage(NamedTuple):
    """Characters [start, end) of a document, and their token ids with the closing [SEP]."""

    start: int
    end: int
    ids: list[int]


def is_large(document: Document) -> bool:
    """Whether a document is cut into pieces: more than 200,000 characters."""
    return len(document.text) > _PIECE_CHARACTERS


def pieces_of(document: Document) -> Iterator[tuple[int, Document]]:
    """Cut a document of more than 200,000 characters into such pieces, between paragraphs, lines or words.

    Yields:
        Where the piece begins, in characters, and the piece; one piece for a smaller document.
    """
    start, text = 0, document.text
    while start < len(text):
        end = start + _PIECE_CHARACTERS
        end = len(text) if end >= len(text) else _border(text, start + _PIECE_CHARACTERS // 2, end)
        yield start, Document(document.id, document.title, text[start:end], document.sha256)
        start = end


def tokenized_passages(engine: Engine, document: Document) -> Iterator[TokenizedPassage]:
    """A document's passages in order, tokenized piece by piece."""
    for shift, piece in pieces_of(document):
        for span, ids in passages_of(engine, piece):
            yield TokenizedPassage(span.start + shift, span.end + shift, ids)


def tokenized_between(engine: Engine, document: Document, borders: "array[int]") -> Iterator[TokenizedPassage]:
    """The passages between pairs of borders; a passage's ids are those of its own text (see `passages_of`)."""
    for first in range(0, len(borders), 2 * _TOKENIZED_AT_ONCE):
        some = borders[first : first + 2 * _TOKENIZED_AT_ONCE]
        spans = list(zip(some[::2], some[1::2], strict=True))
        texts = engine.tokenize([document.text[start:end] for start, end in spans])
        for (start, end), tokens in zip(spans, texts, strict=True):
            yield TokenizedPassage(start, end, engine.close_passage(tokens.ids))


def _border(text: str, low: int, high: int) -> int:
    """The last good place to cut at within [low, high]: after a paragraph, a line, a word, or anywhere."""
    paragraphs = [match.end() for match in _PARAGRAPH.finditer(text, low, high)]
    if paragraphs:
        return paragraphs[-1]
    for mark in ("\n", " ", "\t", "\u3000", "\u3002"):
        found = text.rfind(mark, low, high)
        if found >= 0:
            return found + 1
    return high
