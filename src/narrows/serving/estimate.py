"""How large the store of a folder is going to be, and how long it takes to build, before it is built."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from narrows.documents import read_documents
from narrows.errors import DocumentError
from narrows.serving.embedding import PassageEmbedder
from narrows.serving.engine import Engine
from narrows.serving.pieces import tokenized_passages
from narrows.store import estimate_bytes

__all__ = ["Estimate", "estimate_folder"]

_SAMPLES = 8


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What indexing a folder is going to take; sizes in bytes, of a new store.

    `bytes` is the store as a whole, `bytes_text` the passages' text in it. `seconds` comes from the rate
    measured on eight passages of the folder.
    """

    documents: int
    passages: int
    tokens: int
    bytes: int
    bytes_text: int
    seconds: float
    tokens_per_second: float
    codec: str
    skipped: list[tuple[str, str]]


def estimate_folder(
    folder: str | Path,
    engine: Engine,
    *,
    codec: str = "int8",
    dense: bool = False,
    on_document: Callable[[str], None] | None = None,
    on_problem: Callable[[str, DocumentError], None] | None = None,
) -> Estimate:
    """Cut a folder into passages as indexing would, and encode eight of them for the rate.

    Args:
        folder: documents, or one file.
        engine: gives the tokenizer, and encodes the sample.
        codec: of the states to be stored.
        dense: with a vector a passage.
        on_document: called with the id of every document that was cut.
        on_problem: called with name and error of whatever is skipped; it is in the estimate as well.

    Raises:
        DocumentError: nothing in the folder can be read.
        UsageError: there is no codec of that name.
    """
    estimate_bytes(0, 0, 0, codec, engine.config.hidden_size)
    skipped: list[tuple[str, str]] = []
    documents = passages = tokens = text_bytes = 0
    sample: list[tuple[list[int], str]] = []
    choice = random.Random(0)
    started = time.perf_counter()

    def skip(name: str, error: DocumentError) -> None:
        skipped.append((name, str(error)))
        if on_problem is not None:
            on_problem(name, error)

    for document in read_documents(folder, skip):
        before = passages
        for passage in tokenized_passages(engine, document):
            text = document.text[passage.start : passage.end]
            passages += 1
            tokens += len(passage.ids)
            text_bytes += len(text.encode())
            # Every passage is as likely as another to be among the eight.
            place = len(sample) if len(sample) < _SAMPLES else choice.randrange(passages)
            if place < _SAMPLES:
                sample[place : place + 1] = [(passage.ids, text)]
        documents += passages > before
        if on_document is not None:
            on_document(document.id)
    seconds_reading = time.perf_counter() - started
    embedder = PassageEmbedder(device=engine.device) if dense else None
    rate = _tokens_per_second(engine, embedder, sample)
    return Estimate(
        documents=documents,
        passages=passages,
        tokens=tokens,
        bytes=estimate_bytes(
            passages, tokens, text_bytes, codec, engine.config.hidden_size, embedder.width if embedder else 0
        ),
        bytes_text=text_bytes,
        seconds=seconds_reading + (tokens / rate if rate else 0.0),
        tokens_per_second=rate,
        codec=codec,
        skipped=skipped,
    )


def _tokens_per_second(engine: Engine, embedder: PassageEmbedder | None, sample: list[tuple[list[int], str]]) -> float:
    """The rate of encoding, the second time: the first one pays for what is set up once."""
    if not sample:
        return 0.0
    rate = 0.0
    for _ in range(2):
        started = time.perf_counter()
        engine.encode_passages([ids for ids, _ in sample])
        if embedder is not None:
            embedder.embed([text for _, text in sample])
        rate = sum(len(ids) for ids, _ in sample) / (time.perf_counter() - started)
    return rate
