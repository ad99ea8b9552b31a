"""`Reader`: questions in, answers with their sources out."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from narrows.documents import Document
from narrows.serving.answers import Result
from narrows.serving.asking import OnDamage, ask_candidates, ask_documents, check_question, check_store
from narrows.serving.candidates import DEFAULT_RETRIEVAL, Candidate, Retrieval, find_candidates
from narrows.serving.embedding import PassageEmbedder
from narrows.serving.engine import Engine
from narrows.store import Store

__all__ = ["Reader"]


class Reader:
    """Answers questions from a store of passages, or from a text.

    Args:
        engine: the model at work.
        embedder: gives the vectors of questions for dense retrieval; None: the default encoder, loaded when
            it is first needed.

    Example:
        >>> reader = Reader.from_pretrained()  # doctest: +SKIP
        >>> reader.ask("library.store", "Who built the clock?").answers[0].answer  # doctest: +SKIP
        'Maria Keller'
    """

    def __init__(self, engine: Engine, *, embedder: PassageEmbedder | None = None):
        self.engine = engine
        self._embedder = embedder

    @classmethod
    def from_pretrained(
        cls,
        checkpoint: str | Path | None = None,
        *,
        device: str = "cpu",
        precision: str = "float32",
        batch_tokens: int = 8192,
    ) -> "Reader":
        """The reader of a checkpoint.

        Args:
            checkpoint: a folder or hub id of a DeFormer, or of a span reader whose encoder is a BertModel;
                None: the reader that comes with narrows.
            device: `cpu` or `cuda`.
            precision: of the layers that run at question time: `float32`, `bfloat16` or `int8`.
            batch_tokens: padded tokens of a forward pass.

        Raises:
            ConversionError: a checkpoint without a trained span head or a tokenizer, or of another encoder.
            UsageError: an unknown precision.
        """
        options = {"device": device, "precision": precision, "batch_tokens": batch_tokens}
        if checkpoint is not None:
            return cls(Engine.from_pretrained(checkpoint, **options))
        from narrows.deformer.shipped import load_shipped

        model, tokenizer = load_shipped(name="reader")
        return cls(Engine(model, tokenizer, **options))

    def answer(self, question: str, context: str | Sequence[Document], *, top_k: int = 1) -> Result:
        """Answer from a text of any length, without a store.

        Args:
            question: what is asked.
            context: the text, named "context" in the result; or documents, each under its own id.
            top_k: answers wanted. A refused question has "" before them.

        Raises:
            UsageError: an empty question, one without a letter or digit, one longer than its room, or `top_k` under 1.

        Example:
            >>> reader.answer("Who built it?", "Maria Keller built the clock.").answers[0]  # doctest: +SKIP
        """
        began = time.perf_counter()
        documents = [Document(id="context", title="", text=context, sha256="")] if isinstance(context, str) else context
        return ask_documents(self.engine, question, documents, top_k=top_k, began=began)

    def ask(
        self,
        store: Store | str | os.PathLike,
        question: str,
        *,
        candidates: int = 32,
        top_k: int = 3,
        retrieval: Retrieval = DEFAULT_RETRIEVAL,
        on_damage: OnDamage | None = None,
    ) -> Result:
        """Answer from a store.

        Args:
            store: an open store, or its folder, which is then opened for this question.
            question: what is asked.
            candidates: passages to read.
            top_k: answers wanted. A refused question has "" before them.
            retrieval: how the passages are found: `bm25`, `dense` or `both`.
            on_damage: told which of the passages found are damaged, and the others are read; None: a damaged one
                ends the question.

        Raises:
            UsageError: an empty question, one without a letter or digit, one longer than its room, or an argument
                out of range.
            StoreMismatchError: another model wrote the store; says what differs.
            StoreError: the store cannot be read, is damaged, or holds no passages.
        """
        if not isinstance(store, Store):
            with self.open_store(store) as opened:
                return self._ask(opened, question, candidates, top_k, retrieval, on_damage)
        check_store(self.engine, store)
        return self._ask(store, question, candidates, top_k, retrieval, on_damage)

    def open_store(self, path: str | os.PathLike) -> Store:
        """Open a store whose states this reader can use; close it when done.

        Raises:
            StoreMismatchError: another model wrote it.
            StoreError: it cannot be read.
        """
        store = Store.open(path, expect=None)
        try:
            check_store(self.engine, store)
        except BaseException:
            store.close()
            raise
        return store

    def find(
        self, store: Store, question: str, *, candidates: int = 32, retrieval: Retrieval = DEFAULT_RETRIEVAL
    ) -> list[Candidate]:
        """The passages of an open store that `ask` reads for a question, the most promising first.

        Args and raises as `ask`, but for the question's length.
        """
        return find_candidates(store, question, limit=candidates, retrieval=retrieval, embed=self._embed)

    def _ask(
        self,
        store: Store,
        question: str,
        candidates: int,
        top_k: int,
        retrieval: Retrieval,
        on_damage: OnDamage | None,
    ) -> Result:
        began = time.perf_counter()
        check_question(self.engine, question)
        store.require_passages()
        found = self.find(store, question, candidates=candidates, retrieval=retrieval)
        return ask_candidates(self.engine, store, question, found, top_k=top_k, began=began, on_damage=on_damage)

    def _embed(self, question: str) -> np.ndarray:
        if self._embedder is None:
            self._embedder = PassageEmbedder(device=self.engine.device)
        return self._embedder.embed([question])[0]
