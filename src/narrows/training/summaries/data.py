"""Training data of summarisers: records and plain text into rows of tokens, and rows into batches."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils.data import Dataset

from narrows._plural import count
from narrows.data import SummaryExample, TokenCache, TokenizedTexts, normalize_title, read_summaries
from narrows.data.files import UNREADABLE, open_text, unreadable
from narrows.data.long_inputs import InputEncoder
from narrows.data.span_corruption import corrupt_spans, corrupted_lengths
from narrows.errors import UsageError
from narrows.training.summaries.recipe import CorruptionSection, DataPart
from narrows.training.summaries.stages import Item, Stage
from narrows.training.titles import titles_of

__all__ = [
    "Corpus",
    "CorruptedRows",
    "Cut",
    "Row",
    "Rows",
    "SummaryRows",
    "collate_rows",
    "read_corpus",
    "read_examples",
    "read_text_corpus",
]

_IGNORED = -100
# Of a plain text in memory at once; a window of tokens does not reach from one piece into the next.
_PIECE_CHARACTERS = 1_000_000
# Shorter ends of pieces are left out: there is next to nothing to take out of them.
_LEAST_TOKENS = 8


class Row(NamedTuple):
    """What a model reads and what it is to write, the end of text among both."""

    input_ids: list[int]
    labels: list[int]


class Cut(NamedTuple):
    """What is not read of a record at a stage's length, and not asked for of its summary; 0 where nothing is cut."""

    id: str
    max_input_tokens: int
    tokens: int
    dropped: int
    parts: int
    target_tokens: int
    target_dropped: int


class Record(NamedTuple):
    """A record of a corpus: places of its texts among the token ids, and how often an epoch sees it."""

    id: str
    documents: tuple[int, ...]
    query: str | None
    target: int
    times: int


class Corpus(NamedTuple):
    """Records and the token ids of their texts; no text is in memory."""

    records: list[Record]
    tokens: TokenizedTexts


class Rows(Protocol):
    """What a trainer takes its rows from."""

    stages: list[Stage]
    cuts: list[Cut]

    def __len__(self) -> int: ...

    def __getitem__(self, item: Item) -> Row: ...


def read_examples(part: DataPart, folder: Path) -> Iterator[SummaryExample]:
    """The examples of one part of a recipe.

    Raises:
        UsageError: a missing file, an unknown part of the split, or nothing left.
    """
    path, ids, found = _path(part, folder), titles_of(part, folder), False
    for example in read_summaries(path, layout=part.format):
        if ids is None or normalize_title(example.id) in ids:
            found = True
            yield example
    if not found:
        raise UsageError(f"expected records in {path}, got none after the choice of ids; mend the recipe")


def read_corpus(parts: Sequence[DataPart], folder: Path, cache: TokenCache) -> Corpus:
    """The records of some parts, their texts tokenized; a document of several records is tokenized once.

    Raises:
        UsageError: as `read_examples`.
        OutputError: the cache cannot be written.
    """
    records: list[Record] = []
    places: dict[bytes, int] = {}

    def texts() -> Iterator[str]:
        for part in parts:
            for example in read_examples(part, folder):
                documents = []
                for document in example.documents:
                    key = _digest(document)
                    if key not in places:
                        places[key] = counted[0]
                        counted[0] += 1
                        yield document
                    documents.append(places[key])
                for summary in example.references if part.references == "all" else example.references[:1]:
                    records.append(Record(example.id, tuple(documents), example.query, counted[0], part.times))
                    counted[0] += 1
                    yield summary

    counted = [0]
    tokens = cache.tokenize(texts())
    return Corpus(records, tokens)


