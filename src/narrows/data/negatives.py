"""Unanswerable questions made from answerable ones."""

import math
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from narrows._plural import count
from narrows.data.squad import QAExample
from narrows.errors import UsageError

__all__ = ["add_unanswerable_pairs"]


class _Context(NamedTuple):
    text: str
    folded: str
    words: frozenset[str]


def add_unanswerable_pairs(examples: Sequence[QAExample], *, share: float, seed: int) -> list[QAExample]:
    """Adds impossible examples: a question beside another context of the same title.

    The other context holds none of the question's answers as text (letter case aside), and of those it is
    the one that shares the rarest words with the question, so that matching words does not give it away.

    Args:
        examples: examples to add to; those already impossible count towards `share`.
        share: wanted share of impossible examples in the result, at least 0 and under 1. A question is used
            once, so 0.5 is the most that answerable examples alone can give.
        seed: chooses which questions are used.

    Returns:
        The examples, followed by the new ones; a new id is the question's with `~neg` after it.

    Raises:
        UsageError: `share` is out of range, or too few questions have such a context.
    """
    if not 0 <= share < 1:
        raise UsageError(f"expected a share of at least 0 and under 1, got {share}; pass one such as 0.33.")
    impossible = sum(example.impossible for example in examples)
    wanted = max(0, round((share * len(examples) - impossible) / (1 - share)))
    contexts = _contexts_by_title(examples)
    rarity = _rarity(contexts)
    # dict: one question under two records (files that overlap) gives one pair, so that ids stay unique.
    candidates = list({example.id: example for example in examples if example.answers}.values())
    random.Random(seed).shuffle(candidates)
    added: list[QAExample] = []
    for example in candidates:
        if len(added) == wanted:
            break
        other = _hardest_context(example, contexts[example.title], rarity)
        if other is not None:
            added.append(replace(example, id=f"{example.id}~neg", context=other, answers=(), impossible=True))
    if len(added) < wanted:
        raise UsageError(
            f"expected {count(wanted, 'question')} with another context of their title without their answers, "
            f"got {len(added)}; pass a smaller share or examples with more contexts a title."
        )
    return [*examples, *added]


def _words(text: str) -> frozenset[str]:
    return frozenset("".join(c if c.isalnum() else " " for c in text.casefold()).split())


def _contexts_by_title(examples: Sequence[QAExample]) -> dict[str, list[_Context]]:
    by_title: dict[str, dict[str, None]] = defaultdict(dict)
    for example in examples:
        by_title[example.title].setdefault(example.context)
    return {
        title: [_Context(text, text.casefold(), _words(text)) for text in texts] for title, texts in by_title.items()
    }


def _rarity(contexts: dict[str, list[_Context]]) -> dict[str, float]:
    """Inverse document frequency: the logarithm of contexts over contexts that have the word."""
    every = [context for group in contexts.values() for context in group]
    counts = Counter(word for context in every for word in context.words)
    return {word: math.log(len(every) / count) for word, count in counts.items()}


def _hardest_context(example: QAExample, contexts: list[_Context], rarity: dict[str, float]) -> str | None:
    answers = {answer.text.casefold().strip() for answer in example.answers}
    words = _words(example.question)
    best, best_score = None, -1.0
    for context in contexts:
        if context.text == example.context or any(answer in context.folded for answer in answers):
            continue
        # Sorted: a sum over a set depends on the hash seed in its last bits, and could change a tie.
        score = sum(rarity[word] for word in sorted(words & context.words))
        if score > best_score:
            best, best_score = context.text, score
    return best
