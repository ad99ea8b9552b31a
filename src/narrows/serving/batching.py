"""Any number of texts through a model, batched by tokens, in their order, with a bounded part of them in memory."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np
import torch

from narrows._plural import count
from narrows._text import shown
from narrows.data import equal_length_batches, token_budget_batches
from narrows.documents.texts import Text
from narrows.errors import UsageError
from narrows.hf.encoders import Encoder
from narrows.serving.words import require_unicode

__all__ = ["Batcher", "Row", "as_texts"]

# Texts are sorted by length within a window of as many tokens as these batches hold, or as many texts.
_BATCHES_IN_A_WINDOW = 16
_TEXTS_IN_A_WINDOW = 4096
# The tokenizer is faster over several texts at once.
_TEXTS_AT_ONCE = 64
_CHARACTERS_AT_ONCE = 1 << 20
_PADDING = {"attention_mask": 0}


class Row(NamedTuple):
    """What a model made of a text.

    Attributes:
        text: that it read.
        value: `[width]`, fp32.
        tokens: that were read, special tokens and prompt included.
        tokens_not_read: that were cut off.
    """

    text: Text
    value: np.ndarray
    tokens: int
    tokens_not_read: int


class _Encoded(NamedTuple):
    text: Text
    inputs: dict[str, list[int]]
    tokens_not_read: int

    @property
    def tokens(self) -> int:
        return len(self.inputs["input_ids"])


class Batcher:
    """Texts into padded batches and back into rows.

    Args:
        encoder: the model and its tokenizer.
        max_tokens: longest text, special tokens included; None: any.
        batch_tokens: padded tokens of a batch; a longer text is a batch of its own.
        prompt: what stands before every text.
        lowercase: whether texts are read in lower case.

    Raises:
        UsageError: a number that leaves no room for text, or beyond the model's positions, or a prompt that is not
            Unicode.
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        max_tokens: int | None,
        batch_tokens: int = 8192,
        prompt: str = "",
        lowercase: bool = False,
    ):
        if batch_tokens < 1:
            raise UsageError(f"expected batch_tokens of at least 1, got {batch_tokens}; pass a larger budget")
        specials = encoder.tokenizer.num_special_tokens_to_add()
        if max_tokens is not None and max_tokens <= specials:
            raise UsageError(
                f"expected max_tokens (--max-tokens) of more than {specials}, the special tokens, got {max_tokens}; "
                "pass a larger one"
            )
        if max_tokens is not None and encoder.positions is not None and max_tokens > encoder.positions:
            raise UsageError(
                f"expected max_tokens (--max-tokens) of at most {encoder.positions:,}, the positions of "
                f"{encoder.checkpoint}, got {max_tokens:,}; pass a smaller one, or name a model for longer texts"
            )
        require_unicode(prompt, "a prompt")
        self.encoder, self.max_tokens, self.batch_tokens = encoder, max_tokens, batch_tokens
        self._prompt, self._lowercase = prompt, lowercase

    def with_prompt(self, prompt: str) -> "Batcher":
        """Another one over the same model, with what stands before every text."""
        other = copy(self)
        other._prompt = prompt
        return other

    def windows(
        self,
        texts: Iterable[Text],
        compute: Callable[[dict[str, torch.Tensor]], torch.Tensor],
        *,
        truncate: bool = False,
        wordless: bool = False,
        on_tokens: Callable[[int], Any] | None = None,
    ) -> Iterator[list[Row]]:
        """Rows of the texts in their order, a window at a time.

        Args:
            texts: read as they are needed.
            compute: a padded batch into `[batch, width]`.
            truncate: whether longer texts are cut; otherwise they are refused.
            wordless: whether a text without words is read too; otherwise it is refused.
            on_tokens: told of the tokens of each batch, padding not counted.

        Raises:
            UsageError: a text without words, one that is not Unicode, or one that is too long.
        """
        window: list[_Encoded] = []
        tokens = 0
        for encoded in self._encoded(texts, truncate, wordless):
            window.append(encoded)
            tokens += encoded.tokens
            # By the texts alone, so that a run that goes on after a stop cuts the same windows.
            if tokens >= _BATCHES_IN_A_WINDOW * self.batch_tokens or len(window) >= _TEXTS_IN_A_WINDOW:
                yield self._rows(window, compute, on_tokens)
                window, tokens = [], 0
        if window:
            yield self._rows(window, compute, on_tokens)

    def _rows(self, window: list[_Encoded], compute: Callable[..., torch.Tensor], on_tokens: Any) -> list[Row]:
        values: list[Any] = [None] * len(window)
        for batch in self._batches([encoded.tokens for encoded in window]):
            chosen = [window[index] for index in batch]
            with torch.inference_mode():
                found = compute(self._padded(chosen)).float().cpu().numpy()
            for index, value in zip(batch, found, strict=True):
                values[index] = value
            if on_tokens is not None:
                on_tokens(sum(encoded.tokens for encoded in chosen))
        return [
            Row(encoded.text, value, encoded.tokens, encoded.tokens_not_read)
            for encoded, value in zip(window, values, strict=True)
        ]

    def _batches(self, lengths: list[int]) -> list[list[int]]:
        cut = equal_length_batches if self.encoder.equal_lengths else token_budget_batches
        return cut(lengths, batch_tokens=self.batch_tokens)

    def _padded(self, rows: Sequence[_Encoded]) -> dict[str, torch.Tensor]:
        tokenizer, model = self.encoder.tokenizer, self.encoder.model
        longest = max(row.tokens for row in rows)
        fill = {"input_ids": tokenizer.pad_token_id, "token_type_ids": tokenizer.pad_token_type_id, **_PADDING}
        return {
            name: torch.tensor(
                [[*row.inputs[name], *[fill.get(name, 0)] * (longest - row.tokens)] for row in rows],
                device=model.device,
            )
            for name in rows[0].inputs
        }

    def _encoded(self, texts: Iterable[Text], truncate: bool, wordless: bool) -> Iterator[_Encoded]:
        held: list[Text] = []
        characters = 0
        for text in texts:
            for part in (text.text, text.pair or ""):
                require_unicode(part, f"text {shown(text.id)}")
            if not wordless:
                _require_words(text)
            held.append(text)
            characters += len(text.text) + len(text.pair or "")
            if len(held) >= _TEXTS_AT_ONCE or characters >= _CHARACTERS_AT_ONCE:
                yield from self._tokenized(held, truncate)
                held, characters = [], 0
        yield from self._tokenized(held, truncate)

    def _tokenized(self, texts: list[Text], truncate: bool) -> Iterator[_Encoded]:
        if not texts:
            return
        pairs = [text.pair for text in texts]
        alone = pairs.count(None)
        if 0 < alone < len(pairs):
            raise UsageError("expected texts only, or pairs only, got both; pass them apart")
        found = self._call([text.text for text in texts], None if alone else pairs)
        limit = self.max_tokens
        for index, text in enumerate(texts):
            inputs = {name: list(rows[index]) for name, rows in found.items()}
            tokens = len(inputs["input_ids"])
            if tokens < self.encoder.least_tokens:
                raise UsageError(
                    f"expected texts of at least {count(self.encoder.least_tokens, 'token')} for "
                    f"{self.encoder.checkpoint}, got {tokens:,} in {shown(text.id)}; leave it out, or name "
                    "another model"
                )
            if limit is None or tokens <= limit:
                yield _Encoded(text, inputs, 0)
                continue
            if not truncate:
                raise UsageError(
                    f"expected texts of at most {count(limit, 'token')}, got {tokens:,} in {shown(text.id)}; pass "
                    "truncate (--truncate) to read the beginning only, or cut it into parts"
                )
            cut = self._call([text.text], None if text.pair is None else [text.pair], truncation=True, max_length=limit)
            inputs = {name: list(rows[0]) for name, rows in cut.items()}
            yield _Encoded(text, inputs, tokens - len(inputs["input_ids"]))

    def _call(self, texts: list[str], pairs: Any, **options: Any) -> dict[str, Any]:
        # A text's own "[SEP]" is text.
        found = self.encoder.tokenizer(
            [self._read(text) for text in texts],
            None if pairs is None else [self._lower(pair) for pair in pairs],
            split_special_tokens=True,
            return_attention_mask=True,
            verbose=False,
            **options,
        )
        kept = self.encoder.accepted | {"attention_mask"}
        return {name: rows for name, rows in found.items() if name in kept}

    def _read(self, text: str) -> str:
        return self._lower(self._prompt + text)

    def _lower(self, text: str) -> str:
        return text.lower() if self._lowercase else text


def as_texts(texts: Iterable[Any]) -> Iterator[Text]:
    """Strings, pairs of strings and `Text`s as `Text`s; those without an id are numbered from 1.

    Raises:
        UsageError: one text where several are wanted, or something that is no text.
    """
    if isinstance(texts, str | Text):
        raise UsageError("expected several texts, got one; pass a list")
    for number, text in enumerate(texts, start=1):
        if isinstance(text, Text):
            yield text
        elif isinstance(text, str):
            yield Text(number, text)
        elif isinstance(text, tuple) and len(text) == 2 and all(isinstance(part, str) for part in text):
            yield Text(number, *text)
        else:
            raise UsageError(
                f"expected a string or a pair of them as text {number}, got {type(text).__name__}; pass a text"
            )


def _require_words(text: Text) -> None:
    for part in (text.text, text.pair):
        if part is not None and (not part or part.isspace()):
            got = "only spaces" if part else "nothing"
            raise UsageError(f"expected words in text {shown(text.id)}, got {got}; leave it out")
