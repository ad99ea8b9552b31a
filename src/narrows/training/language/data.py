"""Training data of language models: texts as lines of tokens in files, and rows of one length out of them."""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from narrows._plural import count
from narrows.data import Piece, TokenCache, TokenizedPieces, tokenize_pieces
from narrows.errors import UsageError
from narrows.evaluation.language import Line
from narrows.hf.byte_tokenizer import BYTES
from narrows.training.language.recipe import LanguageRecipe
from narrows.training.language.text import ByteLine, byte_line, split_line
from narrows.training.pretraining.data import Item, paths_of, pieces_of
from narrows.training.pretraining.recipe import RawPart

__all__ = ["LanguageRows", "TextLine", "TokenLine", "collate_rows", "read_lines", "require_ids", "token_line"]

# Of a byte.
_VALUES = 256


class TextLine(Line, Protocol):
    """A line that also knows what its tokens are."""

    def head(self, share: float) -> "TextLine":
        """The first part of the line, at least about so large a share."""
        ...

    def counts(self) -> np.ndarray:
        """How often each id stands in the line, `[ids]`."""
        ...


class TokenLine:
    """Documents of subwords one after another, each behind a token that says that one begins, where there is such.

    That token is foretold too, but for the first, and stands for no byte. Without it the first token of the line is not
    foretold, though its bytes are counted.

    Args:
        pieces: from `tokenize_pieces`.
        sizes: int64 `[pieces]`, bytes of each in UTF-8.
        separator: id of the token between documents; None: they join.
    """

    def __init__(self, pieces: TokenizedPieces, sizes: np.ndarray, separator: int | None):
        self._pieces, self._sizes, self._separator = pieces, sizes, separator
        begins = np.concatenate([[True], pieces.ends[:-1]]) if len(pieces.ends) else pieces.ends
        self._begins = begins & (separator is not None)
        # Where each piece begins in the line.
        self._starts = np.zeros(len(pieces.lengths) + 1, dtype=np.int64)
        np.cumsum(pieces.lengths + self._begins, out=self._starts[1:])

    def __len__(self) -> int:
        return int(self._starts[-1])

    @property
    def scored_bytes(self) -> int:
        """Of all the text."""
        return int(self._sizes.sum())

    def read(self, start: int, stop: int) -> np.ndarray:
        """The tokens from `start` up to `stop`, int64."""
        parts = []
        place = int(np.searchsorted(self._starts, start, side="right")) - 1
        while start < stop:
            begin, end = int(self._starts[place]), int(self._starts[place + 1])
            parts.append(self._ids(place)[start - begin : stop - begin])
            start, place = min(end, stop), place + 1
        return np.concatenate(parts)

    def head(self, share: float) -> "TokenLine":
        """The first pieces, at least one, which have at least that share of the tokens."""
        kept = int(np.searchsorted(self._starts, share * len(self)))
        kept = min(max(1, kept), len(self._sizes))
        tokens, lengths, ends, held_out = self._pieces
        pieces = TokenizedPieces(tokens, lengths[:kept], ends[:kept], held_out[:kept])
        return TokenLine(pieces, self._sizes[:kept], self._separator)

    def counts(self) -> np.ndarray:
        """How often each id stands in the line."""
        found = np.zeros(0, dtype=np.int64)
        for place in range(len(self._sizes)):
            more = np.bincount(self._ids(place), minlength=len(found))
            more[: len(found)] += found
            found = more
        return found

    def _ids(self, place: int) -> np.ndarray:
        ids = self._pieces.tokens[place].astype(np.int64)
        if self._separator is None or not self._begins[place]:
            return ids
        return np.concatenate([[self._separator], ids])


class LanguageRows(Dataset[np.ndarray]):
    """Rows of a line: stretches that follow one another, begun at another place in each epoch.

    So an epoch sees each token once, all but those of at most two rows; rows at random places would leave out a third
    of a small text and see as much several times. The places move from epoch to epoch, so that a token has other tokens
    before it each time, and what is left out is another part. A row of an epoch is a pure function of the seed.

    Args:
        line: to train on.
        length: tokens of a row, to which the token behind it comes.
        seed: of the run.

    Raises:
        UsageError: less text than a row and the token behind it.
    """

    def __init__(self, line: Line, *, length: int, seed: int):
        if len(line) < length + 1:
            raise UsageError(
                f"expected text to train on for a row of {count(length, 'token')} and the one behind it, got "
                f"{count(len(line), 'token')}; name more data, or lower data.length"
            )
        self._line, self._length, self._seed = line, length, seed
        # One row fewer than there is room for, so that the places can move; of a single one they move by what is left.
        self._rows = max(1, (len(line) - 1) // length - 1)

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, item: Item) -> np.ndarray:
        """Int64 `[length + 1]`."""
        room = len(self._line) - 1 - self._rows * self._length
        # The third number keeps it apart from the order of the epoch's rows.
        shift = int(np.random.default_rng([self._seed, item.epoch, 1]).integers(room + 1))
        start = shift + item.row * self._length
        return self._line.read(start, start + self._length + 1)


