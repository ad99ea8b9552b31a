"""A document's text into the passages that an engine reads."""

from collections.abc import Sequence

from narrows._plural import count
from narrows.documents import Document, Passage, PassageSpan, split_passages
from narrows.errors import UsageError
from narrows.serving.engine import Engine
from narrows.serving.words import is_inside_word

__all__ = ["MAX_PASSAGE_TOKENS", "OVERLAP_TOKENS", "passage_room", "passages_of"]

MAX_PASSAGE_TOKENS = 292
"""Longest passage by default, without its [SEP]; with a 27-token question and three marks a row of 322."""

OVERLAP_TOKENS = 64
"""Tokens that neighbouring passages share at most."""


def passage_room(engine: Engine) -> int:
    """Most tokens of a passage, without its [SEP], that the engine's model can take."""
    return min(engine.config.max_passage_tokens, engine.config.max_position_embeddings - 1)


def passages_of(
    engine: Engine,
    document: Document,
    *,
    max_tokens: int = MAX_PASSAGE_TOKENS,
    overlap_tokens: int = OVERLAP_TOKENS,
) -> list[tuple[Passage, list[int]]]:
    """Cut a document into passages that the engine's model can take.

    The ids are those of the passage's own text, so that tokenizing the text again gives the same tokens and
    with them their characters: `engine.tokenize([text])[0].ids` closed by [SEP] is what is returned here.

    Args:
        engine: gives the tokenizer and the model's room.
        document: `document.text` of any length.
        max_tokens: longest passage wanted; a model with less room makes them shorter.
        overlap_tokens: most tokens that neighbours share; at most a quarter of a passage when that is less.

    Returns:
        Each passage's characters, and its token ids closed by [SEP]; nothing for a text without tokens.

    Raises:
        UsageError: no token fits in `max_tokens`, or the overlap is negative.
    """
    if max_tokens < 1 or overlap_tokens < 0:
        raise UsageError(
            f"expected max_tokens of at least 1 and overlap_tokens of at least 0, got {max_tokens} and "
            f"{overlap_tokens}; pass larger numbers"
        )
    room = min(max_tokens, passage_room(engine))
    text = document.text
    offsets = engine.tokenize([text])[0].offsets
    spans = split_passages(text, token_offsets=offsets, max_tokens=room, overlap_tokens=min(overlap_tokens, room // 4))
    whole = _from_whole_words(text, offsets, spans)
    encoded = engine.tokenize([text[passage.start : passage.end] for passage in whole]) if whole else []
    passages: list[tuple[Passage, list[int]]] = []
    for passage, tokens in zip(whole, encoded, strict=True):
        if len(tokens.ids) <= room:
            passages.append((passage, engine.close_passage(tokens.ids)))
        else:
            passages += _cut_again(engine, text, passage, room)
    return passages


def _from_whole_words(text: str, offsets: Sequence[tuple[int, int]], spans: Sequence[PassageSpan]) -> list[Passage]:
    """Passages that begin within a word their predecessor has seen whole begin at the next word instead."""
    passages = []
    seen = -1
    for span in spans:
        first = span.first_token
        while first <= seen and first < span.last_token and is_inside_word(text, offsets[first][0]):
            first += 1
        passages.append(Passage(offsets[first][0], span.end))
        seen = span.last_token
    return passages


def _cut_again(engine: Engine, text: str, passage: Passage, room: int) -> list[tuple[Passage, list[int]]]:
    """Halve a passage until it fits: a word cut in two may take more tokens than it had as a whole."""
    tokens = engine.tokenize([text[passage.start : passage.end]])[0]
    if len(tokens.ids) <= room:
        return [(passage, engine.close_passage(tokens.ids))] if tokens.ids else []
    middle = passage.start + tokens.offsets[len(tokens.offsets) // 2][0]
    if middle <= passage.start:
        raise UsageError(
            f"a passage of at most {count(room, 'token')} cannot hold the character {text[passage.start]!r}; "
            "allow more tokens a passage"
        )
    halves = Passage(passage.start, middle), Passage(middle, passage.end)
    return [piece for half in halves for piece in _cut_again(engine, text, half, room)]
