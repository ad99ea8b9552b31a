"""Quality rows of DeFormer: answers over states that went through a codec, as `narrows ask` gives them."""

import json
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from narrows.bench.rows import Context, Measurement
from narrows.data import QAExample, read_split, read_squad
from narrows.documents import Document, read_documents
from narrows.documents.sentences import sentences
from narrows.evaluation.bootstrap import bootstrap, paired_bootstrap
from narrows.evaluation.metrics import exact_match, f1, squad_scores
from narrows.serving.answers import ReadPassage, best_answers, passage_rule
from narrows.serving.engine import Engine
from narrows.serving.passages import passages_of
from narrows.store import get_codec

__all__ = [
    "Answered",
    "answer_examples",
    "curve_rows",
    "given_passage_rows",
    "library_rows",
    "load_engine",
    "needs_both",
    "needs_data",
    "needs_library",
    "needs_shipped",
    "precision_rows",
    "score_given_passage",
    "split_examples",
    "squad2_rows",
    "student_rows",
    "tune_rows",
    "word_overlap_finds",
]

_FOUND = 0.8
# Kept as text: a list would be a line a word.
_STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
        a about all an and any are as at be been by can did do does for from had has have he her his
        how i if in into is it its many more most much no not of on or our she so than that the
        their them there they this to was we were what when where which who whom whose why will with
        would you your
        """,
    )
)


class Answered(NamedTuple):
    """The best span of every example, whether or not it would be refused, and what the states took.

    Attributes:
        texts: by example id.
        scores: probability that the span answers, by example id.
        state_bytes: of all states stored.
    """

    texts: dict[str, str]
    scores: dict[str, float]
    state_bytes: int


def needs_data(context: Context) -> str | None:
    """What is missing for the rows over SQuAD."""
    if context.data is None:
        return "needs data: pass --data DIR or set NARROWS_DATA"
    return None if (context.data / "squad").is_dir() else f"needs data: no squad/ in {context.data}"


def needs_shipped(context: Context) -> str | None:
    """What is missing for the rows over the models that come with narrows."""
    from narrows.deformer.shipped import shipped_names

    absent = {"reader", "teacher"} - set(shipped_names())
    return f"needs the shipped models: no {', '.join(sorted(absent))}" if absent else None


def needs_both(context: Context) -> str | None:
    """What is missing for the rows of the shipped models over SQuAD."""
    return needs_data(context) or needs_shipped(context)


def needs_library(context: Context) -> str | None:
    """What is missing for the rows over the example library."""
    there = (context.examples / "questions.jsonl").is_file()
    return needs_shipped(context) if there else f"needs the example library in {context.examples}"


def split_examples(data: Path, version: str, part: str = "test") -> list[QAExample]:
    """The questions of the test (or tune) articles of SQuAD `1.1` or `2.0`."""
    titles = read_split(data / "squad" / "split.json")[part]
    return list(read_squad(data / "squad" / f"dev-v{version}.json.gz", titles=titles))


def load_engine(name: str, precision: str = "float32") -> Engine:
    """The shipped `reader` or `teacher`, its upper layers in a precision."""
    from narrows.deformer.shipped import load_shipped

    model, tokenizer = load_shipped(name)
    return Engine(model, tokenizer, precision=precision)


def answer_examples(engine: Engine, examples: Iterable[QAExample], *, codec: str = "int8") -> Answered:
    """Answer every example from its own context, encoded once and stored with a codec."""
    answered = Answered({}, {}, 0)
    total = 0
    for context, group in groupby(examples, key=lambda example: example.context):
        document = Document(id="context", title="", text=context, sha256="")
        pieces = passages_of(engine, document)
        states = engine.encode_passages([ids for _, ids in pieces])
        buffers = [get_codec(codec).encode(state) for state in states]
        total += sum(len(buffer) for buffer in buffers)
        for example in group:
            text, score = _answer(engine, example.question, context, pieces, buffers, codec)
            answered.texts[example.id], answered.scores[example.id] = text, score
    return answered._replace(state_bytes=total)


def _answer(
    engine: Engine, question: str, context: str, pieces: Sequence[Any], buffers: Sequence[bytes], codec: str
) -> tuple[str, float]:
    lengths = [len(ids) for _, ids in pieces]
    width = engine.config.hidden_size

    def fetch(batch: Sequence[int]) -> Tensor:
        return get_codec(codec).decode_padded([buffers[i] for i in batch], [lengths[i] for i in batch], width)

    logits = engine.read(engine.encode_question(engine.shorten_question(question)), lengths, fetch)
    passages = [
        ReadPassage(
            id=f"context:{number}",
            document="context",
            title="",
            start=span.start,
            text=context[span.start : span.end],
            logits=of_passage,
        )
        for number, ((span, _), of_passage) in enumerate(zip(pieces, logits, strict=True))
    ]
    best = best_answers(
        passages,
        lambda index: engine.tokenize([passages[index].text])[0].offsets,
        max_tokens=engine.config.max_answer_tokens,
        rule=passage_rule(engine.config),
        count=1,
    )
    return (best[0].answer, best[0].score) if best else ("", 0.0)


def _each(measure: Any, answered: Answered, examples: Sequence[QAExample]) -> list[float]:
    return [
        100 * measure(answered.texts[example.id], [answer.text for answer in example.answers]) for example in examples
    ]


def _mean(scores: Sequence[float], **detail: Any) -> Measurement:
    interval = bootstrap(scores)
    return Measurement(
        value=interval.mean, spread=(interval.low, interval.high), detail={"questions": len(scores), **detail}
    )


@lru_cache(maxsize=8)
def _answered(data: Path, model: str, precision: str, codec: str, part: str = "test") -> Answered:
    """A shipped model's answers on the SQuAD 1.1 test or tune articles: several rows ask for the same."""
    return answer_examples(load_engine(model, precision), split_examples(data, "1.1", part), codec=codec)


