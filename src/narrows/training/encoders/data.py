"""Raw text as rows of whole sentences: token ids in files, so that memory holds lengths and no text."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from narrows.data import (
    TokenCache,
    TokenizedTexts,
    read_articles,
    read_pairs,
    read_squad,
    read_text_fields,
)
from narrows.data.files import lines
from narrows.documents.sentences import sentences
from narrows.errors import UsageError
from narrows.training.encoders.recipe import TextPart
from narrows.training.titles import titles_of

__all__ = ["Special", "TextRow", "TextRows", "collate_rows", "read_rows", "special_tokens"]

_MOST_CHARACTERS = 1_000_000


class TextRow(NamedTuple):
    """A text as the student reads it, and as the teacher does where that has another tokenizer."""

    input_ids: list[int]
    teacher_ids: list[int] | None


class Special(NamedTuple):
    """Ids that a tokenizer puts before and after a text."""

    before: list[int]
    after: list[int]


class _Span(NamedTuple):
    """Sentences from `first` up to, but not with, `end`."""

    first: int
    end: int


class TextRows(Dataset[TextRow]):
    """Rows of sentences that follow one another in a text.

    Args:
        spans: the sentences of each row.
        tokens: ids of each sentence, for the student.
        special: of the student's tokenizer.
        longest: tokens of a row at most; what is beyond is cut.
        teacher: ids and special tokens for the teacher, where it has a tokenizer of its own.

    Attributes:
        lengths: tokens of each row, of the longer reading.
        truncated: rows that were cut.
    """

    def __init__(
        self,
        spans: Sequence[_Span],
        tokens: TokenizedTexts,
        special: Special,
        *,
        longest: int,
        teacher: tuple[TokenizedTexts, Special] | None,
    ):
        self._spans, self._longest = spans, longest
        self._readings = [(tokens, special)] + ([] if teacher is None else [teacher])
        whole = []
        for read, around in self._readings:
            sums = [0, *accumulate(read.lengths().tolist())]
            extra = len(around.before) + len(around.after)
            whole.append([sums[span.end] - sums[span.first] + extra for span in spans])
        longer = [max(each) for each in zip(*whole, strict=True)]
        self.lengths = [min(length, longest) for length in longer]
        self.truncated = sum(length > longest for length in longer)

    def __len__(self) -> int:
        return len(self._spans)

    def __getitem__(self, index: int) -> TextRow:
        span = self._spans[index]
        rows = []
        for tokens, special in self._readings:
            room = self._longest - len(special.before) - len(special.after)
            ids = [token for number in range(*span) for token in tokens[number].tolist()]
            rows.append([*special.before, *ids[:room], *special.after])
        return TextRow(rows[0], rows[1] if len(rows) == 2 else None)


def read_rows(
    parts: Sequence[TextPart],
    folder: Path,
    *,
    cache: Path,
    tokenizer: Any,
    teacher_tokenizer: Any | None,
    lengths: Sequence[int],
) -> TextRows:
    """The rows of some sources, tokenized into files.

    Args:
        parts: of the recipe.
        folder: of the data.
        cache: folder of the token ids.
        tokenizer: of the student.
        teacher_tokenizer: None: the student's.
        lengths: most tokens of a row, in turn.

    Raises:
        UsageError: a file that cannot be read or holds no text.
        OutputError: the cache cannot be written.
    """
    texts: list[tuple[int, int]] = []
    tokens = TokenCache(cache, tokenizer=tokenizer).tokenize(_sentences(parts, folder, texts))
    special = special_tokens(tokenizer)
    room = [length - len(special.before) - len(special.after) for length in lengths]
    spans = _pack(texts, tokens.lengths().tolist(), room)
    teacher = None
    if teacher_tokenizer is not None:
        own = TokenCache(cache, tokenizer=teacher_tokenizer).tokenize(_sentences(parts, folder, []))
        teacher = own, special_tokens(teacher_tokenizer)
    return TextRows(spans, tokens, special, longest=max(lengths), teacher=teacher)


def special_tokens(tokenizer: Any) -> Special:
    """What a tokenizer puts around a text.

    Raises:
        UsageError: that cannot be told.
    """
    bare = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a")["input_ids"]
    for start in range(len(whole) - len(bare) + 1):
        if bare and whole[start : start + len(bare)] == bare:
            return Special(whole[:start], whole[start + len(bare) :])
    raise UsageError(
        f"expected a tokenizer that puts its special tokens around a text, got {whole} for {bare}; choose another model"
    )


def collate_rows(rows: Sequence[TextRow], *, pad: int, teacher_pad: int) -> dict[str, Tensor]:
    """Rows padded on the right.

    Returns:
        `input_ids`, `attention_mask` `[batch, length]`, and where the teacher reads others, `teacher_ids` and
        `teacher_mask`.
    """
    ids, mask = _padded([row.input_ids for row in rows], pad)
    batch = {"input_ids": ids, "attention_mask": mask}
    own = [row.teacher_ids for row in rows if row.teacher_ids is not None]
    if own:
        batch["teacher_ids"], batch["teacher_mask"] = _padded(own, teacher_pad)
    return batch


def _padded(rows: Sequence[list[int]], pad: int) -> tuple[Tensor, Tensor]:
    ids = [torch.tensor(row) for row in rows]
    mask = pad_sequence([torch.ones_like(row) for row in ids], batch_first=True)
    return pad_sequence(ids, batch_first=True, padding_value=pad), mask


def _sentences(parts: Sequence[TextPart], folder: Path, texts: list[tuple[int, int]]) -> Iterator[str]:
    """Sentences one after another; `texts` gets, of each text, the sentences in it and how often an epoch sees it."""
    for part in parts:
        before = len(texts)
        for paragraphs in _texts(part, folder):
            number = 0
            for paragraph in paragraphs:
                for sentence in sentences(paragraph):
                    number += 1
                    yield paragraph[sentence.start : sentence.end]
            if number:
                texts.append((number, part.times))
        if len(texts) == before:
            raise UsageError(f"expected text in {folder / part.file}, got none; mend the recipe")


def _texts(part: TextPart, folder: Path) -> Iterator[Sequence[str]]:
    """The paragraphs of each text."""
    path = folder / part.file
    if not path.is_file():
        raise UsageError(f"expected data at {path}, got no such file; pass --data DIR or set NARROWS_DATA")
    if part.format == "articles":
        yield from (article.paragraphs for article in read_articles(path))
    elif part.format == "text":
        yield from _paragraphs(lines(path))
    else:
        yield from ((text,) for text in _single_texts(part, path, folder))


def _single_texts(part: TextPart, path: Path, folder: Path) -> Iterator[str]:
    """Texts of one paragraph. A context stands once for all the questions about it that follow one another."""
    if part.format == "jsonl":
        yield from read_text_fields(path, part.fields)
        return
    context, of_squad = None, part.format == "squad"
    for example in read_squad(path, titles=titles_of(part, folder)) if of_squad else read_pairs(path):
        yield example.question
        if example.context != context:
            yield (context := example.context)


def _paragraphs(read: Iterator[str]) -> Iterator[Sequence[str]]:
    """What stands between blank lines, in pieces where that is very long, so that no whole file is in memory."""
    held: list[str] = []
    size = 0
    for line in read:
        if line.strip():
            held.append(line)
            size += len(line)
        if held and (not line.strip() or size >= _MOST_CHARACTERS):
            yield ("".join(held),)
            held, size = [], 0
    if held:
        yield ("".join(held),)


def _pack(texts: Sequence[tuple[int, int]], lengths: Sequence[int], room: Sequence[int]) -> list[_Span]:
    """Sentences joined up to the room of each row, in turn; never over the end of a text."""
    spans: list[_Span] = []
    start = turn = 0
    for number, times in texts:
        own: list[_Span] = []
        first, end = start, start + number
        while first < end:
            last, tokens = first + 1, lengths[first]
            while last < end and tokens + lengths[last] <= room[turn % len(room)]:
                tokens += lengths[last]
                last += 1
            own.append(_Span(first, last))
            first, turn = last, turn + 1
        spans += own * times
        start = end
    return spans
