"""Training data of pretraining: raw text into packed rows, masked anew in every epoch, and rows into batches."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from narrows._plural import count
from narrows.data import PackedRows, Piece, TokenCache, TokenizedPieces, hold_out, read_pieces, tokenize_pieces
from narrows.data.masking import mask_tokens, word_numbers, word_starts
from narrows.errors import UsageError
from narrows.training.pretraining.recipe import MaskingSection, PretrainingDataSection, RawPart

__all__ = [
    "Item",
    "MaskedRow",
    "MaskedRows",
    "RowPlan",
    "Vocabulary",
    "collate_rows",
    "paths_of",
    "pieces_of",
    "read_corpus",
    "vocabulary_of",
]

_WORD_STRATEGIES = ("whole_word", "word_span")


class Item(NamedTuple):
    """A row, and the epoch that it is seen in: its tokens are chosen anew in each."""

    epoch: int
    row: int


class MaskedRow(NamedTuple):
    """What a model reads and is asked, int64 `[length]` each; `follows` is of its two segments, and whatever else is
    drawn for the row in this epoch is drawn from `seed`."""

    input_ids: np.ndarray
    token_type_ids: np.ndarray
    labels: np.ndarray
    follows: bool
    seed: int


class Vocabulary(NamedTuple):
    """What masking knows of a tokenizer.

    Attributes:
        cls, sep, mask: ids.
        special: bool `[vocabulary]`, what is never predicted.
        starts: bool `[vocabulary]`, what begins a word.
        replacements: ids that random tokens are drawn from: all that are not special.
    """

    cls: int
    sep: int
    mask: int
    special: np.ndarray
    starts: np.ndarray
    replacements: np.ndarray


def vocabulary_of(tokenizer: Any, *, strategy: str) -> Vocabulary:
    """The vocabulary of a tokenizer of transformers; words are told where the strategy needs them.

    Raises:
        UsageError: a strategy of words, and a vocabulary that does not mark any.
    """
    size = len(tokenizer)
    special = np.isin(np.arange(size), tokenizer.all_special_ids)
    starts = np.ones(size, dtype=bool)
    if strategy in _WORD_STRATEGIES:
        starts = word_starts(str(piece) for piece in tokenizer.convert_ids_to_tokens(list(range(size))))
    return Vocabulary(
        cls=tokenizer.cls_token_id,
        sep=tokenizer.sep_token_id,
        mask=tokenizer.mask_token_id,
        special=special,
        starts=starts,
        replacements=np.flatnonzero(~special),
    )


def read_corpus(section: PretrainingDataSection, folder: Path, cache: TokenCache) -> TokenizedPieces:
    """All documents of a recipe, those to evaluate on marked as held out.

    Raises:
        UsageError: a missing file, or one that cannot be read or holds no text.
        OutputError: the cache cannot be written.
    """

    def pieces() -> Iterator[Piece]:
        yield from hold_out(pieces_of(section.train, folder), share=section.tune_share)
        for piece in pieces_of(section.tune, folder):
            yield piece._replace(held_out=True)

    return tokenize_pieces(pieces(), cache)


class MaskedRows(Dataset[MaskedRow]):
    """Packed rows with hidden tokens. A row of an epoch is a pure function of the seed.

    Args:
        packed: the rows.
        vocabulary: of their tokens.
        masking: how tokens are chosen.
        length: tokens of a row.
        seed: of the run.
    """

    def __init__(self, packed: PackedRows, vocabulary: Vocabulary, masking: MaskingSection, *, length: int, seed: int):
        self._packed, self._vocabulary, self._seed = packed, vocabulary, seed
        self._options: dict[str, Any] = {
            "strategy": masking.strategy,
            "num_predict": masking.predicted(length),
            "as_mask": masking.as_mask,
            "as_random": masking.as_random,
            "mask_id": vocabulary.mask,
            "replacements": vocabulary.replacements,
        }

    def __len__(self) -> int:
        return len(self._packed)

    def __getitem__(self, item: Item) -> MaskedRow:
        generator = np.random.default_rng([self._seed, item.epoch, item.row])
        row = self._packed.row(item.row, generator)
        words = word_numbers(row.input_ids, starts=self._vocabulary.starts, special=self._vocabulary.special)
        masked = mask_tokens(row.input_ids, words, generator=generator, **self._options)
        seed = int(generator.integers(2**63))
        return MaskedRow(masked.input_ids, row.segments, masked.labels, row.follows, seed)


class RowPlan(Sampler[list[Item]]):
    """All batches of a run, as they are asked for: epochs, each in its own order, one after another.

    Batch number i is a pure function of the seed, so that a resumed run goes on with the very next one. Memory holds
    the order of one epoch.

    Args:
        rows: of an epoch.
        batch_rows: rows of a batch.
        batches: of the run.
        seed: decides the order.

    Raises:
        UsageError: no batch.
    """

    def __init__(self, *, rows: int, batch_rows: int, batches: int, seed: int):
        if batches < 1:
            raise UsageError(
                f"expected at least one batch of {count(batch_rows, 'row')}, got {count(rows, 'row')} and too few "
                "epochs; raise optimiser.epochs, or name optimiser.steps"
            )
        self._rows, self._batch_rows, self._batches, self._seed = rows, batch_rows, batches, seed

    def __len__(self) -> int:
        return self._batches

    def __iter__(self) -> Iterator[list[Item]]:
        items = self._items()
        for _ in range(self._batches):
            yield [next(items) for _ in range(self._batch_rows)]

    def _items(self) -> Iterator[Item]:
        epoch = 0
        while True:
            for row in np.random.default_rng([self._seed, epoch]).permutation(self._rows):
                yield Item(epoch, int(row))
            epoch += 1


def collate_rows(rows: Sequence[MaskedRow], *, cls_segment: int = 0) -> Mapping[str, Tensor]:
    """Rows of one length as a batch.

    Args:
        rows: of one batch.
        cls_segment: segment of [CLS]; Funnel's is 2.

    Returns:
        `input_ids`, `token_type_ids`, `labels` `[batch, length]`, and `follows` and `seeds` `[batch]`.
    """
    segments = torch.from_numpy(np.stack([row.token_type_ids for row in rows]))
    segments[:, 0] = cls_segment
    return {
        "input_ids": torch.from_numpy(np.stack([row.input_ids for row in rows])),
        "token_type_ids": segments,
        "labels": torch.from_numpy(np.stack([row.labels for row in rows])),
        "follows": torch.tensor([row.follows for row in rows]),
        "seeds": torch.tensor([row.seed for row in rows]),
    }


def pieces_of(parts: Sequence[RawPart], folder: Path) -> Iterator[Piece]:
    """The documents of a recipe's parts, in their order.

    Raises:
        UsageError: a missing file, or one that cannot be read or holds no text.
    """
    for part in parts:
        for path in paths_of(part, folder):
            yield from read_pieces(path, layout=part.format)


def paths_of(part: RawPart, folder: Path) -> list[Path]:
    """The files of a part: of several with `*`, in the order of their names.

    Raises:
        UsageError: there is none.
    """
    found = sorted(folder.glob(part.file)) if "*" in part.file else [folder / part.file]
    if not found or not found[0].exists():
        raise UsageError(
            f"expected data at {folder / part.file}, got nothing there; pass --data DIR or set NARROWS_DATA"
        )
    return found