def precision_rows(context: Context, *, who: str, model: str, precision: str) -> dict[str, Measurement]:
    """F1 and EM of a shipped model with its upper layers in a precision, over int8 states (teacher: fp32)."""
    examples = _data_examples(context, "1.1")
    split_layer = load_engine(model).config.split_layer
    # With no layer below the split there is nothing to store: the states are embeddings, kept as they are.
    codec = "int8" if split_layer else "fp32"
    answered = _answered(_folder(context), model, precision, codec)
    return _scores(answered, examples, codec, split_layer, who if precision == "float32" else f"{who}-{precision}")


def _folder(context: Context) -> Path:
    if context.data is None:
        raise ValueError("expected a data folder, got none; ask `needs_data` first")
    return context.data


def _data_examples(context: Context, version: str, part: str = "test") -> list[QAExample]:
    return split_examples(_folder(context), version, part)


def _scores(
    answered: Answered, examples: Sequence[QAExample], codec: str, split_layer: int, who: str
) -> dict[str, Measurement]:
    detail = {"codec": codec, "split_layer": split_layer}
    return {
        f"f1-{who}": _mean(_each(f1, answered, examples), **detail),
        f"em-{who}": _mean(_each(exact_match, answered, examples), **detail),
    }


def student_rows(context: Context) -> dict[str, Measurement]:
    """The student beside its teacher, and int8 states beside fp32 ones; paired intervals."""
    examples, data = _data_examples(context, "1.1"), _folder(context)
    lossless = _answered(data, "reader", "float32", "fp32")
    small = _answered(data, "reader", "float32", "int8")
    teacher = _answered(data, "teacher", "float32", "fp32")
    of_small = _each(f1, small, examples)
    behind = paired_bootstrap(of_small, _each(f1, teacher, examples))
    lost = paired_bootstrap(_each(f1, lossless, examples), of_small)
    return {
        "f1-student-to-teacher": Measurement(value=behind.mean_difference, spread=(behind.low, behind.high)),
        "f1-int8-states": Measurement(
            value=abs(lost.mean_difference),
            spread=(lost.low, lost.high),
            detail={"f1_lost": lost.mean_difference},
        ),
        "bytes-int8-states": Measurement(
            value=small.state_bytes / lossless.state_bytes,
            detail={"bytes": [small.state_bytes, lossless.state_bytes]},
        ),
    }


