"""Raw text as rows of one length to pretrain on, whatever the size of the corpus.

Documents are read in pieces and tokenized by a `TokenCache`; the ids stay in its files. All of them, one after another
with a [SEP] behind each document, are one long line of tokens, and row number i is always the same stretch of it.
Memory holds a few numbers for each piece of 16,000 characters.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from narrows._plural import count
from narrows.data.articles import read_articles
from narrows.data.files import UNREADABLE, open_text, unreadable
from narrows.data.token_cache import TokenCache
from narrows.errors import UsageError

__all__ = [
    "RAW_LAYOUTS",
    "PackedRow",
    "PackedRows",
    "Piece",
    "TokenizedPieces",
    "hold_out",
    "read_pieces",
    "tokenize_pieces",
]

# Of a document that are tokenized and read at once: a row is read from disk with the pieces that it lies in.
_PIECE_CHARACTERS = 16_000
# A line that is longer is cut, wherever that is: memory is to hold it.
_LONGEST_LINE = 1_000_000


class Piece(NamedTuple):
    """A part of a document, or all of it.

    Attributes:
        text: is not blank.
        ends: whether the document ends with it.
        held_out: whether its document is not trained on.
    """

    text: str
    ends: bool
    held_out: bool = False


class TokenizedPieces(NamedTuple):
    """The token ids of pieces, in files.

    Attributes:
        tokens: ids of each piece, an int32 array each.
        lengths: int64 `[pieces]`, how many.
        ends: bool `[pieces]`, whether a document ends with the piece.
        held_out: bool `[pieces]`, whether its document is not trained on.
    """

    tokens: Sequence[np.ndarray]
    lengths: np.ndarray
    ends: np.ndarray
    held_out: np.ndarray


class PackedRow(NamedTuple):
    """`[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]`, full to the last token.

    Attributes:
        input_ids: int64 `[length]`.
        segments: int64 `[length]`, 0 for [CLS], A and its [SEP], 1 for B and its [SEP].
        follows: whether B comes right after A in the text; True where there is no B.
    """

    input_ids: np.ndarray
    segments: np.ndarray
    follows: bool


def read_pieces(path: Path, *, layout: str) -> Iterator[Piece]:
    """The documents of a file, in pieces that are cut at the ends of lines.

    Args:
        path: of the file; a name in `.gz` is unpacked.
        layout: a name of `RAW_LAYOUTS`: `text`, documents with blank lines between them; `lines`, a document a line;
            `file`, all of it is one document; `articles`, whatever `narrows.data.read_articles` reads, which holds the
            file in memory.

    Raises:
        UsageError: an unknown layout, a file that cannot be read, or one without text.

    Example:
        `list(read_pieces(Path("books.txt.gz"), layout="text"))`
    """
    if layout not in RAW_LAYOUTS:
        raise UsageError(f"expected a layout of raw text, {', '.join(RAW_LAYOUTS)}, got {layout!r}; choose one of them")
    found = False
    for document in RAW_LAYOUTS[layout](path):
        held: str | None = None
        for text in _pieces(document):
            if held is not None:
                found = True
                yield Piece(held, ends=False)
            held = text
        if held is not None:
            found = True
            yield Piece(held, ends=True)
    if not found:
        raise UsageError(f"expected text in {path}, got none; mend the recipe")


def hold_out(pieces: Iterable[Piece], *, share: float) -> Iterator[Piece]:
    """Marks about so large a share of the documents as held out, by what they begin with: the same ones every time.

    A document that comes twice is on one side.

    Args:
        pieces: of documents in their order.
        share: from 0 to below 1.
    """
    begins, held_out = True, False
    for piece in pieces:
        if begins:
            digest = hashlib.blake2b(piece.text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            held_out = int.from_bytes(digest, "little") < share * 2**64
        yield piece._replace(held_out=held_out)
        begins = piece.ends


def tokenize_pieces(pieces: Iterable[Piece], cache: TokenCache) -> TokenizedPieces:
    """Tokenizes what the cache does not hold; pieces are taken as they are needed.

    Raises:
        UsageError: a text is no Unicode.
        OutputError: the cache cannot be written.
    """
    ends, held_out = bytearray(), bytearray()

    def texts() -> Iterator[str]:
        for piece in pieces:
            ends.append(piece.ends)
            held_out.append(piece.held_out)
            yield piece.text

    tokens = cache.tokenize(texts())
    return TokenizedPieces(tokens, tokens.lengths(), np.array(ends, dtype=bool), np.array(held_out, dtype=bool))


class PackedRows:
    """Rows of one length, each a stretch of all the text; none is padded, and a rest shorter than a row is left out.

    Of two segments, B begins where A ends in one half of the cases, and is the B of another row in the other half, as
    BERT's next-sentence pairs are made.

    Args:
        pieces: from `tokenize_pieces`.
        held_out: take the held-out documents, or the others.
        length: tokens of a row, special ones among them.
        cls: id of [CLS].
        sep: id of [SEP], which also stands between documents.
        segments: 1 or 2.

    Raises:
        UsageError: less text than a row, a row without room for text, or another number of segments.

    Example:
        `PackedRows(pieces, held_out=False, length=512, cls=101, sep=102).row(0, np.random.default_rng(0)).input_ids`
    """

    def __init__(
        self, pieces: TokenizedPieces, *, held_out: bool, length: int, cls: int, sep: int, segments: int = 1
    ) -> None:
        if segments not in (1, 2):
            raise UsageError(f"expected 1 or 2 segments, got {segments}; the paper has 2")
        self._room = length - segments - 1
        if self._room < segments:
            raise UsageError(f"expected rows with room for text, got {count(length, 'token')}; raise the length")
        self._tokens, self._cls, self._sep, self._segments = pieces.tokens, cls, sep, segments
        self._numbers = np.flatnonzero(pieces.held_out == held_out)
        self._ends = pieces.ends[self._numbers]
        # Where each piece begins in the line of all tokens; a document's [SEP] is its last piece's.
        self._starts = np.zeros(len(self._numbers) + 1, dtype=np.int64)
        np.cumsum(pieces.lengths[self._numbers] + self._ends, out=self._starts[1:])
        self.tokens = int(self._starts[-1])
        if self.tokens < self._room:
            which = "held-out text" if held_out else "text to train on"
            raise UsageError(
                f"expected {which} for a row of {count(length, 'token')} at least, got {count(self.tokens, 'token')}; "
                "name more data, or lower the length"
            )

    def __len__(self) -> int:
        return self.tokens // self._room

    def row(self, index: int, generator: np.random.Generator) -> PackedRow:
        """Row number `index`; the generator chooses whether B follows, and which B does not."""
        start = index * self._room
        if self._segments == 1:
            ids = np.concatenate([[self._cls], self._stretch(start, start + self._room), [self._sep]])
            return PackedRow(ids, np.zeros(len(ids), dtype=np.int64), follows=True)
        cut = self._room // 2
        other = index
        if len(self) > 1 and generator.random() < 0.5:
            other = (index + int(generator.integers(1, len(self)))) % len(self)
        first = self._stretch(start, start + cut)
        second = self._stretch(other * self._room + cut, (other + 1) * self._room)
        ids = np.concatenate([[self._cls], first, [self._sep], second, [self._sep]])
        return PackedRow(ids, (np.arange(len(ids)) >= cut + 2).astype(np.int64), follows=other == index)

    def _stretch(self, start: int, end: int) -> np.ndarray:
        """Tokens of the line, int64."""
        parts = []
        place = int(np.searchsorted(self._starts, start, side="right")) - 1
        while start < end:
            begin, stop = int(self._starts[place]), int(self._starts[place + 1])
            ids = self._tokens[int(self._numbers[place])].astype(np.int64)
            if self._ends[place]:
                ids = np.append(ids, self._sep)
            parts.append(ids[start - begin : end - begin])
            start, place = min(end, stop), place + 1
        return np.concatenate(parts)


def _text_documents(path: Path) -> Iterator[Iterable[str]]:
    for is_blank, lines in groupby(_lines(path), key=str.isspace):
        if not is_blank:
            yield lines


def _line_documents(path: Path) -> Iterator[Iterable[str]]:
    for line in _lines(path):
        yield [line]


def _file_documents(path: Path) -> Iterator[Iterable[str]]:
    yield _lines(path)


def _article_documents(path: Path) -> Iterator[Iterable[str]]:
    for article in read_articles(path):
        yield [f"{paragraph}\n" for paragraph in article.paragraphs]


def _lines(path: Path) -> Iterator[str]:
    try:
        with open_text(path) as file:
            while line := file.readline(_LONGEST_LINE):
                yield line
    except UNREADABLE as error:
        raise unreadable(path, error) from error


def _pieces(lines: Iterable[str]) -> Iterator[str]:
    held: list[str] = []
    characters = 0
    for line in lines:
        for part in _parts(line):
            held.append(part)
            characters += len(part)
            if characters >= _PIECE_CHARACTERS:
                yield from _not_blank(held)
                held, characters = [], 0
    yield from _not_blank(held)


def _parts(line: str) -> Iterator[str]:
    """A line no longer than a piece, or several parts of it, cut between words where there are spaces."""
    while len(line) > _PIECE_CHARACTERS:
        cut = line.rfind(" ", 1, _PIECE_CHARACTERS)
        cut = _PIECE_CHARACTERS if cut < 0 else cut
        yield line[:cut]
        line = line[cut:]
    yield line


def _not_blank(lines: list[str]) -> Iterator[str]:
    text = "".join(lines)
    if text and not text.isspace():
        yield text


RAW_LAYOUTS: Mapping[str, Callable[[Path], Iterator[Iterable[str]]]] = {
    "text": _text_documents,
    "lines": _line_documents,
    "file": _file_documents,
    "articles": _article_documents,
}
"""How the documents of a file are told apart, by name."""
