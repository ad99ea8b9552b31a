"""Documents and a query into the inputs of a model that reads a limited number of tokens."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from narrows._plural import count
from narrows.data.truncation import Truncation, TruncationReport, take
from narrows.errors import UsageError

__all__ = ["InputEncoder", "LongInputs"]


class LongInputs(NamedTuple):
    """A record's inputs.

    Attributes:
        inputs: token ids of each run of the model.
        report: of the documents' tokens, separators between documents among them.
    """

    inputs: list[list[int]]
    report: TruncationReport


class InputEncoder:
    """Joins documents, cuts them to what is left beside the query, and puts the query before every part.

    A run reads `prefix, query, separator, part, ending`; without a query, `prefix, part, ending`.

    Args:
        tokenize: token ids of a text, without special tokens; see `narrows.data.plain_tokens`.
        truncation: what is read of documents that are too long.
        max_tokens: longest input, all that the encoder adds among it.
        separator_ids: between two documents, and between the query and them.
        ending_ids: at the end of every input, such as T5's `</s>`.
        prefix_ids: at the front of every input, such as those of T5's `summarize:`.

    Raises:
        UsageError: `max_tokens` is below 1.

    Example:
        `InputEncoder(plain_tokens(tokenizer), truncation=Head(), max_tokens=16384).encode(example.documents).inputs`
    """

    def __init__(
        self,
        tokenize: Callable[[str], Sequence[int]],
        *,
        truncation: Truncation,
        max_tokens: int,
        separator_ids: Sequence[int] = (),
        ending_ids: Sequence[int] = (),
        prefix_ids: Sequence[int] = (),
    ) -> None:
        if max_tokens < 1:
            raise UsageError(f"expected max_tokens of at least 1, got {max_tokens}; pass a larger one.")
        self._tokenize = tokenize
        self._truncation = truncation
        self._max_tokens = max_tokens
        self._separator = list(separator_ids)
        self._ending = list(ending_ids)
        self._prefix = list(prefix_ids)

    def encode(self, documents: Sequence[str], *, query: str | None = None) -> LongInputs:
        """Encodes one record.

        Args:
            documents: its texts.
            query: what is asked of them.

        Returns:
            One input of at most `max_tokens` tokens; several where the truncation is `windows`.

        Raises:
            UsageError: prefix and query leave no room for a token of the documents, or the truncation's.
        """
        return self.encode_ids([self._tokenize(text) for text in documents], query=query)

    def encode_ids(self, documents: Sequence[Sequence[int]], *, query: str | None = None) -> LongInputs:
        """As `encode`, of documents that are tokenized already (in a `TokenCache`, say)."""
        query_ids = [] if query is None else list(self._tokenize(query))
        before = [*self._prefix, *query_ids, *(self._separator if query_ids else ())]
        room = self._max_tokens - len(before) - len(self._ending)
        if room < 1:
            parts = {"a prefix": self._prefix, "a query": query_ids}
            found = [name for name, part in parts.items() if part]
            if not found:
                raise UsageError(
                    f"expected an input of at least {count(len(self._ending) + 1, 'token')}, for one of the text and "
                    f"what ends it, got room for {self._max_tokens}; raise the longest input"
                )
            what = f"{found[0]} that leaves" if len(found) == 1 else "a prefix and a query that together leave"
            raise UsageError(
                f"expected {what} room within {count(self._max_tokens, 'token')}, got "
                f"{count(len(self._prefix) + len(query_ids), 'token')}; shorten that or raise the longest input"
            )
        ids: list[int] = []
        for number, document in enumerate(documents):
            ids += [*(self._separator if number else ()), *map(int, document)]
        chosen = self._truncation(ids, budget=room, query_ids=query_ids)
        return LongInputs([[*before, *take(ids, part), *self._ending] for part in chosen.parts], chosen.report)
