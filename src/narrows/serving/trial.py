"""A trial: every question of a data set asked of a store that holds the data's own texts."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from narrows.data import QAExample
from narrows.errors import UsageError
from narrows.evaluation.store_rule import Choice
from narrows.serving.answers import ranked_spans
from narrows.serving.asking import read_candidates
from narrows.serving.candidates import DEFAULT_RETRIEVAL, Retrieval
from narrows.serving.indexing import IndexProgress, index_folder
from narrows.serving.reader import Reader
from narrows.store import Store

__all__ = ["Asked", "Library", "ask_examples", "build_library", "sample_examples"]

_BETWEEN = "\n\n"


class Library(NamedTuple):
    """A store of a data set's texts; `places` says where a context lies: `(title, context)` to document and start."""

    path: Path
    places: dict[tuple[str, str], tuple[str, int]]


class Asked(NamedTuple):
    """What came of a question.

    Attributes:
        choices: the best span of each passage that was read, the most promising passage first.
        held: whether one of the passages holds an answer where the data says that it is.
    """

    choices: list[Choice]
    held: bool


def sample_examples(examples: Sequence[QAExample], count: int, *, seed: int = 0) -> list[QAExample]:
    """At most `count` questions, drawn with a seed, in the order they had; `count` 0 keeps them all.

    Raises:
        UsageError: a negative count.
    """
    if count < 0:
        raise UsageError(f"expected a number of questions of at least 0 (0: all), got {count}; pass a larger one")
    if not count or count >= len(examples):
        return list(examples)
    kept = random.Random(seed).sample(range(len(examples)), count)
    return [examples[index] for index in sorted(kept)]


def build_library(
    examples: Sequence[QAExample],
    folder: Path,
    reader: Reader,
    *,
    retrieval: Retrieval = DEFAULT_RETRIEVAL,
    on_progress: Callable[[IndexProgress], None] | None = None,
) -> Library:
    """Index the contexts of all questions, each title a document, as `narrows index` would.

    Args:
        examples: whose contexts to store, each once.
        folder: an empty one, for the documents and the store.
        reader: encodes the passages.
        retrieval: of the questions to come; `dense` and `both` need a vector a passage.
        on_progress: see `index_folder`.
    """
    contexts: dict[str, dict[str, None]] = {}
    for example in examples:
        contexts.setdefault(example.title, {})[example.context] = None
    documents = folder / "documents"
    documents.mkdir()
    places: dict[tuple[str, str], tuple[str, int]] = {}
    for number, (title, texts) in enumerate(contexts.items()):
        name, start = f"{number:06}.txt", 0
        for text in texts:
            places[title, text] = name, start
            start += len(text) + len(_BETWEEN)
        # Bytes, so that no line end is changed and offsets stay true.
        (documents / name).write_bytes(_BETWEEN.join(texts).encode())
    path = folder / "store"
    index_folder(documents, path, reader.engine, dense=retrieval != "bm25", on_progress=on_progress)
    return Library(path, places)


def ask_examples(
    reader: Reader,
    library: Library,
    examples: Sequence[QAExample],
    *,
    candidates: int = 32,
    retrieval: Retrieval = DEFAULT_RETRIEVAL,
    on_questions: Callable[[int], None] | None = None,
) -> dict[str, Asked]:
    """Read the candidate passages of every question, and keep what is needed to choose among them later.

    Args:
        reader: the one that built the library.
        library: holds the contexts of the examples.
        examples: questions, each id once; one that is longer than its room is cut.
        candidates: passages to read a question.
        retrieval: how they are found.
        on_questions: told how many questions are done, for a progress bar.

    Returns:
        By question id.

    Raises:
        UsageError: `candidates` under 1.
    """
    asked: dict[str, Asked] = {}
    with reader.open_store(library.path) as store:
        for example in examples:
            asked[example.id] = _ask(reader, store, library, example, candidates, retrieval)
            if on_questions is not None:
                on_questions(1)
    return asked


def _ask(
    reader: Reader, store: Store, library: Library, example: QAExample, candidates: int, retrieval: Retrieval
) -> Asked:
    engine = reader.engine
    question = engine.shorten_question(example.question)
    found = reader.find(store, question, candidates=candidates, retrieval=retrieval)
    try:
        passages, offsets_of = read_candidates(engine, store, question, found)
    except UsageError as error:
        raise UsageError(f"question {example.id}: {error}") from error
    choices = []
    for index, (passage, candidate) in enumerate(zip(passages, found, strict=True)):
        best = next(
            ranked_spans(
                [replace(passage, bonus=0.0)],
                lambda _, index=index: offsets_of(index),
                max_tokens=engine.config.max_answer_tokens,
            ),
            None,
        )
        if best is not None:
            choices.append(Choice(passage.text[best.start : best.end], best.margin, candidate.evidence))
    document, shift = library.places[example.title, example.context]
    held = any(
        passage.document == document
        and passage.start <= shift + answer.start
        and shift + answer.end <= passage.start + len(passage.text)
        for passage in passages
        for answer in example.answers
    )
    return Asked(choices, held)
