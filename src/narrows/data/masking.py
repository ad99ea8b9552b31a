"""Which tokens of a text are to be predicted, and what a model sees in their place.

Devlin et al. 2019 (BERT), section 3.1, for what is seen: [MASK], 8 times in 10; Dai et al. 2020 (Funnel-Transformer)
and their released code for what is chosen: single tokens, whole words, or spans of 1 to 5 tokens or words, a span of n
with a probability in proportion to 1/(n+1). Of 512 tokens they predict 85, one in six.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from narrows._plural import count
from narrows.errors import UsageError

__all__ = [
    "IGNORED",
    "LONGEST_SPAN",
    "MASKINGS",
    "PREDICTED_SHARE",
    "Masked",
    "choose_units",
    "mask_tokens",
    "span_lengths",
    "word_numbers",
    "word_numbers_of",
    "word_starts",
]

IGNORED = -100
"""The label of a token that is not predicted."""

PREDICTED_SHARE = 1 / 6
"""Of a row's tokens: 85 of 512, as in the paper's runs. BERT predicts 15 %."""

LONGEST_SPAN = 5
"""Tokens, or words, of a span at most."""

# Places are drawn for more spans than are needed, so that few single tokens fill what those over special tokens leave.
_SPARE = 1.25
# A piece that goes on with a word (WordPiece), or begins one (SentencePiece, byte-level BPE).
_GOES_ON = "##"
_BEGINS = ("▁", "Ġ")


class Masked(NamedTuple):
    """A row to learn from.

    Attributes:
        input_ids: int64 `[length]`, what the model sees.
        labels: int64 `[length]`, the token that stood there, `IGNORED` where nothing is predicted.
        is_masked: bool `[length]`, the predicted places, whatever is seen there.
    """

    input_ids: np.ndarray
    labels: np.ndarray
    is_masked: np.ndarray


def mask_tokens(
    ids: np.ndarray | Sequence[int],
    words: np.ndarray | Sequence[int],
    *,
    strategy: str,
    num_predict: int,
    mask_id: int,
    replacements: np.ndarray | Sequence[int],
    generator: np.random.Generator,
    as_mask: float = 0.8,
    as_random: float = 0.1,
) -> Masked:
    """Chooses the tokens to be predicted, and hides them.

    Args:
        ids: of the row, `[length]`.
        words: `[length]`, the number of the word that each token is of, negative where nothing may be predicted
            (special tokens and padding); see `word_numbers`. The strategies of tokens look at the sign only.
        strategy: a name of `MASKINGS`.
        num_predict: tokens to predict; all that may be, where they are fewer.
        mask_id: of [MASK].
        replacements: ids that a random token is drawn from.
        generator: makes all choices; the same state gives the same row.
        as_mask: share of the chosen tokens that are seen as [MASK].
        as_random: share that are seen as a random token; the rest is seen as it is.

    Raises:
        UsageError: an unknown strategy, a negative number, shares above 1 together, rows of two lengths, or nothing to
            draw random tokens from.

    Example:
        >>> row = mask_tokens([1, 7, 8, 2], [-1, 0, 1, -1], strategy="single_token", num_predict=5, mask_id=4,
        ...     replacements=[7, 8], generator=np.random.default_rng(0), as_mask=1.0, as_random=0.0)
        >>> row.input_ids.tolist(), row.labels.tolist()
        ([1, 4, 4, 2], [-100, 7, 8, -100])
    """
    ids, words = np.asarray(ids, dtype=np.int64), np.asarray(words, dtype=np.int64)
    replacements = np.asarray(replacements, dtype=np.int64)
    _check(ids, words, strategy, num_predict, replacements, as_mask=as_mask, as_random=as_random)
    is_masked = np.zeros(len(ids), dtype=bool)
    for start, end in choose_units(words, strategy=strategy, num_predict=num_predict, generator=generator):
        is_masked[start:end] = True
    left = np.flatnonzero((words >= 0) & ~is_masked)
    missing = min(num_predict - int(is_masked.sum()), len(left))
    is_masked[generator.choice(left, missing, replace=False)] = True

    places = np.flatnonzero(is_masked)
    labels = np.full(len(ids), IGNORED, dtype=np.int64)
    labels[places] = ids[places]
    seen = ids.copy()
    drawn = generator.random(len(places))
    random = generator.choice(replacements, len(places)) if len(replacements) else ids[places]
    seen[places] = np.where(drawn < as_mask, mask_id, np.where(drawn < as_mask + as_random, random, ids[places]))
    return Masked(seen, labels, is_masked)


def choose_units(
    words: np.ndarray, *, strategy: str, num_predict: int, generator: np.random.Generator
) -> list[tuple[int, int]]:
    """What a strategy chooses before single tokens fill what is left: (start, end) of each, in a random order.

    They do not overlap, hold no more than `num_predict` tokens in all, and none reaches over a place that may not be
    predicted.

    Args:
        words: as of `mask_tokens`.
        strategy: as of `mask_tokens`.
        num_predict: tokens at most.
        generator: makes all choices.

    Example:
        >>> choose_units(np.array([-1, 0, 0, -1]), strategy="whole_word", num_predict=2,
        ...     generator=np.random.default_rng(0))
        [(1, 3)]
    """
    return MASKINGS[strategy](words, num_predict, generator)


def span_lengths(spans: int, generator: np.random.Generator) -> np.ndarray:
    """Lengths from 1 to `LONGEST_SPAN`, int64 `[spans]`: n with a probability in proportion to 1/(n+1)."""
    weights = 1 / (np.arange(1, LONGEST_SPAN + 1) + 1)
    return generator.choice(np.arange(1, LONGEST_SPAN + 1), spans, p=weights / weights.sum())


def word_starts(pieces: Iterable[str]) -> np.ndarray:
    """Whether a piece of a vocabulary begins a word, bool `[vocabulary]`, by the mark that its tokenizer uses.

    WordPiece marks what goes on (`##ing`), SentencePiece (`▁in`) and byte-level BPE (`Ġin`) what begins. The mark that
    the most pieces have is the vocabulary's.

    Args:
        pieces: in the order of their ids.

    Raises:
        UsageError: no piece has such a mark.

    Example:
        >>> word_starts(["[CLS]", "walk", "##ing"]).tolist()
        [True, True, False]
    """
    pieces = list(pieces)
    counts = {mark: sum(piece.startswith(mark) for piece in pieces) for mark in (_GOES_ON, *_BEGINS)}
    mark = max(counts, key=lambda mark: counts[mark])
    if not counts[mark]:
        raise UsageError(
            f"expected a vocabulary that marks words (with {_GOES_ON}, {' or '.join(_BEGINS)}), got "
            f"{len(pieces):,} pieces without a mark; choose single_token or token_span"
        )
    return np.array([piece.startswith(mark) is not (mark == _GOES_ON) for piece in pieces])


def word_numbers(ids: np.ndarray | Sequence[int], *, starts: np.ndarray, special: np.ndarray) -> np.ndarray:
    """The number of each token's word, int64 `[length]`, and −1 for special tokens.

    Args:
        ids: of a row.
        starts: by id, whether a piece begins a word; see `word_starts`.
        special: by id, whether a token is never predicted, such as [CLS], [SEP] and [PAD].

    Example:
        >>> word_numbers([0, 1, 2, 0, 2], starts=np.array([True, True, False]), special=np.array([True, False, False]))
        array([-1,  0,  0, -1,  1])
    """
    ids = np.asarray(ids, dtype=np.int64)
    hidden = special[ids]
    # What follows a special token begins a word, even in the middle of one.
    begins = starts[ids] | np.concatenate([[True], hidden[:-1]])
    return np.where(hidden, -1, np.cumsum(begins & ~hidden) - 1)


def word_numbers_of(word_ids: Sequence[int | None]) -> np.ndarray:
    """The same from `word_ids()` of a transformers tokenizer's encoding, where None is a special token.

    Example:
        >>> word_numbers_of([None, 0, 0, 1, None])
        array([-1,  0,  0,  1, -1])
    """
    return np.array([-1 if word is None else word for word in word_ids], dtype=np.int64)


def _single_tokens(words: np.ndarray, num_predict: int, generator: np.random.Generator) -> list[tuple[int, int]]:
    """All of them are what fills the rest."""
    return []


def _whole_words(words: np.ndarray, num_predict: int, generator: np.random.Generator) -> list[tuple[int, int]]:
    units = _words(words)
    kept = []
    for start, end in units[generator.permutation(len(units))].tolist():
        if end - start <= num_predict:
            kept.append((start, end))
            num_predict -= end - start
    return kept


def _token_spans(words: np.ndarray, num_predict: int, generator: np.random.Generator) -> list[tuple[int, int]]:
    places = np.flatnonzero(words >= 0)
    return _spans(np.stack([places, places + 1], axis=1), num_predict, generator)


def _word_spans(words: np.ndarray, num_predict: int, generator: np.random.Generator) -> list[tuple[int, int]]:
    return _spans(_words(words), num_predict, generator)


def _words(words: np.ndarray) -> np.ndarray:
    """Start and end of each word, `[words, 2]`."""
    changes = np.flatnonzero(np.diff(words)) + 1
    bounds = np.concatenate([[0], changes, [len(words)]])
    runs = np.stack([bounds[:-1], bounds[1:]], axis=1)
    return runs[words[runs[:, 0]] >= 0] if len(words) else runs[:0]


def _spans(units: np.ndarray, num_predict: int, generator: np.random.Generator) -> list[tuple[int, int]]:
    """Spans of units, spread at random: their lengths are drawn first, and whatever lies between is as likely."""
    if not len(units):
        return []
    wanted = min(len(units), int(np.ceil(num_predict * _SPARE * len(units) / (units[:, 1] - units[:, 0]).sum())))
    lengths = span_lengths(wanted, generator)
    # One span beyond what is wanted is not drawn: there may be no room for it.
    lengths = lengths[: int(np.searchsorted(np.cumsum(lengths), wanted, side="right"))]
    free = len(units) - int(lengths.sum())
    # As many units stand before a span as its number among the free places, which are drawn alike.
    before = np.sort(generator.choice(free + len(lengths), len(lengths), replace=False)) - np.arange(len(lengths))
    first = before + np.cumsum(lengths) - lengths
    spans = np.stack([units[first, 0], units[first + lengths - 1, 1]], axis=1)
    # A span over a special token is longer than its units are; it is left out.
    sizes = np.concatenate([[0], np.cumsum(units[:, 1] - units[:, 0])])
    spans = spans[spans[:, 1] - spans[:, 0] == sizes[first + lengths] - sizes[first]]
    spans = spans[generator.permutation(len(spans))]
    # Up to the first for which there is no room: to go on would choose more short ones than were drawn.
    room = np.cumsum(spans[:, 1] - spans[:, 0]) <= num_predict
    return [(start, end) for start, end in spans[room].tolist()]


def _check(
    ids: np.ndarray,
    words: np.ndarray,
    strategy: str,
    num_predict: int,
    replacements: np.ndarray,
    *,
    as_mask: float,
    as_random: float,
) -> None:
    if strategy not in MASKINGS:
        raise UsageError(f"expected a masking strategy of {', '.join(MASKINGS)}, got {strategy!r}; choose one of them")
    if len(ids) != len(words):
        raise UsageError(f"expected a word for each of {count(len(ids), 'token')}, got {len(words):,}; pass one each")
    if num_predict < 0:
        raise UsageError(f"expected num_predict of at least 0, got {num_predict}; the paper's is 85 of 512 tokens")
    if min(as_mask, as_random) < 0 or as_mask + as_random > 1 + 1e-9:
        raise UsageError(
            f"expected as_mask and as_random from 0 to 1 together, got {as_mask} and {as_random}; BERT's are "
            "0.8 and 0.1"
        )
    if as_random and not len(replacements):
        raise UsageError("expected ids to draw random tokens from, got none; pass those of the vocabulary")


MASKINGS: Mapping[str, Callable[[np.ndarray, int, np.random.Generator], list[tuple[int, int]]]] = {
    "single_token": _single_tokens,
    "whole_word": _whole_words,
    "token_span": _token_spans,
    "word_span": _word_spans,
}
"""The strategies by name. What they leave of `num_predict` is filled with single tokens."""
