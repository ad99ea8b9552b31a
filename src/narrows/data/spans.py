"""Span examples into token windows, with labels that are right in every window."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from narrows.data.plain import AS_PLAIN_TEXT
from narrows.data.squad import Answer, QAExample
from narrows.data.windows import windows
from narrows.errors import UsageError

__all__ = ["EncodedSpans", "SpanEncoder", "SpanFeature"]

# Texts handed to the tokenizer in one call: large enough to use its threads, small enough for memory.
_TEXTS_PER_CALL = 512


@dataclass(frozen=True, slots=True)
class SpanFeature:
    """One window of one example, without special tokens.

    Features of questions about one context share their lists; treat them as read-only.

    Attributes:
        example: index of the example in the sequence that was encoded.
        question_ids: token ids of the question.
        passage_ids: token ids of this window of the context.
        passage_offsets: `(start, end)` characters of the context for each token of `passage_ids`, without
            surrounding white space.
        start: first token of the answer, counted in `passage_ids`; -1 when no answer lies in this window.
        end: last token of the answer (inclusive), or -1.
    """

    example: int
    question_ids: list[int]
    passage_ids: list[int]
    passage_offsets: list[tuple[int, int]]
    start: int
    end: int

    @property
    def answerable(self) -> bool:
        """Whether an answer lies wholly in this window."""
        return self.start >= 0


class EncodedSpans(NamedTuple):
    """What `SpanEncoder.encode` made, and what it could not do exactly.

    Attributes:
        features: in the order of the examples, and of the windows in each.
        truncated_questions: questions cut to `max_question_tokens`.
        misaligned_answers: distinct answers of an example that begin or end inside a token (the tokens that
            cover them are the label) or that no token covers (they give no label).
    """

    features: list[SpanFeature]
    truncated_questions: int
    misaligned_answers: int


class _Passage(NamedTuple):
    ids: list[int]
    offsets: list[tuple[int, int]]
    windows: list[tuple[range, list[int], list[tuple[int, int]]]]


class SpanEncoder:
    """Encodes questions and contexts for a span reader.

    Args:
        tokenizer: a transformers fast tokenizer (offsets are needed).
        max_question_tokens: longer questions are cut, and counted in the result.
        max_passage_tokens: widest window over the context, in tokens.
        overlap: tokens that consecutive windows share at least.

    Raises:
        UsageError: the tokenizer gives no offsets, or the sizes do not fit together.

    Example:
        `SpanEncoder(tokenizer, max_passage_tokens=384).encode(list(read_squad("dev-v1.1.json.gz"))).features`
    """

    def __init__(
        self,
        tokenizer: Any,
        *,
        max_question_tokens: int = 64,
        max_passage_tokens: int = 320,
        overlap: int = 128,
    ) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise UsageError(
                f"expected a fast tokenizer (it gives character offsets), got {type(tokenizer).__name__}; "
                "load it with AutoTokenizer."
            )
        if max_question_tokens < 1:
            raise UsageError(
                f"expected max_question_tokens of at least 1, got {max_question_tokens}; pass a larger one."
            )
        windows(0, size=max_passage_tokens, overlap=overlap)
        self._tokenizer = tokenizer
        self._max_question_tokens = max_question_tokens
        self._max_passage_tokens = max_passage_tokens
        self._overlap = overlap

    def encode(self, examples: Sequence[QAExample]) -> EncodedSpans:
        """Encodes examples; each text is tokenized once, however many questions share it.

        Args:
            examples: `Q` examples.

        Returns:
            One feature a window, at least one an example. A window is labelled with the first-listed answer
            that lies wholly in it.

        Raises:
            UsageError: an answer does not lie at its offset.
        """
        questions = self._tokenize([example.question for example in examples])
        passages = self._passages([example.context for example in examples])
        features: list[SpanFeature] = []
        truncated = misaligned = 0
        for index, example in enumerate(examples):
            question_ids = questions[example.question][0]
            truncated += len(question_ids) > self._max_question_tokens
            question_ids = question_ids[: self._max_question_tokens]
            passage = passages[example.context]
            spans = []
            for answer in dict.fromkeys(example.answers):
                _check_offset(example, answer)
                span, exact = _token_span(answer, passage.offsets)
                misaligned += not exact
                if span is not None:
                    spans.append(span)
            for window, ids, offsets in passage.windows:
                start, end = _label(spans, window)
                features.append(SpanFeature(index, question_ids, ids, offsets, start, end))
        return EncodedSpans(features, truncated, misaligned)

    def _passages(self, contexts: Sequence[str]) -> dict[str, _Passage]:
        passages = {}
        for context, (ids, raw_offsets) in self._tokenize(contexts).items():
            offsets = [_trim(context, start, end) for start, end in raw_offsets]
            cuts = windows(len(ids), size=self._max_passage_tokens, overlap=self._overlap)
            cut = [(w, ids[w.start : w.stop], offsets[w.start : w.stop]) for w in cuts]
            passages[context] = _Passage(ids, offsets, cut)
        return passages

    def _tokenize(self, texts: Sequence[str]) -> dict[str, tuple[list[int], list[tuple[int, int]]]]:
        unique = list(dict.fromkeys(texts))
        encoded = {}
        for first in range(0, len(unique), _TEXTS_PER_CALL):
            batch = unique[first : first + _TEXTS_PER_CALL]
            output = self._tokenizer(batch, **AS_PLAIN_TEXT)
            for text, ids, offsets in zip(batch, output["input_ids"], output["offset_mapping"], strict=True):
                encoded[text] = (list(ids), offsets)
        return encoded


def _check_offset(example: QAExample, answer: Answer) -> None:
    found = example.context[answer.start : answer.end] if answer.start >= 0 else ""
    if not answer.text or found != answer.text:
        raise UsageError(
            f"question {example.id}: expected the answer {answer.text!r} at character {answer.start} of its "
            f"context, got {found!r}; correct its start or remove the answer."
        )


def _trim(text: str, start: int, end: int) -> tuple[int, int]:
    """Byte-level and SentencePiece tokenizers count the space before a word as part of its token."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end


def _token_span(answer: Answer, offsets: Sequence[tuple[int, int]]) -> tuple[tuple[int, int] | None, bool]:
    """The tokens (first, last) that cover an answer, and whether they cover nothing else."""
    left = answer.start + len(answer.text) - len(answer.text.lstrip())
    right = answer.start + len(answer.text.rstrip())
    # Offsets never go back, so both ends can be searched: the first token that ends after the answer's
    # start, and the last one that starts before the answer's end.
    first = bisect_right(offsets, left, key=lambda offset: offset[1])
    last = bisect_left(offsets, right, key=lambda offset: offset[0]) - 1
    if first > last:
        return None, False
    return (first, last), (offsets[first][0], offsets[last][1]) == (left, right)


def _label(spans: Sequence[tuple[int, int]], window: range) -> tuple[int, int]:
    for first, last in spans:
        if window.start <= first and last < window.stop:
            return first - window.start, last - window.start
    return -1, -1
