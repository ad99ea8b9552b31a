"""What the levels of Mulla's pyramid are of a text: how long, how coarse, what a slot covers, what a query sees."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from narrows.errors import ConversionError, DocumentError, UsageError
from narrows.inspection.families import pyramid_pattern
from narrows.inspection.patterns import count_pairs, runs_of
from narrows.mulla.levels import Pyramid

__all__ = ["Level", "Levels", "Slot", "describe_levels", "load_tokenizer", "shorten", "token_places"]

_SHOWN_CHARACTERS = 60


class Slot(NamedTuple):
    """A slot and the text that it covers."""

    slot: int
    """Number of the slot, from 0."""
    tokens: tuple[int, int]
    """First token covered and the one after the last."""
    characters: tuple[int, int]
    """The same in characters of the document's text."""
    text: str
    """The text between, on one line and shortened in its middle."""


class Level(NamedTuple):
    """A level of a text's pyramid."""

    level: int
    """From 1, the tokens themselves."""
    slots: int
    tokens_per_slot: int
    """The last slot may cover fewer."""
    tokens_per_window: int
    """Tokens that the slots seen by one query cover, away from the ends of the text; at most the text."""
    least_seen: float
    """Share of the text that the query which sees least sees at this level."""
    mean_seen: float
    samples: list[Slot]


class Levels(NamedTuple):
    """A text's pyramid, level by level."""

    tokens: int
    levels: list[Level]
    least_seen: float
    """Share of the text that the query which sees least sees at all levels together."""
    sees_whole_text: bool
    """Whether every query sees the whole text."""


def describe_levels(
    text: str,
    places: Sequence[tuple[int, int]],
    pyramid: Pyramid,
    *,
    slots: int = 3,
    advance: Callable[[int], None] = lambda _: None,
) -> Levels:
    """What each level of a text's pyramid holds and shows.

    Args:
        text: the document's.
        places: of each token its first character and the one after its last, at least one token.
        pyramid: radius, pooling rate and number of levels.
        slots: slots of each level to give with their text, evenly spread from the first to the last.
        advance: called with the number of queries looked at since the last call.

    Raises:
        UsageError: `slots` is negative, or the text is longer than can be looked at.

    Example:
        >>> found = describe_levels("a b c d", [(0, 1), (2, 3), (4, 5), (6, 7)], Pyramid(1, 2, 2), slots=2)
        >>> [(level.slots, level.tokens_per_window, [slot.text for slot in level.samples]) for level in found.levels]
        [(4, 3, ['a', 'd']), (2, 4, ['a b', 'c d'])]
        >>> found.sees_whole_text
        True
    """
    if slots < 0:
        raise UsageError(f"`slots` must be at least 0, got {slots}; say how many slots of each level to show")
    length = len(places)
    pattern = pyramid_pattern(pyramid, length)
    counts = count_pairs(pattern, runs_of(pattern, advance))
    levels = []
    for index, block in enumerate(pattern.blocks):
        span = pyramid.span(index)
        samples = []
        for slot in _spread(block.keys, slots):
            first, end = int(block.borders[slot]), int(block.borders[slot + 1])
            start, stop = places[first][0], places[end - 1][1]
            samples.append(Slot(slot, (first, end), (start, stop), shorten(text[start:stop])))
        levels.append(
            Level(
                level=index + 1,
                slots=block.keys,
                tokens_per_slot=span,
                tokens_per_window=min(span * (2 * pyramid.radius + 1), length),
                least_seen=counts.least_reach[index] / length,
                mean_seen=counts.mean_reach[index] / length,
                samples=samples,
            )
        )
    return Levels(length, levels, counts.least_reach_of_all / length, counts.sees_whole_text)


def load_tokenizer(model: str | None) -> Any:
    """The tokenizer of a checkpoint, or of the one that comes with narrows.

    Raises:
        ConversionError: there is no such checkpoint, it has no vocabulary, or its tokenizer does not say where in a
            text its tokens lie.
    """
    from transformers import AutoTokenizer

    from narrows.hf.checkpoints import DEFAULT_CHECKPOINT, checkpoint_folder, require_tokenizer
    from narrows.hf.register import register_all

    # Without it, transformers warns of the model type of a model of ours.
    register_all()
    folder: Path = checkpoint_folder(DEFAULT_CHECKPOINT if model is None else model)
    require_tokenizer(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if not tokenizer.is_fast:
        raise ConversionError(
            f"expected a fast tokenizer, which says where its tokens lie, got {type(tokenizer).__name__} in {folder}; "
            "save it with its tokenizer.json"
        )
    return tokenizer


def token_places(tokenizer: Any, text: str, *, name: str) -> list[tuple[int, int]]:
    """Where the tokens of a text lie in it, without the special tokens that a model adds.

    Args:
        tokenizer: of `load_tokenizer`.
        text: any length.
        name: of the text, for the error.

    Raises:
        DocumentError: there is not one token in it.
    """
    encoding = tokenizer(
        text, add_special_tokens=False, split_special_tokens=True, return_offsets_mapping=True, verbose=False
    )
    places = [(start, stop) for start, stop in encoding["offset_mapping"]]
    if not places:
        raise DocumentError(f"expected text in {name}, but the tokenizer finds no token in it; name another file")
    return places


def shorten(text: str, limit: int = _SHOWN_CHARACTERS) -> str:
    """A text on one line, with its middle left out where it is longer than `limit`.

    Example:
        >>> shorten("one two\\nthree four", 11)
        'one … four'
    """
    # Of a long text only the ends are looked at.
    if len(text) > 20 * limit:
        text = f"{text[: 10 * limit]} {text[-10 * limit :]}"
    line = " ".join(text.split())
    if len(line) <= limit:
        return line
    kept = limit - 3
    return f"{line[: kept - kept // 2].rstrip()} … {line[len(line) - kept // 2 :].lstrip()}"


def _spread(length: int, wanted: int) -> list[int]:
    """At most `wanted` numbers below `length`, from the first to the last."""
    if wanted >= length:
        return list(range(length))
    if wanted == 1:
        return [0]
    return [index * (length - 1) // (wanted - 1) for index in range(wanted)]
