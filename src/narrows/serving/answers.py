"""From the logits of many passages to scored answers in whole words, each place named once."""

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from narrows.deformer import DeformerConfig
from narrows.deformer.spans import top_spans
from narrows.documents import sentence_around
from narrows.serving.engine import PassageLogits
from narrows.serving.words import is_inside_word

__all__ = ["Answer", "ReadPassage", "Result", "best_answers", "no_answer", "probability"]

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
        candidates: number of passages read.
        seconds: wall-clock time from the question to the answers.
    """

    question: str
    answers: list[Answer]
    no_answer_score: float
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
    """A passage with the logits that a question gave it; `start` is its first character in the document."""

    id: str
    document: str
    title: str
    start: int
    text: str
    logits: PassageLogits


@dataclass(frozen=True, slots=True)
class _Span:
    """A span of a passage, and the tokens `low` to `high` (not included) that it is the best of."""

    passage: int
    first: int
    last: int
    low: int
    high: int


def probability(margin: float, config: DeformerConfig) -> float:
    """Probability that a span answers, from how far its logits lie above those of [CLS] in its passage."""
    value = config.no_answer_scale * margin + config.no_answer_bias
    # The two forms keep exp() from overflowing on either side.
    return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))


def no_answer(score: float) -> Answer:
    """The answer that says there is none."""
    return Answer(
        answer="", score=score, document="", start=0, end=0, context="", context_start=0, passage="", title=""
    )


def best_answers(
    passages: Sequence[ReadPassage],
    offsets_of: Callable[[int], Sequence[tuple[int, int]]],
    config: DeformerConfig,
    *,
    count: int,
) -> list[Answer]:
    """The likeliest answers over all passages, in whole words, none overlapping a better one of its document.

    A passage's answer depends on its own logits only, so scores compare across passages. Offsets are asked
    for where they are needed: passages are looked at in the order of what their best span could be, until the
    answers are found.

    Args:
        passages: what was read.
        offsets_of: gives the characters of the tokens of the passage at an index, relative to the passage's
            text.
        config: longest answer and calibration.
        count: answers wanted; fewer when there are fewer.

    Returns:
        Answers, best first.
    """
    heap: list[tuple[float, int, int, _Span | None]] = []
    logits: dict[int, tuple[Tensor, Tensor]] = {}
    offsets: dict[int, Sequence[tuple[int, int]]] = {}
    for index, bound in enumerate(_bounds(passages, config.max_answer_tokens)):
        if bound > _NEVER:
            heapq.heappush(heap, (-bound, index, -1, None))
    found: list[Answer] = []

    def push(index: int, low: int, high: int) -> None:
        start, end = logits[index]
        if low >= high:
            return
        spans = top_spans(start[None, low:high], end[None, low:high], max_tokens=config.max_answer_tokens, count=1)
        margin = float(spans.scores[0, 0]) - passages[index].logits.null
        if margin > _NEVER:
            first, last = low + int(spans.first[0, 0]), low + int(spans.last[0, 0])
            heapq.heappush(heap, (-margin, index, first, _Span(index, first, last, low, high)))

    while heap and len(found) < count:
        negative, index, _, span = heapq.heappop(heap)
        if span is None:
            offsets[index] = offsets_of(index)
            logits[index] = _in_whole_words(passages[index], offsets[index])
            push(index, 0, len(offsets[index]))
            continue
        answer = _answer(passages[index], offsets[index], span, probability(-negative, config))
        if answer.answer.strip() and not any(_overlap(answer, other) for other in found):
            found.append(answer)
        push(index, span.low, span.first)
        push(index, span.last + 1, span.high)
    return found


def _bounds(passages: Sequence[ReadPassage], max_tokens: int) -> list[float]:
    """The largest margin that each passage could give, whatever its words."""
    bounds = []
    for passage in passages:
        start, end, null = passage.logits
        if not len(start):
            bounds.append(_NEVER)
            continue
        spans = top_spans(start[None], end[None], max_tokens=max_tokens, count=1)
        bounds.append(float(spans.scores[0, 0]) - null)
    return bounds


def _in_whole_words(passage: ReadPassage, offsets: Sequence[tuple[int, int]]) -> tuple[Tensor, Tensor]:
    """Start and end logits, `-inf` where a span would begin or end within a word."""
    cut_start = torch.tensor([is_inside_word(passage.text, start) for start, _ in offsets])
    cut_end = torch.tensor([is_inside_word(passage.text, end) for _, end in offsets])
    return passage.logits.start.masked_fill(cut_start, _NEVER), passage.logits.end.masked_fill(cut_end, _NEVER)


def _answer(passage: ReadPassage, offsets: Sequence[tuple[int, int]], span: _Span, score: float) -> Answer:
    start, end = offsets[span.first][0], offsets[span.last][1]
    left, right = sentence_around(passage.text, start, end)
    return Answer(
        answer=passage.text[start:end],
        score=score,
        document=passage.document,
        start=passage.start + start,
        end=passage.start + end,
        context=passage.text[left:right],
        context_start=passage.start + left,
        passage=passage.id,
        title=passage.title,
    )


def _overlap(one: Answer, other: Answer) -> bool:
    return one.document == other.document and one.start < other.end and other.start < one.end
