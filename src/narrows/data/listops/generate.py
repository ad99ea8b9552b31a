"""Expressions of ListOps by chance, of a length that one asks for."""

import random
from collections.abc import Iterator
from typing import NamedTuple

from narrows.data.listops.expressions import CLOSE, OPERATORS, evaluate_listops
from narrows.errors import UsageError

__all__ = ["ListOps", "generate_listops"]

# Where depth or arguments leave so little room that so many trees get stuck in a row, no more are tried.
_TRIES = 1000
_SHORTEST = 4
_FEWEST_ARGUMENTS = 2
_OPERATORS = tuple(OPERATORS)
_DIGITS = tuple(map(str, range(10)))

# A digit that is not drawn yet, or an operator with its arguments behind it.
_Tree = list


class ListOps(NamedTuple):
    """An expression and the digit that it is worth."""

    label: int
    expression: str


def generate_listops(
    *, least: int = 500, most: int = 2000, max_depth: int = 10, max_arguments: int = 10, seed: int = 0
) -> Iterator[ListOps]:
    """Expressions without end, the same ones for the same arguments.

    A length is drawn, all as likely. Then a digit, any that is not too deep, becomes an operator with 2 to
    `max_arguments` digits, again and again until the length is reached. All operators and digits are as likely.

    Args:
        least: tokens of the shortest; an operator, a digit and a closing bracket are a token each.
        most: tokens of the longest.
        max_depth: operators within one another, at most.
        max_arguments: of an operator, at most.
        seed: of all that is drawn.

    Raises:
        UsageError: numbers that are too small, or a length that such expressions do not reach.

    Example:
        >>> next(generate_listops(least=6, most=8, seed=1))
        ListOps(label=4, expression='[MIN 4 4 6 7 ]')
    """
    for name, value, lowest in (
        ("least", least, _SHORTEST),
        ("most", most, least),
        ("max_depth", max_depth, 1),
        ("max_arguments", max_arguments, _FEWEST_ARGUMENTS),
    ):
        if value < lowest:
            raise UsageError(f"expected {name} of at least {lowest}, got {value}; raise it.")
    return _expressions(least, most, max_depth, max_arguments, random.Random(seed))


def _expressions(least: int, most: int, depth: int, arguments: int, chance: random.Random) -> Iterator[ListOps]:
    choices = _choices(most, arguments)
    lengths = [length for length in range(least, most + 1) if choices[length - 1]]
    stuck = 0
    while lengths and stuck < _TRIES:
        tree = _grown(chance.choice(lengths), depth, choices, chance)
        if tree is None:
            stuck += 1
            continue
        stuck = 0
        expression = " ".join(_written(tree, chance))
        yield ListOps(evaluate_listops(expression), expression)
    raise UsageError(
        f"expected lengths of ListOps that a depth of {depth} and {arguments} arguments reach, got {least} to {most} "
        "tokens; change one of them."
    )


def _choices(most: int, arguments: int) -> list[list[int]]:
    """By how many tokens are to be added: the numbers of arguments after which the rest can be added too."""
    choices: list[list[int]] = [[]]
    for left in range(1, most + 1):
        # A digit is replaced by an operator, its arguments and a bracket.
        after = {number: left - number - 1 for number in range(_FEWEST_ARGUMENTS, arguments + 1)}
        choices.append([number for number, rest in after.items() if rest == 0 or (rest > 0 and choices[rest])])
    return choices


def _grown(length: int, depth: int, choices: list[list[int]], chance: random.Random) -> _Tree | None:
    """A tree of so many tokens with a list for each operator and None for each digit; None: it got stuck."""
    root: _Tree = [None]
    places = [(root, 0, 0)]
    left = length - 1
    while left:
        if not places:
            return None
        drawn = chance.randrange(len(places))
        places[drawn], places[-1] = places[-1], places[drawn]
        above, place, level = places.pop()
        number = chance.choice(choices[left])
        above[place] = operator = [chance.choice(_OPERATORS), *[None] * number]
        if level + 1 < depth:
            places += [(operator, argument, level + 1) for argument in range(1, number + 1)]
        left -= number + 1
    return root[0]


def _written(tree: _Tree, chance: random.Random) -> list[str]:
    """The tokens of a tree, its digits drawn."""
    tokens: list[str | None] = []
    # Not by recursion, whose depth Python limits.
    waiting: list[_Tree | str | None] = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            tokens.append(part[0])
            waiting += [CLOSE, *reversed(part[1:])]
        else:
            tokens.append(part)
    digits = iter(chance.choices(_DIGITS, k=tokens.count(None)))
    return [next(digits) if token is None else token for token in tokens]
