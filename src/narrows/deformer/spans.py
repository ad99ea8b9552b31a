"""From start and end logits to spans."""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

__all__ = ["Spans", "best_spans", "top_spans"]


class Spans(NamedTuple):
    """Spans of a batch, best first, `[batch, count]` each: start + end logit, first token, last token (inclusive)."""

    scores: Tensor
    first: Tensor
    last: Tensor


def top_spans(
    start: Float[Tensor, "batch tokens"], end: Float[Tensor, "batch tokens"], *, max_tokens: int, count: int
) -> Spans:
    """The `count` spans of at most `max_tokens` tokens with the largest start + end logit, in each row.

    Args:
        start: logits of the passage's tokens; `-inf` where no answer may start (padding).
        end: likewise.
        max_tokens: longest span.
        count: spans wanted; fewer when a row has fewer (what is over has the score `-inf`).
    """
    batch, tokens = start.shape
    # Row d holds the spans of d + 1 tokens: only as many rows as a span may be long, never tokens × tokens.
    width = min(max_tokens, tokens)
    table = start.new_full((batch, width, tokens), float("-inf"))
    for extra in range(width):
        table[:, extra, : tokens - extra] = start[:, : tokens - extra] + end[:, extra:]
    scores, flat = table.flatten(1).topk(min(count, width * tokens), dim=-1)
    first = flat % max(tokens, 1)
    return Spans(scores, first, first + flat // max(tokens, 1))


def best_spans(
    start: Float[Tensor, "batch tokens"], end: Float[Tensor, "batch tokens"], *, max_tokens: int
) -> tuple[Float[Tensor, " batch"], Tensor, Tensor]:
    """The best span of each row: its score, first and last token, `[batch]` each.

    Example:
        >>> start, end = torch.tensor([[0.0, 3.0, 0.0]]), torch.tensor([[2.0, 0.0, 1.0]])
        >>> [int(x) for x in best_spans(start, end, max_tokens=2)]
        [4, 1, 2]
    """
    spans = top_spans(start, end, max_tokens=max_tokens, count=1)
    return spans.scores[:, 0], spans.first[:, 0], spans.last[:, 0]
