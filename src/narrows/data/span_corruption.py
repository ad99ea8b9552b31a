"""T5's span corruption: stretches of a text are taken out, and are to be written again.

Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer", section 3.1.4,
and `random_spans_noise_mask` of their code: 15 % of the tokens, in spans of 3 on average, a text begins with what is
left and ends with a span.
"""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from narrows.errors import UsageError

__all__ = ["Corrupted", "corrupt_spans", "corrupted_lengths"]


class Corrupted(NamedTuple):
    """Token ids.

    Attributes:
        inputs: what is left, a sentinel in the place of each span.
        targets: each span after its sentinel, in the same order.
    """

    inputs: list[int]
    targets: list[int]


def corrupt_spans(
    ids: Sequence[int],
    *,
    sentinels: Sequence[int],
    random: Random,
    noise_density: float = 0.15,
    mean_span: float = 3.0,
) -> Corrupted:
    """Takes random spans out of a text; each token is in the inputs or in the targets, once.

    Args:
        ids: token ids, at least 2.
        sentinels: ids in the order in which they are used; where there are fewer of them than spans, the spans are
            fewer and longer.
        random: draws the spans.
        noise_density: share of the tokens to take out, above 0 and below 1; at least one token, and not all.
        mean_span: mean length of a span, at least 1.

    Raises:
        UsageError: fewer than 2 tokens, no sentinel, or a number out of its range.

    Example:
        >>> corrupt_spans([5, 6, 7, 8], sentinels=[99], random=Random(0), noise_density=0.25)
        Corrupted(inputs=[5, 6, 7, 99], targets=[99, 8])
    """
    if not sentinels:
        raise UsageError("expected at least one sentinel to put in the place of a span, got none; pass their ids")
    noise, spans = _counts(len(ids), len(sentinels), noise_density, mean_span)
    kept_lengths = _lengths(len(ids) - noise, spans, random)
    noise_lengths = _lengths(noise, spans, random)
    inputs: list[int] = []
    targets: list[int] = []
    place = 0
    for sentinel, kept, taken in zip(sentinels, kept_lengths, noise_lengths, strict=False):
        inputs += [*map(int, ids[place : place + kept]), sentinel]
        targets += [sentinel, *map(int, ids[place + kept : place + kept + taken])]
        place += kept + taken
    return Corrupted(inputs, targets)


def corrupted_lengths(
    tokens: int, *, sentinels: int, noise_density: float = 0.15, mean_span: float = 3.0
) -> tuple[int, int]:
    """Tokens of the inputs and of the targets that `corrupt_spans` makes of so many; they do not depend on chance.

    Raises:
        UsageError: as `corrupt_spans`.

    Example:
        >>> corrupted_lengths(100, sentinels=100)
        (90, 20)
    """
    noise, spans = _counts(tokens, sentinels, noise_density, mean_span)
    return tokens - noise + spans, noise + spans


def _counts(tokens: int, sentinels: int, noise_density: float, mean_span: float) -> tuple[int, int]:
    """Tokens that are taken out, and in how many spans."""
    if tokens < 2:
        raise UsageError(f"expected at least 2 tokens to corrupt, got {tokens}; leave such a text out")
    if not 0 < noise_density < 1:
        raise UsageError(f"expected a noise_density above 0 and below 1, got {noise_density}; T5's is 0.15")
    if mean_span < 1:
        raise UsageError(f"expected a mean_span of at least 1, got {mean_span}; T5's is 3")
    noise = min(max(round(tokens * noise_density), 1), tokens - 1)
    # As many stretches are left as are taken out, each with a token at least.
    return noise, min(max(round(noise / mean_span), 1), noise, tokens - noise, sentinels)


def _lengths(total: int, parts: int, random: Random) -> list[int]:
    """A random way to cut `total` tokens into so many stretches, none of them empty; all ways are as likely."""
    cuts = sorted(random.sample(range(1, total), parts - 1))
    return [end - start for start, end in zip([0, *cuts], [*cuts, total], strict=True)]
