"""Documents that a tokenizer hardly knows: their words look alike to the model."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["MOST_UNKNOWN", "UnknownCounter", "UnknownWords"]

MOST_UNKNOWN = 0.1
"""Share of a document's tokens that may stand for unknown words without a warning: a name or a sign here and there."""


class UnknownWords(NamedTuple):
    """A document, and how many of its passages' tokens stand for words that the tokenizer does not know."""

    document: str
    unknown: int
    tokens: int


class UnknownCounter:
    """Counts unknown tokens of documents whose passages come one after another.

    Args:
        unknown_id: what stands for unknown words; None in a tokenizer that knows all.

    Example:
        >>> counter = UnknownCounter(100)
        >>> counter.add("runes.txt", [100, 100, 7, 102])
        >>> counter.close(["runes.txt"])
        [UnknownWords(document='runes.txt', unknown=2, tokens=4)]
    """

    def __init__(self, unknown_id: int | None):
        self._unknown_id = unknown_id
        self._open: dict[str, tuple[int, int]] = {}

    def add(self, document: str, ids: Sequence[int]) -> None:
        """Count a passage's token ids."""
        unknown, tokens = self._open.get(document, (0, 0))
        self._open[document] = unknown + sum(token == self._unknown_id for token in ids), tokens + len(ids)

    def close(self, documents: Iterable[str]) -> list[UnknownWords]:
        """Those of some documents, which are complete, of which too much is unknown."""
        counted = [UnknownWords(document, *self._open.pop(document, (0, 0))) for document in documents]
        return [found for found in counted if found.unknown > MOST_UNKNOWN * found.tokens]
