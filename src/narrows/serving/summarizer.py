"""`Summarizer`: long texts in, a short one out, with what was read and what was not."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import StoppingCriteria, StoppingCriteriaList

from narrows._plural import count
from narrows.data import Truncation, TruncationReport, plain_tokens, truncation
from narrows.data.long_inputs import InputEncoder
from narrows.errors import UsageError
from narrows.hf.encoders import place
from narrows.hf.seq2seq import input_encoder, load_seq2seq, write_texts
from narrows.hf.trained_inputs import TrainedInputs, trained_inputs
from narrows.serving.summary_memory import available_bytes, largest_input, needed_bytes
from narrows.serving.words import require_unicode

__all__ = ["Summarizer", "Summary"]

# What the allocators of CPUs say.
_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory")


class Summary(NamedTuple):
    """A summary and how it came about.

    Attributes:
        summary: what the model wrote; of several parts, a line a part.
        tokens_read: tokens of the documents, and of what separates them, that the model read.
        tokens_not_read: that it did not.
        truncation: the same, with the number of parts.
        seconds: reading and writing.
        beyond_trained: tokens by which the longest input exceeds the longest that the model was trained on; 0 where it
            does not, or where the model does not say.
        unknown: tokens of the documents that stand for words the tokenizer does not know.
    """

    summary: str
    tokens_read: int
    tokens_not_read: int
    truncation: TruncationReport
    seconds: float
    beyond_trained: int
    unknown: int


class Summarizer:
    """Summarises with a LongT5-Mulla or another model of the T5 family.

    Example:
        >>> summarizer = Summarizer.from_pretrained("my-mulla")  # doctest: +SKIP
        >>> summarizer.summarize(text, query="What was decided?").summary  # doctest: +SKIP
    """

    def __init__(self, model: Any, tokenizer: Any):
        self.model, self.tokenizer = model, tokenizer
        self._tokenize = plain_tokens(tokenizer)

    @classmethod
    def from_pretrained(cls, path: str | Path, *, device: str = "auto", dtype: str = "float32") -> "Summarizer":
        """Load a model and its tokenizer.

        Args:
            path: a folder or a hub id of a LongT5-Mulla, LongT5, T5 or mT5 with its decoder.
            device: `auto` (a GPU where there is one), `cpu` or `cuda`.
            dtype: `float32` or `bfloat16`.

        Raises:
            ConversionError: another kind of checkpoint, or one without a tokenizer.
            UsageError: fp16, another dtype, or no such device.
        """
        chosen = place(device)
        model, tokenizer = load_seq2seq(path, dtype=dtype)
        return cls(model.to(chosen), tokenizer)

    @property
    def trained(self) -> TrainedInputs | None:
        """What the model was trained to read; None where its config does not say."""
        return trained_inputs(self.model.config)

    @property
    def max_new_tokens(self) -> int:
        """Tokens that are written at most, unless a call says otherwise."""
        return self.model.generation_config.max_new_tokens

    def summarize(
        self,
        documents: str | Sequence[str],
        *,
        query: str | None = None,
        max_input_tokens: int | None = None,
        truncation: str | Truncation | None = None,
        num_beams: int | None = None,
        max_new_tokens: int | None = None,
        prefix: str | None = None,
        on_token: Callable[[int], None] | None = None,
    ) -> Summary:
        """Summarise one text, or several as one input.

        Args:
            documents: a text, or several.
            query: what the summary is to answer; None: the whole.
            max_input_tokens: longest input; None: all is read, or with a `truncation` what the model was trained on.
            truncation: what is read of longer texts: `head`, `head+tail`, `windows` (each is summarised) or
                `retriever`, with the options that the model was trained with where it is the same one, or one of
                `narrows.data`; None: `head`.
            num_beams: None: as the model's generation config says; 1 is greedy.
            max_new_tokens: None: as the model's generation config says.
            prefix: what the input begins with, such as plain T5's `summarize: `; None: what the model was trained with.
            on_token: told of each step of writing, for a progress bar.

        Raises:
            UsageError: no text, one that is not Unicode, an unknown truncation, a number below 1, a query that leaves
                no room, or an input that does not fit into memory.
        """
        texts = _texts(documents)
        for what, text in (("a query", query), ("a prefix", prefix)):
            require_unicode(text or "", what)
        for name, value in (("num_beams", num_beams), ("max_new_tokens", max_new_tokens)):
            if value is not None and value < 1:
                raise UsageError(f"expected {name} of at least 1, got {value}; pass a larger one")
        began = time.perf_counter()
        ids = [self._tokenize(text) for text in texts]
        if not self._knows(ids):
            raise UsageError("expected text with words in it, got none that the tokenizer knows; pass another text")
        if query is not None and query.strip() and not self._knows([self._tokenize(query)]):
            raise UsageError("expected a query with words in it, got none that the tokenizer knows; ask in other words")
        encoded = self._encoder(ids, query, max_input_tokens, truncation, prefix).encode_ids(ids, query=query)
        options: dict[str, Any] = {"num_beams": num_beams, "max_new_tokens": max_new_tokens}
        options = {name: value for name, value in options.items() if value is not None}
        beams = num_beams or self.model.generation_config.num_beams or 1
        longest = max(map(len, encoded.inputs))
        self._check_room(longest, beams)
        if on_token is not None:
            options["stopping_criteria"] = StoppingCriteriaList([_Told(on_token)])
        try:
            written = [write_texts(self.model, self.tokenizer, [part], options=options)[0] for part in encoded.inputs]
        except (MemoryError, RuntimeError) as error:
            if not _is_of_memory(error):
                raise
            raise self._too_long(longest, beams) from error
        trained, report = self.trained, encoded.report
        return Summary(
            "\n".join(filter(None, written)),
            report.kept,
            report.dropped,
            report,
            time.perf_counter() - began,
            0 if trained is None else max(0, longest - trained.max_input_tokens),
            sum(int(token) == self.tokenizer.unk_token_id for row in ids for token in row),
        )

    def _knows(self, ids: Sequence[Sequence[int]]) -> bool:
        """Whether a token stands for characters; that of unknown words, which is all of a foreign script, does not."""
        found = sorted({int(token) for row in ids for token in row} - {self.tokenizer.unk_token_id})
        return bool(self.tokenizer.decode(found, skip_special_tokens=True).strip())

    def _encoder(
        self,
        ids: Sequence[Sequence[int]],
        query: str | None,
        limit: int | None,
        how: str | Truncation | None,
        prefix: str | None,
    ) -> InputEncoder:
        trained = self.trained
        chosen = _truncation(how, trained)
        if limit is None and how is not None:
            if trained is None:
                raise UsageError(
                    "expected max_input_tokens beside a truncation, since the model does not say what it was trained "
                    "on, got none; pass it too (--max-input-tokens)"
                )
            limit = trained.max_input_tokens
        if prefix is None:
            prefix = "" if trained is None else trained.prefix
        if limit is None:
            # Everything: the prefix, and each text and the query with an end of text after each.
            around = len(self._tokenize(prefix.strip())) + len(self._tokenize(query or "")) + 1
            limit = sum(map(len, ids)) + len(ids) + around
        return input_encoder(self.tokenizer, truncation=chosen, max_tokens=limit, prefix=prefix)

    def _check_room(self, tokens: int, beams: int) -> None:
        """Refuse what cannot fit before the system ends the process for it."""
        if self._needed(tokens, beams) > available_bytes(self.model.device):
            raise self._too_long(tokens, beams)

    def _needed(self, tokens: int, beams: int) -> int:
        return needed_bytes(self.model.config, tokens, dtype=self.model.dtype, num_beams=beams)

    def _too_long(self, tokens: int, beams: int) -> UsageError:
        free = available_bytes(self.model.device)
        fits = largest_input(self.model.config, int(0.9 * free), dtype=self.model.dtype, num_beams=beams)
        # After a failure the estimate was too low; half of what failed is then the better advice.
        fits = min(fits, tokens // 2) if self._needed(tokens, beams) <= free else fits
        if fits < 1 and beams > 1:
            advice = f"none fits beside {beams:,} beams: pass fewer (--beams)"
        else:
            advice = f"about {fits:,} fit: pass max_input_tokens (--max-input-tokens)"
        return UsageError(
            f"expected an input that fits into memory, got {count(tokens, 'token')}, which need about "
            f"{self._needed(tokens, beams) / 1e9:.1f} GB of the {free / 1e9:.1f} GB that are free; {advice}"
        )


class _Told(StoppingCriteria):
    """Tells of each step of writing, and stops nothing."""

    def __init__(self, tell: Callable[[int], None]):
        self._tell = tell

    def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:  # pyright: ignore
        self._tell(1)
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)


def _truncation(how: str | Truncation | None, trained: TrainedInputs | None) -> Truncation:
    """One that is named as the model's own is that one, options and all: use reads what training read."""
    if how is not None and not isinstance(how, str):
        return how
    name = how or "head"
    if trained is None:
        return truncation(name)
    return trained._replace(truncation=trained.truncation_named(name)).make_truncation()


def _texts(documents: str | Sequence[str]) -> list[str]:
    texts = [documents] if isinstance(documents, str) else list(documents)
    if not texts:
        raise UsageError("expected at least one text to summarise, got none; pass a text")
    for number, text in enumerate(texts, start=1):
        if not text or text.isspace():
            where = "the text" if len(texts) == 1 else f"text {number}"
            got = "only spaces" if text else "nothing"
            raise UsageError(f"expected words in {where} to summarise, got {got}; leave it out")
        require_unicode(text, f"text {number}")
    return texts


def _is_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(said in str(error) for said in _OUT_OF_MEMORY)
