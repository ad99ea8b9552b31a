"""Facts planted in running text, and at its end a question about one of them: a test of how far a model sees.

    … the code of NAME is VALUE . … real text … other facts … real text … what is the code of NAME ?

Names and values are tokens of their own, so that nothing but the planted sentence tells the answer. A model that cannot
bring a fact over the text between it and the question guesses: 1 in `values`.
"""

import copy
import math
import re
from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from narrows._plural import count
from narrows.errors import UsageError

__all__ = ["PlantedFacts", "PlantedText", "words_of"]

_FACT = ("the", "code", "of", "NAME", "is", "VALUE", ".")
_QUESTION = ("what", "is", "the", "code", "of", "NAME", "?")
_PAD, _UNKNOWN = 0, 1


class PlantedText(NamedTuple):
    """A text and what it asks.

    Attributes:
        ids: tokens; the last one is the question mark, where the answer is read.
        answer: number of the value, from 0.
        distance: tokens from the asked fact's value to the question mark.
    """

    ids: list[int]
    answer: int
    distance: int


def words_of(text: str) -> list[str]:
    """Lower-case words and single punctuation marks of a text.

    Example:
        >>> words_of("It rained. (A lot)")
        ['it', 'rained', '.', '(', 'a', 'lot', ')']
    """
    return re.findall(r"\w+|[^\w\s]", text.lower())


class PlantedFacts:
    """Makes such texts out of a list of words.

    Token ids: 0 is padding, 1 an unknown word, then names, values, and the commonest words.

    Args:
        words: running text, in its order.
        vocabulary: words known, those of the planted sentences included.
        names: different names.
        values: different values: the classes.
        facts: sentences planted in a text, each of another name.

    Raises:
        UsageError: a number below 1, more facts than names, or fewer than 1,000 words.

    Example:
        >>> task = PlantedFacts(["it", "rained"] * 500, vocabulary=20, names=4, values=4, facts=2)
        >>> text = task.sample(64, Random(0), distance=30)
        >>> len(text.ids), text.distance, 0 <= text.answer < 4
        (64, 30, True)
    """

    def __init__(self, words: Sequence[str], *, vocabulary: int, names: int, values: int, facts: int):
        for name, value in (("vocabulary", vocabulary), ("names", names), ("values", values), ("facts", facts)):
            if value < 1:
                raise UsageError(f"expected {name} of at least 1, got {value}; raise it")
        if facts > names:
            raise UsageError(f"expected at most as many facts as names, got {facts} and {names}; raise names")
        _require_text(words)
        self.names, self.values, self.facts = names, values, facts
        own = sorted({word for word in (*_FACT, *_QUESTION) if word.islower() or not word.isalpha()})
        common = [word for word, _ in Counter(words).most_common(vocabulary + len(own)) if word not in own]
        self._first_value = 2 + names
        known = [*own, *common][: max(vocabulary, len(own))]
        self._ids = {word: 2 + names + values + index for index, word in enumerate(known)}
        self._text = [self._ids.get(word, _UNKNOWN) for word in words]
        self.vocabulary_size = 2 + names + values + len(known)

    def over(self, words: Sequence[str]) -> "PlantedFacts":
        """The same tokens and facts in another running text; words that the first one did not have are unknown.

        Raises:
            UsageError: fewer than 1,000 words.
        """
        _require_text(words)
        other = copy.copy(self)
        other._text = [self._ids.get(word, _UNKNOWN) for word in words]
        return other

    @property
    def shortest(self) -> int:
        """Tokens of a text that is nothing but facts and question."""
        return self.facts * len(_FACT) + len(_QUESTION)

    @property
    def nearest(self) -> int:
        """The smallest distance: the fact stands right before the question."""
        return len(_QUESTION) + len(_FACT) - 1 - _FACT.index("VALUE")

    def farthest(self, length: int) -> int:
        """The largest distance in a text of that length: the fact is its first sentence."""
        return length - 1 - _FACT.index("VALUE")

    def sample(self, length: int, random: Random, *, distance: int | None = None) -> PlantedText:
        """A text.

        Args:
            length: tokens.
            random: draws everything.
            distance: of the asked fact; None: log-uniform between the nearest and the farthest.

        Raises:
            UsageError: a text too short for its facts, or a distance outside of it.
        """
        if length < 2 * self.shortest:
            raise UsageError(
                f"expected texts of at least {count(2 * self.shortest, 'token')}, got {length}; lengthen them"
            )
        nearest, farthest = self.nearest, self.farthest(length)
        if distance is None:
            distance = round(math.exp(random.uniform(math.log(nearest), math.log(farthest))))
        if not nearest <= distance <= farthest:
            raise UsageError(f"expected a distance from {nearest} to {farthest}, got {distance}; choose one of these")
        names = random.sample(range(self.names), self.facts)
        values = [random.randrange(self.values) for _ in names]
        asked = length - 1 - distance - _FACT.index("VALUE")
        starts = [asked, *self._other_places(length, asked, random)]
        ids = self._running_text(length, random)
        for start, name, value in zip(starts, names, values, strict=True):
            ids[start : start + len(_FACT)] = self._sentence(_FACT, name, value)
        ids[length - len(_QUESTION) :] = self._sentence(_QUESTION, names[0], 0)
        return PlantedText(ids, values[0], distance)

    def _other_places(self, length: int, asked: int, random: Random) -> list[int]:
        """Where the other facts start: anywhere, but not in one another, the asked one or the question."""
        taken, size = [asked], len(_FACT)
        while len(taken) < self.facts:
            start = random.randrange(length - len(_QUESTION) - size + 1)
            if all(abs(start - other) >= size for other in taken):
                taken.append(start)
        return taken[1:]

    def _running_text(self, length: int, random: Random) -> list[int]:
        start = random.randrange(len(self._text))
        text = self._text[start : start + length]
        while len(text) < length:
            text = text + self._text[: length - len(text)]
        return list(text)

    def _sentence(self, words: Sequence[str], name: int, value: int) -> list[int]:
        special = {"NAME": 2 + name, "VALUE": self._first_value + value}
        return [special[word] if word in special else self._ids[word] for word in words]


def _require_text(words: Sequence[str]) -> None:
    if len(words) < 1000:
        raise UsageError(f"expected at least 1,000 words of running text, got {len(words)}; give more text")
