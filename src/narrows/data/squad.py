"""Question answering with answer spans: SQuAD v1.1 and v2.0, QAMR and ReQA files into one record.

A title is written with underscores in some files ("Super_Bowl_50") and with spaces in others
("Super Bowl 50"). Everything read here goes through `normalize_title`, which writes spaces, so that
titles from different files compare equal.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from narrows.data.files import field, lines, load_json, parse_json, require_unicode
from narrows.errors import UsageError

__all__ = [
    "Answer",
    "QAExample",
    "normalize_title",
    "read_pairs",
    "read_qamr",
    "read_reqa_pairs",
    "read_split",
    "read_squad",
]

_SPLIT = 'a file such as {"tune": ["Title", ...], "test": [...]}'


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer and where it lies: `context[start : start + len(text)] == text`."""

    text: str
    start: int

    @property
    def end(self) -> int:
        """The character after the last one."""
        return self.start + len(self.text)


@dataclass(frozen=True, slots=True)
class QAExample:
    """A question about a context.

    `answers` are different people's answers, the first one being the one to train on. `impossible` says
    that the context does not answer the question (SQuAD 2.0).
    """

    id: str
    title: str
    question: str
    context: str
    answers: tuple[Answer, ...] = ()
    impossible: bool = False


def normalize_title(title: str) -> str:
    """Writes a title with single spaces: `"Super_Bowl_50"` and `"Super Bowl 50"` become the same."""
    return " ".join(title.replace("_", " ").split())


def read_squad(path: str | PathLike[str], *, titles: Collection[str] | None = None) -> Iterator[QAExample]:
    """Reads a SQuAD v1.1 or v2.0 file.

    Args:
        path: JSON in the SQuAD layout, plain or ending in `.gz`.
        titles: the articles to keep, in either form of title; all of them when None. A title that the file
            does not have is no error: v2.0 lacks articles that v1.1 has.

    Yields:
        One example a question, in file order.

    Raises:
        UsageError: the file cannot be read, or a record is not as the layout says, or a question is empty, or an
            answer does not lie at its offset. The sentence names the file and the record. It is raised while iterating.
    """
    path = Path(path)
    kept = None if titles is None else {normalize_title(title) for title in titles}
    document = load_json(path, "a file in the layout of SQuAD")
    for a, article in enumerate(field(document, "data", list, f"{path}: the file")):
        where = f"{path}: article {a}"
        title = normalize_title(field(article, "title", str, where))
        if kept is not None and title not in kept:
            continue
        for p, paragraph in enumerate(field(article, "paragraphs", list, where)):
            where = f"{path}: article {a} ({title}), paragraph {p}"
            context = field(paragraph, "context", str, where)
            for q, record in enumerate(field(paragraph, "qas", list, where)):
                yield _squad_question(record, title, context, path=path, where=f"{where}, question {q}")


def read_qamr(path: str | PathLike[str]) -> Iterator[QAExample]:
    """Reads a QAMR file: one JSON record a line, plain or ending in `.gz`; the title is the sentence's id.

    Raises:
        UsageError: as `read_squad`; the sentence names the file and the line.
    """
    path = Path(path)
    for number, line in enumerate(lines(path), start=1):
        where = f"{path}: line {number}"
        record = parse_json(line, where)
        question_id = field(record, "id", str, where)
        context = field(record, "context", str, where)
        yield QAExample(
            id=question_id,
            title=normalize_title(field(record, "sentence", str, where)),
            question=_question(record, where),
            context=context,
            answers=_answers(record, context, where=f"{path}: question {question_id}"),
        )


def read_pairs(path: str | PathLike[str]) -> Iterator[QAExample]:
    """Reads questions and texts without labels: JSON Lines of one's own, or a file of ReQA.

    Args:
        path: ending in `.jsonl` or `.jsonl.gz`: a record `{"question", "context"}` a line, with an `"id"` if there is
            one (a string; else the file's name and the line's number). Any other name: see `read_reqa_pairs`.

    Raises:
        UsageError: as `read_qamr` or `read_reqa_pairs`.

    Example:
        `{"question": "Who won?", "context": "Denver won."}` is a line of such a file.
    """
    path = Path(path)
    if path.name.removesuffix(".gz").endswith(".jsonl"):
        return _line_pairs(path)
    return read_reqa_pairs(path)


def _line_pairs(path: Path) -> Iterator[QAExample]:
    for number, line in enumerate(lines(path), start=1):
        if not line.strip():
            continue
        where = f"{path}: line {number}"
        record = parse_json(line, where)
        context = field(record, "context", str, where)
        question_id = field(record, "id", str, where) if "id" in record else f"{path.name}:{number}"
        yield QAExample(id=question_id, title="", question=_question(record, where), context=context)