def tune_rows(context: Context) -> dict[str, Measurement]:
    """Teacher and student on the articles by which weights and splits were chosen; a paired interval."""
    examples, data = _data_examples(context, "1.1", "tune"), _folder(context)
    teacher = _each(f1, _answered(data, "teacher", "float32", "fp32", "tune"), examples)
    student = _each(f1, _answered(data, "reader", "float32", "int8", "tune"), examples)
    behind = paired_bootstrap(student, teacher)
    return {
        "f1-tune-teacher": _mean(teacher),
        "f1-tune-student": _mean(student),
        "f1-tune-student-to-teacher": Measurement(value=behind.mean_difference, spread=(behind.low, behind.high)),
    }


def squad2_rows(context: Context, *, model: str, suffix: str = "") -> dict[str, Measurement]:
    """SQuAD 2.0 with the threshold that a shipped model carries, beside always and never answering."""
    examples = _data_examples(context, "2.0")
    engine = load_engine(model)
    # With no layer below the split there is nothing to store: the states are embeddings, kept as they are.
    answered = answer_examples(engine, examples, codec="int8" if engine.config.split_layer else "fp32")
    threshold = engine.config.no_answer_threshold
    texts = {name: text if answered.scores[name] >= threshold else "" for name, text in answered.texts.items()}
    scores = squad_scores(texts, examples)
    always = squad_scores(answered.texts, examples)
    never = squad_scores(dict.fromkeys(texts, ""), examples)
    peer = f"always answering {always.f1:.1f}, never {never.f1:.1f}"
    detail = {"peer": peer, "threshold": threshold, "questions": len(examples)}
    return {
        f"squad2-f1{suffix}": Measurement(value=scores.f1, detail=detail),
        f"squad2-f1-gain{suffix}": Measurement(value=scores.f1 - max(always.f1, never.f1), detail=detail),
        f"squad2-balanced{suffix}": Measurement(value=scores.balanced_accuracy),
    }


def curve_rows(context: Context, *, name: str) -> dict[str, Measurement]:
    """F1 and EM of another checkpoint, named on the command line; in bf16 above the split, for time's sake."""
    engine = Engine.from_pretrained(context.models[name], precision="bfloat16")
    codec = "int8" if engine.config.split_layer else "fp32"
    rows: dict[str, Measurement] = {}
    for part, who in (("test", f"curve-{name}"), ("tune", f"tune-curve-{name}")):
        examples = _data_examples(context, "1.1", part)
        answered = answer_examples(engine, examples, codec=codec)
        rows |= _scores(answered, examples, codec, engine.config.split_layer, who)
    return rows