def read_text_corpus(parts: Sequence[DataPart], folder: Path, cache: TokenCache) -> tuple[TokenizedTexts, list[int]]:
    """Plain text in pieces, and the documents of records, tokenized; and how often an epoch sees each piece.

    Raises:
        UsageError: as `read_examples`, a file that cannot be read, or one without text.
        OutputError: the cache cannot be written.
    """
    times: list[int] = []

    def texts() -> Iterator[str]:
        for part in parts:
            before = len(times)
            pieces = _pieces(_path(part, folder)) if part.format == "text" else _documents(part, folder)
            for piece in pieces:
                times.append(part.times)
                yield piece
            if len(times) == before:
                raise UsageError(f"expected text in {folder / part.file}, got none; mend the recipe")

    return cache.tokenize(texts()), times


class SummaryRows(Dataset[Row]):
    """Records as rows, cut anew for the length of each stage.

    A record has one row, or with the truncation `windows` one a window, each with the record's whole summary.

    Args:
        corpus: from `read_corpus`.
        stages: an encoder with its longest input and its share of the steps, a stage.
        max_output_tokens: of a summary, the end of text among them.
        eos: id of the end of text.
    """

    def __init__(
        self, corpus: Corpus, stages: Sequence[tuple[InputEncoder, int, float]], *, max_output_tokens: int, eos: int
    ):
        self._corpus, self._room, self._eos = corpus, max_output_tokens - 1, eos
        self._encoders = [encoder for encoder, _, _ in stages]
        self._rows: list[list[tuple[int, int]]] = []
        self.stages: list[Stage] = []
        self.cuts: list[Cut] = []
        sizes = corpus.tokens.lengths()
        for encoder, max_tokens, share in stages:
            rows: list[tuple[int, int]] = []
            lengths: list[int] = []
            records: list[list[int]] = []
            for number, record in enumerate(corpus.records):
                inputs, report = self._encode(encoder, record)
                target = int(sizes[record.target])
                cut = max(0, target - self._room)
                self.cuts.append(Cut(record.id, max_tokens, report.tokens, report.dropped, report.parts, target, cut))
                own = list(range(len(rows), len(rows) + len(inputs)))
                rows += [(number, part) for part in range(len(inputs))]
                lengths += [len(ids) + min(target, self._room) + 1 for ids in inputs]
                records += [own] * record.times
            self._rows.append(rows)
            self.stages.append(Stage(share, lengths, records))

    def __len__(self) -> int:
        return len(self._rows[-1])

    def __getitem__(self, item: Item) -> Row:
        number, part = self._rows[item.stage][item.row]
        record = self._corpus.records[number]
        inputs, _ = self._encode(self._encoders[item.stage], record)
        target = self._corpus.tokens[record.target][: self._room].tolist()
        return Row(inputs[part], [*target, self._eos])

    def _encode(self, encoder: InputEncoder, record: Record):
        documents: Any = [self._corpus.tokens[place] for place in record.documents]
        return encoder.encode_ids(documents, query=record.query)


