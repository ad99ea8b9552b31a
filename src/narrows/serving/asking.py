"""A question put to the passages of a store, or of texts that are read on the spot."""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import torch
from torch import Tensor

from narrows.documents import Document
from narrows.errors import StoreDamagedError, StoreMismatchError, UsageError
from narrows.evaluation.calibration import NoAnswerRule
from narrows.serving.answers import ReadPassage, Result, best_answers, no_answer, passage_rule, store_rule
from narrows.serving.candidates import Candidate
from narrows.serving.engine import Engine
from narrows.serving.pieces import TokenizedPassage, tokenized_passages
from narrows.serving.words import require_unicode, require_word
from narrows.store import LeftOut, LoadedPassages, Store, load_whole

__all__ = ["OnDamage", "ask_candidates", "ask_documents", "check_question", "check_store", "read_candidates"]

# Passages whose states are in memory at once: about 130 MB at width 384.
_ENCODED_AT_ONCE = 256

OnDamage = Callable[[LeftOut], None]
OffsetsOf = Callable[[int], Sequence[tuple[int, int]]]
_Numbered = tuple[Document, int, TokenizedPassage]


def check_question(engine: Engine, question: str) -> None:
    """Make sure that a question asks something, before anything is looked for.

    Raises:
        UsageError: an empty question, one without a letter or digit, or one longer than its room.

    Example:
        >>> check_question(engine, "?!")  # doctest: +SKIP
        Traceback (most recent call last):
        narrows.errors.UsageError: expected a question with a letter or digit in it, got '?!'; ask in at least one word
    """
    engine.check_question(question)
    require_word(question)


def check_store(engine: Engine, store: Store) -> None:
    """Make sure that a store's states are those that this engine would compute.

    Raises:
        StoreMismatchError: says what differs.
    """
    differences = store.fingerprint.differences(engine.fingerprint(store.codec.name))
    if differences:
        raise StoreMismatchError(
            f"the store {store.path} was written by another model: {'; '.join(differences)}; "
            "use the model that wrote it, or index the documents into a new store"
        )


def ask_candidates(
    engine: Engine,
    store: Store,
    question: str,
    candidates: Sequence[Candidate],
    *,
    top_k: int,
    began: float,
    on_damage: OnDamage | None = None,
) -> Result:
    """Answer from stored passages, by what the reader and the first stage say of them together.

    Args:
        engine: the reader; `check_store` has accepted the store.
        store: where the candidates lie.
        question: what is asked.
        candidates: the passages to read.
        top_k: answers wanted.
        began: `time.perf_counter()` when the question came.
        on_damage: told of passages that are not what was written, which are then left out; None: they are refused.

    Raises:
        UsageError: an empty question, one without a word, one longer than its room, or `top_k` under 1.
        StoreDamagedError: names a passage that is not what was written; with `on_damage`, where none is whole.
        StoreMismatchError: a stored passage's tokens are not those of its text.
    """
    _check_top_k(top_k)
    passages, offsets_of = read_candidates(engine, store, question, candidates, on_damage=on_damage)
    return _result(engine, question, passages, offsets_of, store_rule(engine.config), top_k=top_k, began=began)


def read_candidates(
    engine: Engine,
    store: Store,
    question: str,
    candidates: Sequence[Candidate],
    *,
    on_damage: OnDamage | None = None,
) -> tuple[list[ReadPassage], OffsetsOf]:
    """Read stored passages for a question.

    Args and raises as `ask_candidates`.

    Returns:
        The whole passages in the order of the candidates, each with the bonus that its evidence is worth; and what
        gives the characters of a passage's tokens by its index.
    """
    check_question(engine, question)
    states = engine.encode_question(question)
    loaded, candidates = _load(store, candidates, on_damage)

    def fetch(indices: Sequence[int]) -> Tensor:
        return store.codec.decode_padded(
            [loaded.states[index] for index in indices],
            [loaded.lengths[index] for index in indices],
            store.fingerprint.width,
        )

    passages = [
        ReadPassage(
            id=name,
            document=document,
            title=title,
            start=start,
            text=text,
            logits=logits,
            bonus=engine.config.retrieval_weight * candidate.evidence,
        )
        for name, document, title, start, text, logits, candidate in zip(
            loaded.ids,
            loaded.documents,
            loaded.titles,
            loaded.starts,
            loaded.texts,
            engine.read(states, loaded.lengths, fetch),
            candidates,
            strict=True,
        )
    ]

    def offsets_of(index: int) -> list[tuple[int, int]]:
        tokens = engine.tokenize([loaded.texts[index]])[0]
        if engine.close_passage(tokens.ids) != loaded.token_ids[index].tolist():
            raise StoreMismatchError(
                f"expected the tokens of passage {loaded.ids[index]!r} in {store.path} to be those of its "
                "text, but they differ; index the document again with `narrows index`"
            )
        return tokens.offsets

    return passages, offsets_of


