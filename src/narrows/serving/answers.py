"""From the logits of many passages to scored answers in whole words, each place named once."""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from narrows.deformer import DeformerConfig
from narrows.deformer.spans import Spans, top_spans
from narrows.documents import sentence_around
from narrows.evaluation.calibration import NoAnswerRule, answer_probability
from narrows.serving.engine import PassageLogits
from narrows.serving.words import is_inside_word

__all__ = [
    "Answer",
    "RankedSpan",
    "ReadPassage",
    "Result",
    "best_answers",
    "no_answer",
    "passage_rule",
    "ranked_spans",
    "store_rule",
]

_NEVER = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer and where it stands; "" says that there is none.

    Attributes:
        answer: characters `start` to `end` of the document's text.
        score: probability that this answers the question; for "" that nothing does.
        document: id of the document; "" for no answer.
        start: first character in the document's text.
        end: one past the last.
        context: the sentence or sentences around the answer.
        context_start: where `context` begins in the document's text.
        passage: id of the passage it was read in.
        title: title of the document.
    """

    answer: str
    score: float
    document: str
    start: int
    end: int
    context: str
    context_start: int
    passage: str
    title: str

    def as_dict(self) -> dict[str, Any]:
        """The fields that the command line writes as JSON."""
        names = ("answer", "score", "document", "start", "end", "context", "passage")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What was found for a question.

    Attributes:
        question: as it was asked.
        answers: best first. When the question is refused the first is "", and the best that was found follows
            it.
        no_answer_score: probability that none of the passages read has an answer.
        threshold: an answer that is less likely than this is refused.
        candidates: number of passages read.
        seconds: wall-clock time from the question to the answers.
    """

    question: str
    answers: list[Answer]
    no_answer_score: float
    threshold: float
    candidates: int
    seconds: float

    @property
    def refused(self) -> bool:
        """Whether no passage has an answer that is likely enough."""
        return self.answers[0].answer == ""

    def as_dict(self) -> dict[str, Any]:
        """The result as the command line writes it with `--json`."""
        return {
            "question": self.question,
            "answers": [answer.as_dict() for answer in self.answers],
            "no_answer_score": self.no_answer_score,
            "candidates": self.candidates,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPassage:
    """A passage with what a question gave it.

    Attributes:
        id: of the passage.
        document: id of its document.
        title: of its document.
        start: its first character in the document.
        text: the passage itself.
        logits: of its tokens.
        bonus: logits added to the margin of each of its spans, for what the first stage says of the passage.
    """

    id: str
    document: str
    title: str
    start: int
    text: str
    logits: PassageLogits
    bonus: float = 0.0


class RankedSpan(NamedTuple):
    """Characters [start, end) of the passage at an index, and how far they lie above no answer, bonus included."""

    margin: float
    passage: int
    start: int
    end: int


class _Piece(NamedTuple):
    """Tokens `low` to `high` (not included) of a passage, and its best span, `first` to `last` (included)."""

    first: int
    last: int
    low: int
    high: int


def passage_rule(config: DeformerConfig) -> NoAnswerRule:
    """When a model answers from a text."""
    return NoAnswerRule(config.no_answer_scale, config.no_answer_bias, config.no_answer_threshold)


def store_rule(config: DeformerConfig) -> NoAnswerRule:
    """When a model answers from a store; as from a text where no other rule was fitted."""
    scale, bias = config.store_no_answer_scale, config.store_no_answer_bias
    threshold = config.store_no_answer_threshold
    if scale is None or bias is None or threshold is None:
        return passage_rule(config)
    return NoAnswerRule(scale, bias, threshold)


def no_answer(score: float) -> Answer:
    """The answer that says there is none."""
    return Answer(
        answer="", score=score, document="", start=0, end=0, context="", context_start=0, passage="", title=""
    )


def best_answers(
    passages: Sequence[ReadPassage],
    offsets_of: Callable[[int], Sequence[tuple[int, int]]],
    *,
    max_tokens: int,
    rule: NoAnswerRule,
    count: int,
) -> list[Answer]:
    """The likeliest answers over all passages, in whole words, none overlapping a better one of its document.

    A passage's answer depends on its own logits and bonus only, so scores compare across passages.

    Args:
        passages: what was read.
        offsets_of: see `ranked_spans`.
        max_tokens: longest answer.
        rule: makes a probability of a margin.
        count: answers wanted; fewer when there are fewer.

    Returns:
        Answers, best first.
    """
    found: list[Answer] = []
    for span in ranked_spans(passages, offsets_of, max_tokens=max_tokens):
        answer = _answer(
            passages[span.passage], span, answer_probability(span.margin, scale=rule.scale, bias=rule.bias)
        )
        if not any(_overlap(answer, other) for other in found):
            found.append(answer)
            if len(found) == count:
                break
    return found


def ranked_spans(
    passages: Sequence[ReadPassage], offsets_of: Callable[[int], Sequence[tuple[int, int]]], *, max_tokens: int
) -> Iterator[RankedSpan]:
    """Spans in whole words of all passages, those of one passage apart from each other, the largest margin first.

    Offsets are asked for where they are needed: passages are looked at in the order of what their best span could be.

    Args:
        passages: what was read.
        offsets_of: gives the characters of the tokens of the passage at an index, relative to the passage's
            text.
        max_tokens: longest span.

    Yields:
        The best span, then the best of what it leaves, and so on; equal margins in the order of their passages.
    """
    heap: list[tuple[float, int, int, _Piece | None]] = []
    logits: dict[int, tuple[Tensor, Tensor]] = {}
    offsets: dict[int, Sequence[tuple[int, int]]] = {}
    for index, bound in enumerate(_bounds(passages, max_tokens)):
        if bound > _NEVER:
            heapq.heappush(heap, (-bound, index, -1, None))

    def push(index: int, low: int, high: int) -> None:
        start, end = logits[index]
        if low >= high:
            return
        spans = top_spans(start[None, low:high], end[None, low:high], max_tokens=max_tokens, count=1)
        margin = _margin(passages[index], spans)
        if margin > _NEVER:
            first, last = low + int(spans.first[0, 0]), low + int(spans.last[0, 0])
            heapq.heappush(heap, (-margin, index, first, _Piece(first, last, low, high)))

    while heap:
        negative, index, _, piece = heapq.heappop(heap)
        if piece is None:
            offsets[index] = offsets_of(index)
            logits[index] = _in_whole_words(passages[index], offsets[index])
            push(index, 0, len(offsets[index]))
            continue
        start, end = offsets[index][piece.first][0], offsets[index][piece.last][1]
        # Signs alone answer nothing.
        if any(letter.isalnum() for letter in passages[index].text[start:end]):
            yield RankedSpan(-negative, index, start, end)
        push(index, piece.low, piece.first)
        push(index, piece.last + 1, piece.high)


def _bounds(passages: Sequence[ReadPassage], max_tokens: int) -> list[float]:
    """The largest margin that each passage could give, whatever its words."""
    bounds = []
    for passage in passages:
        start, end, _ = passage.logits
        if not len(start):
            bounds.append(_NEVER)
            continue
        spans = top_spans(start[None], end[None], max_tokens=max_tokens, count=1)
        bounds.append(_margin(passage, spans))
    return bounds


def _margin(passage: ReadPassage, spans: Spans) -> float:
    """How far the best of some spans lies above no answer, with the passage's bonus."""
    return float(spans.scores[0, 0]) - passage.logits.null + passage.bonus


def _in_whole_words(passage: ReadPassage, offsets: Sequence[tuple[int, int]]) -> tuple[Tensor, Tensor]:
    """Start and end logits, `-inf` where a span would begin or end within a word."""
    cut_start = torch.tensor([is_inside_word(passage.text, start) for start, _ in offsets])
    cut_end = torch.tensor([is_inside_word(passage.text, end) for _, end in offsets])
    return passage.logits.start.masked_fill(cut_start, _NEVER), passage.logits.end.masked_fill(cut_end, _NEVER)


def _answer(passage: ReadPassage, span: RankedSpan, score: float) -> Answer:
    left, right = sentence_around(passage.text, span.start, span.end)
    return Answer(
        answer=passage.text[span.start : span.end],
        score=score,
        document=passage.document,
        start=passage.start + span.start,
        end=passage.start + span.end,
        context=passage.text[left:right],
        context_start=passage.start + left,
        passage=passage.id,
        title=passage.title,
    )


def _overlap(one: Answer, other: Answer) -> bool:
    return one.document == other.document and one.start < other.end and other.start < one.end