class CorruptedRows(Dataset[Row]):
    """Windows of plain text, out of which spans are taken anew in every epoch.

    Args:
        tokens: of pieces of text.
        times: how often an epoch sees each piece.
        stages: longest input, and share of the steps, a stage.
        corruption: how much is taken out.
        sentinels: their ids, in order.
        eos: id of the end of text.
        seed: decides what is taken out of a window in an epoch.

    Raises:
        UsageError: no piece of `_LEAST_TOKENS` tokens.
    """

    def __init__(
        self,
        tokens: TokenizedTexts,
        times: Sequence[int],
        stages: Sequence[tuple[int, float]],
        *,
        corruption: CorruptionSection,
        sentinels: Sequence[int],
        eos: int,
        seed: int,
    ):
        self._tokens, self._sentinels, self._eos, self._seed = tokens, sentinels, eos, seed
        self._options = corruption.model_dump()
        self._windows: list[list[tuple[int, int, int]]] = []
        self.stages: list[Stage] = []
        self.cuts: list[Cut] = []
        # Records are stretches of the longest stage in all of them: what one leaves of an epoch, the next takes.
        stretches = [
            stretch
            for piece, length in enumerate(tokens.lengths().tolist())
            for stretch in _windows(piece, 0, length, max_tokens=max(longest for longest, _ in stages))
        ]
        if not stretches:
            raise UsageError(
                f"expected text of at least {count(_LEAST_TOKENS, 'token')} to take spans out of, got less; "
                "name more data"
            )
        for max_tokens, share in stages:
            windows: list[tuple[int, int, int]] = []
            records: list[list[int]] = []
            for stretch in stretches:
                own = _windows(*stretch, max_tokens=max_tokens)
                records += [list(range(len(windows), len(windows) + len(own)))] * times[stretch[0]]
                windows += own
            lengths = [
                sum(corrupted_lengths(end - start, sentinels=len(sentinels), **self._options)) + 2
                for _, start, end in windows
            ]
            self._windows.append(windows)
            self.stages.append(Stage(share, lengths, records))

    def __len__(self) -> int:
        return len(self._windows[-1])

    def __getitem__(self, item: Item) -> Row:
        piece, start, end = self._windows[item.stage][item.row]
        random = Random(f"{self._seed}/{item.stage}/{item.epoch}/{item.row}")
        ids = self._tokens[piece][start:end].tolist()
        inputs, targets = corrupt_spans(ids, sentinels=self._sentinels, random=random, **self._options)
        return Row([*inputs, self._eos], [*targets, self._eos])


def _windows(piece: int, start: int, end: int, *, max_tokens: int) -> list[tuple[int, int, int]]:
    """Windows over tokens `start` to `end` of a piece, for inputs of at most `max_tokens`."""
    # With its end of text an input is no longer than a window, since a span becomes one sentinel.
    size = max_tokens - 1
    cuts = [(piece, first, min(first + size, end)) for first in range(start, end, size)]
    return [cut for cut in cuts if cut[2] - cut[1] >= _LEAST_TOKENS]


def collate_rows(rows: Sequence[Row], *, pad: int, start: int) -> dict[str, Tensor]:
    """Rows padded on the right to the longest.

    Args:
        rows: of one batch.
        pad: id of padding.
        start: id that the decoder starts with.

    Returns:
        `input_ids`, `attention_mask` `[batch, length]`; `labels`, −100 where there is nothing to write, and
        `decoder_input_ids`, the labels shifted right, `[batch, target]`.
    """
    longest = max(len(row.input_ids) for row in rows)
    target = max(len(row.labels) for row in rows)

    def padded(values: list[int], length: int, fill: int) -> list[int]:
        return values + [fill] * (length - len(values))

    return {
        "input_ids": torch.tensor([padded(row.input_ids, longest, pad) for row in rows]),
        "attention_mask": torch.tensor([padded([1] * len(row.input_ids), longest, 0) for row in rows]),
        "labels": torch.tensor([padded(row.labels, target, _IGNORED) for row in rows]),
        "decoder_input_ids": torch.tensor([padded([start, *row.labels[:-1]], target, pad) for row in rows]),
    }


def _path(part: DataPart, folder: Path) -> Path:
    path = folder / part.file
    if not path.exists():
        raise UsageError(f"expected data at {path}, got nothing there; pass --data DIR or set NARROWS_DATA")
    return path


def _documents(part: DataPart, folder: Path) -> Iterator[str]:
    """Each document of a part's records once, whatever number of records ask about it."""
    seen: set[bytes] = set()
    for example in read_examples(part, folder):
        for document in example.documents:
            key = _digest(document)
            if key not in seen and not document.isspace():
                seen.add(key)
                yield document


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _pieces(path: Path) -> Iterator[str]:
    """A text file a piece at a time, cut at line ends; pieces without text are left out."""
    try:
        with open_text(path) as file:
            while lines := file.readlines(_PIECE_CHARACTERS):
                piece = "".join(lines)
                if piece and not piece.isspace():
                    yield piece
    except UNREADABLE as error:
        raise unreadable(path, error) from error
