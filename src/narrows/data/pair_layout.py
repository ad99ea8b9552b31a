"""How a tokenizer joins a question and a passage: special tokens and segments, for windows that it did not cut."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

from narrows.errors import UsageError

__all__ = ["PairLayout", "bert_pairs", "pair_layout"]


class Token(NamedTuple):
    """A special token and its segment."""

    id: int
    segment: int


class PairLayout(NamedTuple):
    """What stands around and between a question and a passage.

    Attributes:
        before: special tokens in front of the question; the first is the classifier's, which stands for "no answer".
        between: those between question and passage.
        after: those behind the passage.
        question: segment of the question.
        passage: segment of the passage.
        padding: what rows are padded with.
        segmented: whether the tokenizer gives segments; otherwise the model reads rows without them.
    """

    before: tuple[Token, ...]
    between: tuple[Token, ...]
    after: tuple[Token, ...]
    question: int
    passage: int
    padding: Token
    segmented: bool = True

    @property
    def special_tokens(self) -> int:
        """How many there are in a row."""
        return len(self.before) + len(self.between) + len(self.after)

    def passage_start(self, question_ids: Sequence[int]) -> int:
        """The place of the first passage token in a row."""
        return len(self.before) + len(question_ids) + len(self.between)

    def join(self, question_ids: Sequence[int], passage_ids: Sequence[int]) -> tuple[list[int], list[int]]:
        """Token ids and segments of a row, each of length `m + n + special_tokens`.

        Example:
            >>> bert_pairs(cls=1, sep=2, pad=0).join([7], [8, 9])
            ([1, 7, 2, 8, 9, 2], [0, 0, 0, 1, 1, 1])
        """
        tokens = [
            *self.before,
            *(Token(number, self.question) for number in question_ids),
            *self.between,
            *(Token(number, self.passage) for number in passage_ids),
            *self.after,
        ]
        return [token.id for token in tokens], [token.segment for token in tokens]


def bert_pairs(*, cls: int, sep: int, pad: int) -> PairLayout:
    """BERT's: `[CLS] question [SEP]` is segment 0, `passage [SEP]` is segment 1, and so is padding."""
    return PairLayout((Token(cls, 0),), (Token(sep, 0),), (Token(sep, 1),), 0, 1, Token(pad, 1))


def pair_layout(tokenizer: Any) -> PairLayout:
    """The layout of a tokenizer, read off a pair that it joined.

    Args:
        tokenizer: a fast one of transformers.

    Raises:
        UsageError: it is not fast, has no padding token, or does not begin a pair with its classifier's token.

    Example:
        `pair_layout(tokenizer_of_a_funnel).before` is `(Token(id=2, segment=2),)`
    """
    name = type(tokenizer).__name__
    if not getattr(tokenizer, "is_fast", False) or tokenizer.pad_token_id is None:
        raise UsageError(
            f"expected a fast tokenizer with a pad_token, got {name}; load it with AutoTokenizer, and add the token to "
            "tokenizer_config.json."
        )
    joined = tokenizer("a", "a", return_token_type_ids=True)
    places = zip(joined.sequence_ids(0), joined["input_ids"], joined["token_type_ids"], strict=True)
    parts = [(side, [Token(number, segment) for _, number, segment in group]) for side, group in groupby(places, _side)]
    if [side for side, _ in parts] != [None, 0, None, 1, None] or parts[0][1][0].id != tokenizer.cls_token_id:
        raise UsageError(
            f"expected a tokenizer that joins a pair as [CLS] question [SEP] passage [SEP], got {name} with another "
            "order; choose an encoder that reads as BERT, RoBERTa or a Funnel does."
        )
    before, question, between, passage, after = (tuple(tokens) for _, tokens in parts)
    segmented = "token_type_ids" in tokenizer.model_input_names
    padding = Token(tokenizer.pad_token_id, tokenizer.pad_token_type_id)
    return PairLayout(before, between, after, question[0].segment, passage[0].segment, padding, segmented)


def _side(place: tuple[int | None, int, int]) -> int | None:
    return place[0]
