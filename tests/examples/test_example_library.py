"""The example library and its questions: pinned before any training, so that no figure over them was tuned."""

import hashlib
import json

import pytest

from narrows.documents import read_documents

# Committed before the first training run (commit 647c24c); a change of the questions starts a new series of figures.
QUESTIONS_SHA256 = "fa87a6e2d50ff83a5c1a02433efd5c37f4b3d12851e955262e69820a7b0b8c71"


@pytest.fixture(scope="module")
def documents(repository_root):
    problems = []
    folder = repository_root / "examples" / "library"
    found = {document.id: document for document in read_documents(folder, lambda *problem: problems.append(problem))}
    assert problems == []
    return found


@pytest.fixture(scope="module")
def questions(repository_root):
    text = (repository_root / "examples" / "questions.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_questions_are_those_committed_before_training(repository_root):
    content = (repository_root / "examples" / "questions.jsonl").read_bytes()
    assert hashlib.sha256(content).hexdigest() == QUESTIONS_SHA256


def test_every_answer_lies_at_its_offset(documents, questions):
    for question in questions:
        for answer in question["answers"]:
            text = documents[answer["document"]].text
            assert text[answer["start"] : answer["start"] + len(answer["text"])] == answer["text"], question["id"]


def test_there_are_enough_questions_of_each_kind(questions):
    answerable = [question for question in questions if question["answers"]]
    assert len({question["id"] for question in questions}) == len(questions) >= 60
    assert len(questions) - len(answerable) >= 12
    paraphrased = sum(question["style"] == "paraphrase" for question in answerable)
    assert 2 * paraphrased == len(answerable)


def test_the_library_is_as_people_keep_files(repository_root, documents):
    files = sorted((repository_root / "examples" / "library").iterdir())
    assert len(files) >= 12
    assert {path.suffix for path in files} >= {".md", ".txt", ".html", ".jsonl"}
    assert sum(len(document.text.split()) for document in documents.values()) >= 15_000
    everything = "".join(document.text for document in documents.values())
    assert "\r\n" in everything
    assert "é" in everything
    assert any("\u4e00" <= character <= "\u9fff" for character in everything)
    assert any(ord(character) >= 0x1F300 for character in everything)