def library_rows(context: Context) -> dict[str, Measurement]:
    """The example questions, from a folder of documents to answers, with the shipped reader."""
    from narrows.serving.indexing import index_folder
    from narrows.serving.reader import Reader

    reader = Reader(load_engine("reader"))
    lines = (context.examples / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "store"
        index_folder(context.examples / "library", place, reader.engine)
        return score_library(reader, place, context.examples / "library", [json.loads(line) for line in lines])


def score_library(
    reader: Any, store_path: Path, library: Path, questions: Sequence[Mapping[str, Any]]
) -> dict[str, Measurement]:
    """Percent answered right, refused right, findable by the first stage, and by word overlap alone."""
    from narrows.serving.candidates import find_candidates

    answerable = [question for question in questions if question["answers"]]
    others = [question for question in questions if not question["answers"]]
    documents = {document.id: document.text for document in read_documents(library, lambda name, error: None)}
    found, recalled = [], []
    with reader.open_store(store_path) as store:
        for question in answerable:
            golds = [answer["text"] for answer in question["answers"]]
            best = reader.ask(store, question["question"]).answers[0].answer
            found.append(100.0 * (f1(best, golds) >= _FOUND))
            rows = [c.row_id for c in find_candidates(store, question["question"], limit=32, embed=_no_vectors)]
            places = [(p.document_id, p.start, p.end) for p in store.take(rows)]
            recalled.append(100.0 * any(_holds(place, question["answers"]) for place in places))
        refused = [100.0 * (reader.ask(store, q["question"]).answers[0].answer == "") for q in others]
    overlap = [
        100.0 * word_overlap_finds(question["question"], question["answers"], documents) for question in answerable
    ]
    return {
        "questions-found": _mean(found),
        "questions-refused": _mean(refused),
        "questions-recall": _mean(recalled),
        "questions-word-overlap": _mean(overlap),
    }


def given_passage_rows(context: Context, *, model: str) -> dict[str, Measurement]:
    """The example questions with the passage that answers them handed over: what no choice of passages can exceed."""
    from narrows.serving.reader import Reader

    lines = (context.examples / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    questions = [json.loads(line) for line in lines]
    score = score_given_passage(Reader(load_engine(model)), context.examples / "library", questions)
    return {f"questions-given-passage-{model}": score}


def score_given_passage(reader: Any, library: Path, questions: Sequence[Mapping[str, Any]]) -> Measurement:
    """Percent of the answerable questions answered right from the first passage that holds an answer.

    The best span counts whether or not it would be refused; a question that no passage answers is not found.
    """
    documents = {document.id: document for document in read_documents(library, lambda name, error: None)}
    places = [
        (document.id, span.start, span.end)
        for document in documents.values()
        for span, _ in passages_of(reader.engine, document)
    ]
    found = []
    for question in questions:
        if question["answers"]:
            place = next((place for place in places if _holds(place, question["answers"])), None)
            found.append(100.0 * (place is not None and _finds(reader, question, documents, *place)))
    return _mean(found)


def _finds(
    reader: Any, question: Mapping[str, Any], documents: Mapping[str, Document], name: str, start: int, end: int
) -> bool:
    text = documents[name].text[start:end]
    # A refused question has "" first.
    answers = reader.answer(question["question"], text, top_k=1).answers
    best = next((answer.answer for answer in answers if answer.answer), "")
    return f1(best, [answer["text"] for answer in question["answers"]]) >= _FOUND


def _no_vectors(text: str) -> Any:
    raise ValueError(f"expected retrieval by words, got a call for the vector of {text!r}; pass retrieval='bm25'")


def _holds(place: tuple[str, int, int], answers: Sequence[Mapping[str, Any]]) -> bool:
    document, start, end = place
    return any(
        answer["document"] == document and start <= answer["start"] and answer["start"] + len(answer["text"]) <= end
        for answer in answers
    )


def word_overlap_finds(question: str, answers: Sequence[Mapping[str, Any]], documents: Mapping[str, str]) -> bool:
    """Whether the sentence with the most content words of the question holds an answer.

    Of sentences with as many, the shortest; of these the first.

    Args:
        question: what is asked.
        answers: with `text`, `document` and `start`.
        documents: text by id.
    """
    wanted = _content_words(question)
    best: tuple[int, int] | None = None
    place = ("", 0, 0)
    for name, text in documents.items():
        for sentence in sentences(text):
            rank = (
                len(wanted & _content_words(text[sentence.start : sentence.end])),
                sentence.start - sentence.end,
            )
            if best is None or rank > best:
                best, place = rank, (name, sentence.start, sentence.end)
    return _holds(place, answers)


def _content_words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.lower())) - _STOP_WORDS