def _load(
    store: Store, candidates: Sequence[Candidate], on_damage: OnDamage | None
) -> tuple[LoadedPassages, Sequence[Candidate]]:
    """What the candidates hold, and which they are: those that are whole where there is somebody to be told."""
    row_ids = [candidate.row_id for candidate in candidates]
    try:
        return store.load(row_ids), candidates
    except StoreDamagedError:
        if on_damage is None:
            raise
    salvage = load_whole(store, row_ids)
    if salvage.left_out.passages:
        on_damage(salvage.left_out)
    return salvage.loaded, [candidates[place] for place in salvage.places]


def ask_documents(engine: Engine, question: str, documents: Sequence[Document], *, top_k: int, began: float) -> Result:
    """Answer from texts of any length, read in windows; a group of passages is in memory at a time.

    Args and raises as `ask_candidates`; a text without a token has no answer, and one that is not Unicode is refused.
    """
    _check_top_k(top_k)
    check_question(engine, question)
    for document in documents:
        require_unicode(document.text, f"the text of {document.id}")
    states = engine.encode_question(question)
    passages: list[ReadPassage] = []
    for group in _groups(engine, documents):
        encoded = engine.encode_passages([passage.ids for _, _, passage in group])
        lengths = [len(passage.ids) for _, _, passage in group]
        logits = engine.read(states, lengths, _padder(encoded))
        for (document, number, passage), of_passage in zip(group, logits, strict=True):
            passages.append(
                ReadPassage(
                    id=f"{document.id}:{number}",
                    document=document.id,
                    title=document.title,
                    start=passage.start,
                    text=document.text[passage.start : passage.end],
                    logits=of_passage,
                )
            )

    def offsets_of(index: int) -> list[tuple[int, int]]:
        return engine.tokenize([passages[index].text])[0].offsets

    return _result(engine, question, passages, offsets_of, passage_rule(engine.config), top_k=top_k, began=began)


def _groups(engine: Engine, documents: Sequence[Document]) -> Iterator[list[_Numbered]]:
    numbered = (
        (document, number, passage)
        for document in documents
        for number, passage in enumerate(tokenized_passages(engine, document))
    )
    while group := list(islice(numbered, _ENCODED_AT_ONCE)):
        yield group


def _padder(encoded: Sequence[Tensor]) -> Callable[[Sequence[int]], Tensor]:
    def fetch(indices: Sequence[int]) -> Tensor:
        return torch.nn.utils.rnn.pad_sequence([encoded[index] for index in indices], batch_first=True)

    return fetch


def _result(
    engine: Engine,
    question: str,
    passages: Sequence[ReadPassage],
    offsets_of: OffsetsOf,
    rule: NoAnswerRule,
    *,
    top_k: int,
    began: float,
) -> Result:
    answers = best_answers(passages, offsets_of, max_tokens=engine.config.max_answer_tokens, rule=rule, count=top_k)
    best = answers[0].score if answers else 0.0
    if not answers or best < rule.threshold:
        answers = [no_answer(1 - best), *answers]
    return Result(
        question=question,
        answers=answers,
        no_answer_score=1 - best,
        threshold=rule.threshold,
        candidates=len(passages),
        seconds=time.perf_counter() - began,
    )


def _check_top_k(top_k: int) -> None:
    if top_k < 1:
        raise UsageError(f"`top_k` must be at least 1, got {top_k}; ask for 1 or more answers")
