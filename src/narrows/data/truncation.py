"""Texts that are longer than a model's input: which tokens are read, by name, and how many are not.

A truncation chooses positions and copies nothing: a part is the input of one run of the model, given as the ranges
of the text that stand in it one after another. `windows` alone gives several parts, whose outputs are to be brought
together by the caller; the others give one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np

from narrows.data.bm25 import bm25_scores
from narrows.data.windows import windows
from narrows.errors import UsageError

__all__ = [
    "TRUNCATIONS",
    "Head",
    "HeadTail",
    "Retriever",
    "Truncated",
    "Truncation",
    "TruncationReport",
    "Windows",
    "take",
    "truncation",
]


class TruncationReport(NamedTuple):
    """What was read of a text.

    Attributes:
        tokens: in the whole text.
        kept: that stand in a part at least, each counted once.
        dropped: that stand in none; `tokens == kept + dropped`.
        parts: runs of the model.
    """

    tokens: int
    kept: int
    dropped: int
    parts: int


class Truncated(NamedTuple):
    """The ranges of positions of each part, in the order of the text, none empty, and the report."""

    parts: tuple[tuple[range, ...], ...]
    report: TruncationReport


class Truncation(Protocol):
    """Chooses what is read of a text."""

    def __call__(self, ids: Sequence[int], /, *, budget: int, query_ids: Sequence[int] = ()) -> Truncated:
        """Chooses parts of at most `budget` tokens each.

        Args:
            ids: token ids of the text.
            budget: most tokens of a part; at least 1.
            query_ids: token ids of what is asked; only `retriever` looks at them.

        Raises:
            UsageError: `budget` is below 1, or does not fit the options.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The beginning.

    Example:
        >>> Head()([5] * 10, budget=4).parts
        ((range(0, 4),),)
    """

    def __call__(self, ids: Sequence[int], /, *, budget: int, query_ids: Sequence[int] = ()) -> Truncated:
        """As `Truncation`."""
        _check_budget(budget)
        return _truncated([[range(min(budget, len(ids)))]], len(ids))


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadTail:
    """The beginning and the end.

    Attributes:
        head_share: the beginning's share of the budget, from 0 to 1, rounded down to a token.

    Example:
        >>> HeadTail()([5] * 10, budget=4).parts
        ((range(0, 2), range(8, 10)),)
    """

    head_share: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.head_share <= 1:
            raise UsageError(f"expected a head_share from 0 to 1, got {self.head_share}; pass a share such as 0.5.")

    def __call__(self, ids: Sequence[int], /, *, budget: int, query_ids: Sequence[int] = ()) -> Truncated:
        """As `Truncation`."""
        _check_budget(budget)
        if len(ids) <= budget:
            return _truncated([[range(len(ids))]], len(ids))
        head = int(budget * self.head_share)
        return _truncated([[range(head), range(len(ids) - budget + head, len(ids))]], len(ids))


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """All of it, in windows that share tokens with their neighbours; see `narrows.data.windows`.

    Attributes:
        overlap: tokens that neighbours share at least; below the budget.

    Example:
        >>> Windows(overlap=2)([5] * 10, budget=6).parts
        ((range(0, 6),), (range(4, 10),))
    """

    overlap: int = 128

    def __post_init__(self) -> None:
        if self.overlap < 0:
            raise UsageError(f"expected an overlap of at least 0, got {self.overlap}; pass a number of tokens.")

    def __call__(self, ids: Sequence[int], /, *, budget: int, query_ids: Sequence[int] = ()) -> Truncated:
        """As `Truncation`."""
        _check_budget(budget)
        return _truncated([[window] for window in windows(len(ids), size=budget, overlap=self.overlap)], len(ids))


@dataclass(frozen=True, slots=True, kw_only=True)
class Retriever:
    """The stretches that BM25 finds nearest to the query, in the order of the text.

    Without a query it is asked for the text's own first stretch, which texts as a rule begin to tell what they are
    about in. Of equal stretches (nothing shared, say), the former goes first. The budget is used whole: the last
    stretch that is taken is cut to what is left.

    Attributes:
        part_tokens: tokens of a stretch; the last one of a text may be shorter.

    Example:
        >>> Retriever(part_tokens=2)([1, 2, 3, 4, 5, 6], budget=2, query_ids=[4]).parts
        ((range(2, 4),),)
    """

    part_tokens: int = 128

    def __post_init__(self) -> None:
        if self.part_tokens < 1:
            raise UsageError(f"expected part_tokens of at least 1, got {self.part_tokens}; pass a number of tokens.")

    def __call__(self, ids: Sequence[int], /, *, budget: int, query_ids: Sequence[int] = ()) -> Truncated:
        """As `Truncation`."""
        _check_budget(budget)
        if len(ids) <= budget:
            return _truncated([[range(len(ids))]], len(ids))
        starts = range(0, len(ids), self.part_tokens)
        stretches = [range(start, min(start + self.part_tokens, len(ids))) for start in starts]
        # Plain integers: numpy's, as a token cache gives them, are slow to count.
        whole = np.asarray(ids).tolist()
        query = np.asarray(query_ids).tolist() or whole[: self.part_tokens]
        scores = bm25_scores([whole[s.start : s.stop] for s in stretches], query)
        taken, left = [], budget
        for number in np.argsort(-scores, kind="stable"):
            stretch = stretches[number][:left]
            taken.append(stretch)
            left -= len(stretch)
            if not left:
                break
        return _truncated([sorted(taken, key=lambda stretch: stretch.start)], len(ids))


TRUNCATIONS: Mapping[str, Callable[..., Truncation]] = MappingProxyType(
    {"head": Head, "head+tail": HeadTail, "windows": Windows, "retriever": Retriever}
)
"""The truncations by name."""


def truncation(name: str, **options: float) -> Truncation:
    """A truncation by name.

    Args:
        name: a name of `TRUNCATIONS`.
        options: of that class: `head_share` of `head+tail`, `overlap` of `windows`, `part_tokens` of `retriever`.

    Raises:
        UsageError: an unknown name, an option that it does not have, or a value out of range.

    Example:
        >>> truncation("windows", overlap=64)
        Windows(overlap=64)
    """
    if name not in TRUNCATIONS:
        near = get_close_matches(name, TRUNCATIONS, n=1)
        raise UsageError(
            f"expected a truncation ({', '.join(TRUNCATIONS)}), got {name!r}; "
            + (f"did you mean {near[0]!r}?" if near else "name one of them.")
        )
    known = [option.name for option in fields(TRUNCATIONS[name])]  # pyright: ignore[reportArgumentType]
    for option in options:
        if option not in known:
            raise UsageError(
                f"expected the truncation {name!r} with {', '.join(known) or 'no options'}, got {option!r}; "
                "leave it out or name another truncation."
            )
    return TRUNCATIONS[name](**options)


def take(ids: Sequence[int], part: Iterable[range]) -> list[int]:
    """The token ids of a part.

    Example:
        >>> take([5, 6, 7, 8], (range(0, 1), range(3, 4)))
        [5, 8]
    """
    return [token for stretch in part for token in np.asarray(ids[stretch.start : stretch.stop]).tolist()]


def _check_budget(budget: int) -> None:
    if budget < 1:
        raise UsageError(f"expected a budget of at least 1 token, got {budget}; pass a larger one.")


def _truncated(parts: Iterable[Iterable[range]], tokens: int) -> Truncated:
    kept, reached = 0, 0
    joined = [_joined(part) for part in parts]
    for part in joined:
        for stretch in part:
            kept += max(0, stretch.stop - max(reached, stretch.start))
            reached = max(reached, stretch.stop)
    return Truncated(tuple(joined), TruncationReport(tokens, kept, tokens - kept, len(joined)))


def _joined(part: Iterable[range]) -> tuple[range, ...]:
    """Neighbours made one, empty ones left out."""
    made: list[range] = []
    for stretch in part:
        if made and stretch and made[-1].stop == stretch.start:
            made[-1] = range(made[-1].start, stretch.stop)
        elif stretch:
            made.append(stretch)
    return tuple(made)
