"""Short contexts put together into passages, so that the right sentence must be found among others."""

import random
from collections.abc import Sequence
from dataclasses import replace

from narrows.data.squad import Answer, QAExample
from narrows.errors import UsageError

__all__ = ["join_contexts"]


def join_contexts(examples: Sequence[QAExample], *, contexts: int, seed: int) -> list[QAExample]:
    """Puts the contexts that come next to an example's in its data around it.

    Neighbours in a file are of one article as a rule, which makes them hard to tell apart. One that holds an
    answer of the example (letter case aside) is passed over.

    Args:
        examples: in the order in which their contexts are neighbours.
        contexts: how many stand in a passage, the example's own among them; 1 changes nothing.
        seed: chooses the example's place among them.

    Returns:
        The examples with longer contexts, answers moved along; ids stay.

    Raises:
        UsageError: `contexts` is below 1.
    """
    if contexts < 1:
        raise UsageError(f"expected at least 1 context in a passage, got {contexts}; pass 1 or more.")
    order = list(dict.fromkeys(example.context for example in examples))
    place = {context: number for number, context in enumerate(order)}
    rng = random.Random(seed)
    return [_join(example, order, place[example.context], contexts, rng) for example in examples]


def _join(example: QAExample, order: Sequence[str], own: int, contexts: int, rng: random.Random) -> QAExample:
    before = rng.randrange(contexts)
    first = max(0, min(own - before, len(order) - contexts))
    held = {answer.text.casefold() for answer in example.answers}

    def kept(number: int) -> bool:
        return number == own or not any(text in order[number].casefold() for text in held)

    numbers = [number for number in range(first, min(first + contexts, len(order))) if kept(number)]
    moved = sum(len(order[number]) + 1 for number in numbers if number < own)
    return replace(
        example,
        context=" ".join(order[number] for number in numbers),
        answers=tuple(Answer(answer.text, answer.start + moved) for answer in example.answers),
    )
