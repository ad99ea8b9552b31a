"""What an expression of ListOps is, and what it is worth."""

from collections.abc import Callable, Mapping, Sequence

from narrows._plural import count
from narrows._text import shown
from narrows.errors import UsageError

__all__ = ["CLOSE", "LISTOPS_TOKENS", "OPERATORS", "evaluate_listops", "listops_tokens"]

CLOSE = "]"


def _median(values: Sequence[int]) -> int:
    """The median, rounded down where it is the mean of two."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) // 2


def _sum(values: Sequence[int]) -> int:
    return sum(values) % 10


OPERATORS: Mapping[str, Callable[[Sequence[int]], int]] = {"[MIN": min, "[MAX": max, "[MED": _median, "[SM": _sum}
"""What each does with its arguments, of which it has one at least."""

LISTOPS_TOKENS = (*map(str, range(10)), *OPERATORS, CLOSE)
"""The 15 words of the language."""

_DIGITS = {str(digit): digit for digit in range(10)}
_KNOWN = frozenset(LISTOPS_TOKENS)
# The original's files tell the same by them as by its square ones.
_PASSED_OVER = ("(", ")")


def listops_tokens(expression: str) -> list[str]:
    """The words of an expression, between spaces; round brackets, which the original files have, are passed over.

    Whether they make an expression is not looked at; see `evaluate_listops`.

    Raises:
        UsageError: a word that is none of `LISTOPS_TOKENS`.

    Example:
        >>> listops_tokens("( ( ( [MAX 2 ) 9 ) ] )")
        ['[MAX', '2', '9', ']']
    """
    tokens = [word for word in expression.split() if word not in _PASSED_OVER]
    if not _KNOWN.issuperset(tokens):
        place = next(place for place, token in enumerate(tokens) if token not in _KNOWN)
        raise UsageError(
            f"expected words of ListOps ({', '.join(OPERATORS)}, {CLOSE}, 0 to 9), got {shown(tokens[place])} as word "
            f"{place + 1:,}; correct it."
        )
    return tokens


def evaluate_listops(expression: str) -> int:
    """The digit that an expression is worth, whatever its depth.

    `[MIN`, `[MAX`, `[MED` (the median, rounded down) and `[SM` (the sum, of which the last digit is kept) take the
    values up to their `]`.

    Args:
        expression: words with spaces between them; see `listops_tokens`.

    Raises:
        UsageError: it is no expression.

    Example:
        >>> evaluate_listops("[MAX 2 [MIN 4 7 ] 0 ]"), evaluate_listops("[MED 1 4 ]"), evaluate_listops("[SM 8 5 ]")
        (4, 2, 3)
    """
    tokens = listops_tokens(expression)
    # The arguments so far of each operator that is open; the first list is that of the expression itself.
    values: list[list[int]] = [[]]
    operators: list[str] = []
    for place, token in enumerate(tokens, start=1):
        if values[0]:
            raise UsageError(
                f"expected one expression of ListOps, got {token} after its end as word {place:,}; cut it."
            )
        if token in OPERATORS:
            operators.append(token)
            values.append([])
        elif token != CLOSE:
            values[-1].append(_DIGITS[token])
        elif not operators:
            raise UsageError(f"expected an operator of ListOps to close, got ] alone as word {place:,}; correct it.")
        else:
            operator, arguments = operators.pop(), values.pop()
            if not arguments:
                raise UsageError(
                    f"expected at least one argument of {operator}, got its end as word {place:,}; correct it."
                )
            values[-1].append(OPERATORS[operator](arguments))
    if operators:
        raise UsageError(
            f"expected a ] for each operator of ListOps, got {count(len(operators), 'operator')} open at the end; "
            "complete the expression."
        )
    if not values[0]:
        raise UsageError("expected an expression of ListOps such as [MAX 2 9 ], got no words; pass one.")
    return values[0][0]
