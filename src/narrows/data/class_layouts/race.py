"""RACE: an article, questions about it, options of each, and the letter of the right one."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from narrows.data.class_layouts.record import ChoiceExample, ClassExample, Layout, require_text
from narrows.data.files import field, load_json
from narrows.errors import UsageError

__all__ = ["RACE"]

_BLANK = "_"


def _read(path: Path, fields: Mapping[str, str], skip: bool) -> Iterator[ClassExample]:
    files = sorted(p for p in path.rglob("*") if p.suffix in (".txt", ".json")) if path.is_dir() else [path]
    if not files:
        raise UsageError(f"{path}: expected files of RACE (.txt or .json) in the folder, got none; check the path.")
    for file in files:
        yield from _article(file, str(file.relative_to(path)) if path.is_dir() else file.name)


def _article(file: Path, name: str) -> Iterator[ClassExample]:
    record = load_json(file, "a file of RACE: an object with article, questions, options and answers")
    article = require_text(field(record, "article", str, str(file)), "article", str(file))
    questions, options, answers = (field(record, key, list, str(file)) for key in ("questions", "options", "answers"))
    if not len(questions) == len(options) == len(answers):
        raise UsageError(
            f"{file}: expected options and an answer for each of {len(questions)} questions, got {len(options)} and "
            f"{len(answers)}; correct the file."
        )
    for number, (question, choices, answer) in enumerate(zip(questions, options, answers, strict=True), start=1):
        where = f"{file}: question {number}"
        if not (isinstance(question, str) and isinstance(choices, list) and all(isinstance(c, str) for c in choices)):
            raise UsageError(f"{where}: expected a string and a list of strings, got other values; correct the file.")
        right = ord(answer) - ord("A") if isinstance(answer, str) and len(answer) == 1 else -1
        if not 0 <= right < len(choices):
            raise UsageError(
                f"{where}: expected the letter of one of {len(choices)} options, got {answer!r:.20}; correct it."
            )
        texts = tuple(require_text(_filled(question, choice), "question", where) for choice in choices)
        yield ChoiceExample(f"{name}/{number}", article, texts, right)


def _filled(question: str, choice: str) -> str:
    return question.replace(_BLANK, f" {choice} ") if _BLANK in question else f"{question} {choice}"


RACE = Layout(_read, ChoiceExample)
"""A file an article, or a folder of them at any depth; an option goes into the question's blank, or behind it."""
