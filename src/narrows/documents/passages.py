"""Text into passages that a model can take, along paragraphs and sentences."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from narrows._plural import count
from narrows.documents.sentences import sentences
from narrows.errors import UsageError

__all__ = ["Passage", "PassageSpan", "sentence_around", "split_passages"]

_LONGEST_WORD = 32


@dataclass(frozen=True)
class Passage:
    """Characters [start, end) of a document's text."""

    start: int
    end: int


@dataclass(frozen=True)
class PassageSpan(Passage):
    """A passage and the tokens it covers: `first_token` to `last_token`, both included."""

    first_token: int
    last_token: int


def split_passages(
    text: str, *, token_offsets: Sequence[tuple[int, int]], max_tokens: int, overlap_tokens: int
) -> list[PassageSpan]:
    """Cut a text into passages of at most `max_tokens` tokens that follow its paragraphs and sentences.

    Whole sentences are packed until the next would not fit. A passage closes at its last paragraph border
    when it is at least half full there. The next begins with those last sentences of the former that fit in
    `overlap_tokens` (fewer, when the sentence after them would not fit as well). A heading stays with what
    follows it. A sentence longer than a passage is cut between tokens, where possible between words, with
    `overlap_tokens` in common.

    Args:
        text: the text.
        token_offsets: [tokens] pairs (start, end) in characters of `text`: every token of the whole text in
            order, without special tokens.
        max_tokens: the most tokens in a passage.
        overlap_tokens: the most tokens that two neighbours share; less than `max_tokens`.

    Returns:
        The passages in order; each token is in at least one, and each passage starts and ends with its first
        and last token. Empty when there are no tokens.

    Raises:
        UsageError: `max_tokens` or `overlap_tokens` cannot be met, or the offsets do not fit the text.

    Example:
        >>> offsets = [(0, 3), (3, 4), (5, 8), (8, 9)]
        >>> split_passages("One. Two.", token_offsets=offsets, max_tokens=2, overlap_tokens=0)[1]
        PassageSpan(start=5, end=9, first_token=2, last_token=3)
    """
    _check(text, token_offsets, max_tokens, overlap_tokens)
    if not len(token_offsets):
        return []
    starts, paragraphs = _units(text, token_offsets, max_tokens)
    passages = []
    first, covered, total = 0, 0, len(token_offsets)
    while covered < total:
        end, is_cut = _end_of_passage(first, covered, starts, paragraphs, max_tokens)
        if is_cut:
            end = _between_words(text, token_offsets, end, (max_tokens - overlap_tokens) // 2)
        start_character, end_character = token_offsets[first][0], token_offsets[end - 1][1]
        passages.append(PassageSpan(start_character, end_character, first, end - 1))
        covered = end
        if is_cut:
            first = end - overlap_tokens
        elif end < total:
            first = _start_of_next(first, end, starts, max_tokens, overlap_tokens)
    return passages


def sentence_around(text: str, start: int, end: int, *, max_chars: int = 300) -> tuple[int, int]:
    """Find the sentence, or sentences, that a span lies in, to show the span in its context.

    Only the neighbourhood of the span is looked at, so the cost does not grow with the text.

    Args:
        text: the text.
        start: first character of the span.
        end: the character after the span.
        max_chars: the most characters to return; a longer sentence is narrowed around the span, between words
            where possible. The span itself is never cut.

    Returns:
        (start, end) in characters of `text`, around the span.

    Raises:
        UsageError: the span is not in the text or `max_chars` is less than 1.

    Example:
        >>> sentence_around("It rained. The boat left. We stayed.", 15, 19)
        (11, 25)
    """
    if not 0 <= start <= end <= len(text):
        raise UsageError(
            f"expected a span within the {count(len(text), 'character')} of the text, but got {start} to {end}; "
            "pass 0 <= start <= end <= length"
        )
    if max_chars < 1:
        raise UsageError(f"expected max_chars of at least 1, but got {max_chars}; pass a larger number")
    low = max(0, start - max_chars - _LONGEST_WORD)
    high = min(len(text), end + max_chars + _LONGEST_WORD)
    left, right = start, end
    for sentence in sentences(text[low:high]):
        sentence_start, sentence_end = sentence.start + low, sentence.end + low
        if sentence_start > start and sentence_start >= end:
            break
        if sentence_end > start:
            left, right = min(left, sentence_start), max(right, sentence_end)
    if right - left <= max_chars:
        return left, right
    return _narrow(text, (start, end), (left, right), max_chars)


def _check(text: str, offsets: Sequence[tuple[int, int]], max_tokens: int, overlap_tokens: int) -> None:
    if max_tokens < 1:
        raise UsageError(f"expected max_tokens of at least 1, but got {max_tokens}; pass a larger number")
    if not 0 <= overlap_tokens < max_tokens:
        raise UsageError(
            f"expected overlap_tokens from 0 to {max_tokens - 1}, less than max_tokens, but got "
            f"{overlap_tokens}; lower the overlap or raise max_tokens"
        )
    last_start, last_end = 0, 0
    for index, (start, end) in enumerate(offsets):
        if not (last_start <= start <= end <= len(text) and last_end <= end):
            raise UsageError(
                f"expected token offsets in order within the {count(len(text), 'character')} of the text, but token "
                f"{index} is at {start} to {end}; tokenize the same text, whole and without special tokens"
            )
        last_start, last_end = start, end


def _units(text: str, offsets: Sequence[tuple[int, int]], max_tokens: int) -> tuple[list[int], list[int]]:
    """First tokens of the units to pack and of the paragraphs.

    A unit is a sentence, or headings with the sentence after them. Both lists end in the count of tokens.
    """
    total = len(offsets)
    found: list[tuple[int, bool, bool]] = [(0, True, False)]
    token = 0
    for index, sentence in enumerate(sentences(text)):
        if index == 0:
            # Whatever stands before the first sentence belongs to it.
            found[0] = (0, True, sentence.is_heading)
            continue
        # A token belongs where its last character lies, for some tokenizers count the space before a word in.
        while token < total and max(offsets[token][0], offsets[token][1] - 1) < sentence.start:
            token += 1
        if token == total:
            break
        opens = sentence.opens_paragraph
        if found[-1][0] == token:
            opens = found.pop()[1] or opens
        found.append((token, opens, sentence.is_heading))
    return _keep_headings(found, total, max_tokens)


def _keep_headings(found: list[tuple[int, bool, bool]], total: int, max_tokens: int) -> tuple[list[int], list[int]]:
    ends = [unit[0] for unit in found[1:]] + [total]
    starts, paragraphs = [], []
    index = 0
    while index < len(found):
        last = index
        while found[last][2] and last + 1 < len(found):
            next_is_long = ends[last + 1] - ends[last] > max_tokens
            if ends[last + 1] - found[index][0] > max_tokens and not next_is_long:
                break
            last += 1
        starts.append(found[index][0])
        if found[index][1]:
            paragraphs.append(found[index][0])
        index = last + 1
    return [*starts, total], [*paragraphs, total]


def _end_of_passage(
    first: int, covered: int, starts: list[int], paragraphs: list[int], max_tokens: int
) -> tuple[int, bool]:
    """The token after the passage that begins at `first`, and whether it lies within a sentence."""
    limit = first + max_tokens
    if starts[-1] <= limit:
        return starts[-1], False
    paragraph = paragraphs[bisect_right(paragraphs, limit) - 1]
    if paragraph > covered and 2 * (paragraph - first) >= max_tokens:
        return paragraph, False
    sentence = starts[bisect_right(starts, limit) - 1]
    if sentence > covered:
        return sentence, False
    return limit, True


def _start_of_next(first: int, end: int, starts: list[int], max_tokens: int, overlap_tokens: int) -> int:
    lowest = max(first + 1, end - overlap_tokens)
    next_end = starts[bisect_right(starts, end)]
    if next_end - end <= max_tokens:
        # Better less overlap than a sentence cut in two that would have fitted.
        lowest = max(lowest, next_end - max_tokens)
    return starts[bisect_left(starts, lowest)]


def _between_words(text: str, offsets: Sequence[tuple[int, int]], end: int, most_steps: int) -> int:
    for candidate in range(end, end - most_steps - 1, -1):
        start = offsets[candidate][0]
        if start > offsets[candidate - 1][1] or text[start : start + 1].isspace():
            return candidate
    return end


def _narrow(text: str, span: tuple[int, int], around: tuple[int, int], max_chars: int) -> tuple[int, int]:
    start, end = span
    spare = max_chars - (end - start)
    if spare <= 0:
        return span
    left = max(around[0], start - spare // 2)
    right = min(around[1], left + max_chars)
    left = max(around[0], right - max_chars)
    if left > around[0] and not text[left - 1].isspace():
        border = next((i for i in range(left, min(start, left + _LONGEST_WORD)) if text[i].isspace()), None)
        left = left if border is None else border
    if right < around[1] and not text[right].isspace():
        border = next((i for i in range(right, max(end, right - _LONGEST_WORD), -1) if text[i - 1].isspace()), None)
        right = right if border is None else border
    while left < start and text[left].isspace():
        left += 1
    while right > end and text[right - 1].isspace():
        right -= 1
    return left, right
