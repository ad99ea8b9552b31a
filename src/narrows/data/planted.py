"""Facts planted in running text, and questions about them elsewhere in it: a test of how far a model sees.

    … the code of NAME is VALUE . … real text … what is the code of NAME ? … real text … what is the code of NAME ? …

Names and values are tokens of their own, so that nothing but the planted sentence tells the answer. A model that cannot
bring a fact over the text between it and a question guesses: 1 in `values`. Questions stand on both sides of their fact
and at all distances, so that one text says how far a model sees.
"""

import copy
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import NamedTuple

from narrows._plural import count
from narrows.errors import UsageError

__all__ = ["Asked", "PlantedFacts", "PlantedText", "words_of"]

_FACT = ("the", "code", "of", "NAME", "is", "VALUE", ".")
_QUESTION = ("what", "is", "the", "code", "of", "NAME", "?")
_SIZE = len(_FACT)
_PAD, _UNKNOWN = 0, 1
# Of a text's tokens to a question, at least: most of it stays running text.
_TOKENS_A_QUESTION = 32


class Asked(NamedTuple):
    """A question.

    Attributes:
        place: token of the question mark, where the answer is read.
        answer: number of the value, from 0.
        distance: tokens between the fact's value and the question mark, whichever comes first.
    """

    place: int
    answer: int
    distance: int


class PlantedText(NamedTuple):
    """A text's tokens, and what it asks."""

    ids: list[int]
    questions: list[Asked]


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
        questions: of a text, at most; a text shorter than 32 tokens for each has fewer, and at least one.

    Raises:
        UsageError: a number below 1, more facts than names, or fewer than 1,000 words.

    Example:
        >>> task = PlantedFacts(["it", "rained"] * 500, vocabulary=20, names=4, values=4, facts=2, questions=3)
        >>> text = task.sample(96, Random(0))
        >>> len(text.ids), len(text.questions), all(0 <= asked.answer < 4 for asked in text.questions)
        (96, 3, True)
    """

    def __init__(
        self, words: Sequence[str], *, vocabulary: int, names: int, values: int, facts: int, questions: int = 1
    ):
        numbers = {"vocabulary": vocabulary, "names": names, "values": values, "facts": facts, "questions": questions}
        for name, value in numbers.items():
            if value < 1:
                raise UsageError(f"expected {name} of at least 1, got {value}; raise it")
        if facts > names:
            raise UsageError(f"expected at most as many facts as names, got {facts} and {names}; raise names")
        _require_text(words)
        self.names, self.values, self.facts, self.questions = names, values, facts, questions
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
        """Tokens of the shortest text."""
        return _tokens_for(self.facts + 1)

    def sample(self, length: int, random: Random) -> PlantedText:
        """A text of `length` tokens, drawn from `random`; the distances of its questions are log-uniform.

        Raises:
            UsageError: a text too short for its facts and a question.
        """
        if length < self.shortest:
            raise UsageError(f"expected texts of at least {count(self.shortest, 'token')}, got {length}; lengthen them")
        ids, free = self._running_text(length, random), _FreePlaces(length)
        facts = []
        for name in random.sample(range(self.names), self.facts):
            start = free.draw(lambda: random.randrange(length - _SIZE + 1))
            fact = _Fact(start + _FACT.index("VALUE"), name, random.randrange(self.values))
            ids[start : start + _SIZE] = self._sentence(_FACT, fact)
            facts.append(fact)
        asked = []
        for _ in range(self._questions_of(length)):
            fact = random.choice(facts)
            start = free.draw(partial(_near, fact.place, length, random))
            ids[start : start + _SIZE] = self._sentence(_QUESTION, fact)
            place = start + _SIZE - 1
            asked.append(Asked(place, fact.value, abs(place - fact.place)))
        return PlantedText(ids, asked)

    def _questions_of(self, length: int) -> int:
        room = 1
        while _tokens_for(self.facts + room + 1) <= length:
            room += 1
        return min(self.questions, max(1, length // _TOKENS_A_QUESTION), room)

    def _running_text(self, length: int, random: Random) -> list[int]:
        start = random.randrange(len(self._text))
        text = self._text[start : start + length]
        while len(text) < length:
            text = text + self._text[: length - len(text)]
        return list(text)

    def _sentence(self, words: Sequence[str], fact: "_Fact") -> list[int]:
        special = {"NAME": 2 + fact.name, "VALUE": self._first_value + fact.value}
        return [special[word] if word in special else self._ids[word] for word in words]


class _Fact(NamedTuple):
    place: int
    name: int
    value: int


class _FreePlaces:
    """Where a sentence may start: inside the text, and in no other sentence."""

    def __init__(self, length: int):
        self._last, self._taken = length - _SIZE, list[int]()

    def draw(self, proposal: Callable[[], int]) -> int:
        """The first free one of the proposals; every start must be among them, as there is always a free one."""
        start = proposal()
        while not 0 <= start <= self._last or any(abs(start - other) < _SIZE for other in self._taken):
            start = proposal()
        self._taken.append(start)
        return start


def _near(place: int, length: int, random: Random) -> int:
    """Start of a question at a log-uniform distance from a fact's value, on either side of it."""
    distance = round(math.exp(random.uniform(0.0, math.log(length))))
    return place + random.choice((-distance, distance)) - (_SIZE - 1)


def _tokens_for(sentences: int) -> int:
    """Tokens in which the last of so many sentences finds room wherever the others stand."""
    return (2 * _SIZE - 1) * (sentences - 1) + _SIZE


def _require_text(words: Sequence[str]) -> None:
    if len(words) < 1000:
        raise UsageError(f"expected at least 1,000 words of running text, got {len(words)}; give more text")