def collate_rows(rows: Sequence[np.ndarray]) -> Mapping[str, Tensor]:
    """Rows as a batch: `input_ids`, and `labels`, the token behind each, int64 `[batch, length]`."""
    ids = torch.from_numpy(np.stack(rows))
    return {"input_ids": ids[:, :-1].contiguous(), "labels": ids[:, 1:].contiguous()}


def read_lines(
    recipe: LanguageRecipe, tokenizer: Any | None, *, data: Path, folder: Path, uses: Sequence[str]
) -> dict[str, TextLine]:
    """The texts of a recipe, their ids in files of `folder`.

    Args:
        tokenizer: of transformers; None: bytes.
        data: folder that the recipe's files lie in.
        uses: of `train`, `tune` and `test` those that are wanted; of these the ones that the recipe has are given.

    Raises:
        UsageError: a file that is missing, cannot be read or holds no text, or a format or split of a text that is read
            otherwise.
        OutputError: the token ids cannot be written.
    """
    section = recipe.data
    if section.split is not None:
        if tokenizer is not None:
            raise UsageError(
                f"expected a model of bytes for data.split, got {recipe.model.checkpoint}, which reads subwords; name "
                "files under data.tune instead"
            )
        line = _bytes(section.train, data, folder)
        parts = dict(zip(section.parts(), split_line(line, section.split), strict=True))
        return {use: parts[use] for use in uses}
    named = {use: parts for use, parts in section.parts().items() if use in uses and parts}
    if tokenizer is not None:
        return {use: token_line(pieces_of(parts, data), tokenizer, folder) for use, parts in named.items()}
    for use, parts in named.items():
        other = next((part.format for part in parts if part.format != "text"), None)
        if other is not None:
            raise UsageError(
                f"expected no format in data.{use} for the tokenizer {BYTES!r}, which reads files as they are, got "
                f"{other!r}; leave it out"
            )
    return {use: _bytes(parts, data, folder) for use, parts in named.items()}


def token_line(pieces: Iterator[Piece], tokenizer: Any, folder: Path) -> TokenLine:
    """Text as a line of a tokenizer's subwords, in files of `folder`; what begins a document is its [EOS], or [BOS].

    Raises:
        UsageError: a text is no Unicode, or the tokenizer is no fast one.
        OutputError: the ids cannot be written.
    """
    sizes = array("q")

    def counted() -> Iterator[Piece]:
        for piece in pieces:
            sizes.append(len(piece.text.encode("utf-8", "surrogatepass")))
            yield piece

    made = tokenize_pieces(counted(), TokenCache(folder, tokenizer=tokenizer))
    separator = tokenizer.bos_token_id if tokenizer.eos_token_id is None else tokenizer.eos_token_id
    return TokenLine(made, np.array(sizes, dtype=np.int64), separator)


def require_ids(line: TextLine, tokenizer: Any | None, vocabulary: int) -> None:
    """Refuse text with ids that a model has no row of its embeddings for.

    Args:
        line: of the text.
        tokenizer: that it was read with; None: bytes.
        vocabulary: ids of the model.

    Raises:
        UsageError: there is one.
    """
    if vocabulary >= (_VALUES if tokenizer is None else len(tokenizer)):
        return
    largest = int(np.flatnonzero(line.counts()).max(initial=0))
    if largest >= vocabulary:
        raise UsageError(
            f"expected ids below {vocabulary:,}, the model's vocabulary, got {largest:,} in the text; name the model's "
            "own tokenizer, or a model with a larger vocabulary"
        )


def _bytes(parts: Sequence[RawPart], data: Path, folder: Path) -> ByteLine:
    return byte_line([path for part in parts for path in paths_of(part, data)], folder)