def read_reqa_pairs(path: str | PathLike[str]) -> Iterator[QAExample]:
    """Reads ReQA pairs: a question and the sentence that holds its answer.

    The sentence is the `context`; there are no answer spans and no titles (`""`).

    Raises:
        UsageError: the file cannot be read or its three lists are not of one length.
    """
    path = Path(path)
    document = load_json(path, "a ReQA training file")
    where = f"{path}: the file"
    ids, questions, sentences = (field(document, key, list, where) for key in ("question_ids", "questions", "answers"))
    if not len(ids) == len(questions) == len(sentences):
        raise UsageError(
            f"{path}: expected as many question_ids as questions and answers, got {len(ids)}, "
            f"{len(questions)} and {len(sentences)}; pass a whole ReQA training file."
        )
    for index, (question_id, question, sentence) in enumerate(zip(ids, questions, sentences, strict=True)):
        if not isinstance(question, str) or not isinstance(sentence, str):
            raise UsageError(
                f"{path}: pair {index}: expected a question and an answer sentence as strings, "
                f"got {type(question).__name__} and {type(sentence).__name__}; correct or remove the pair."
            )
        for text in (question, sentence):
            require_unicode(text, f"{path}: pair {index}: expected Unicode")
        yield QAExample(id=str(question_id), title="", question=question, context=sentence)


def read_split(path: str | PathLike[str]) -> dict[str, frozenset[str]]:
    """Reads a split of articles: part name to the (normalised) titles in it.

    Every key whose value is a list of titles is a part; other keys are remarks.

    Raises:
        UsageError: the file cannot be read, has no part, or has one title in two parts.

    Example:
        `list(read_squad("dev-v1.1.json.gz", titles=read_split("split.json")["test"]))`
    """
    path = Path(path)
    document = load_json(path, _SPLIT)
    if not isinstance(document, dict):
        raise UsageError(
            f"{path}: expected an object of lists of titles, got {type(document).__name__}; pass {_SPLIT}."
        )
    parts: dict[str, frozenset[str]] = {}
    owner: dict[str, str] = {}
    for name, titles in document.items():
        if not isinstance(titles, list):
            continue
        for title in titles:
            if not isinstance(title, str):
                raise UsageError(
                    f"{path}: expected titles in part {name!r} as strings, got {title!r}; put it in quotes."
                )
            title = normalize_title(title)
            if owner.setdefault(title, name) != name:
                raise UsageError(
                    f"{path}: expected each title in one part, got {title!r} in {owner[title]!r} and "
                    f"{name!r}; remove it from one of them."
                )
        parts[name] = frozenset(normalize_title(title) for title in titles)
    if not parts:
        raise UsageError(f"{path}: expected at least one list of titles, got keys {sorted(document)}; pass {_SPLIT}.")
    return parts


def _squad_question(record: Any, title: str, context: str, *, path: Path, where: str) -> QAExample:
    question_id = field(record, "id", str, where)
    where = f"{path}: question {question_id}"
    impossible = field(record, "is_impossible", bool, where) if "is_impossible" in record else False
    answers = _answers(record, context, where=where)
    if impossible and answers:
        raise UsageError(
            f"{where}: expected no answers where is_impossible is true, got {len(answers)}; remove them, or set it to "
            "false."
        )
    if not impossible and not answers:
        raise UsageError(
            f"{where}: expected at least one answer or is_impossible set to true, got neither; add one of them or "
            "remove the question, or give questions without labels as a part of format `pairs`."
        )
    return QAExample(question_id, title, _question(record, where), context, answers, impossible)


def _question(record: Any, where: str) -> str:
    """A question that can be asked: `narrows ask` refuses an empty one too."""
    question = field(record, "question", str, where)
    if not question.strip():
        raise UsageError(f"{where}: expected a question, got an empty one; write it or remove the record.")
    return question


def _answers(record: Any, context: str, *, where: str) -> tuple[Answer, ...]:
    answers = []
    for number, entry in enumerate(field(record, "answers", list, where)):
        place = f"{where}, answer {number}"
        answer = Answer(field(entry, "text", str, place), field(entry, "answer_start", int, place))
        found = context[answer.start : answer.end] if answer.start >= 0 else ""
        if not answer.text or found != answer.text:
            raise UsageError(
                f"{where}: expected the answer {answer.text!r} at character {answer.start} of its context, "
                f"got {found!r}; correct answer_start or remove the answer."
            )
        answers.append(answer)
    return tuple(answers)
