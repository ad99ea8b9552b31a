"""`narrows demo` on a library of two documents and a model of random weights."""

import json
from pathlib import Path

import pytest

from narrows.cli import demo
from narrows.cli.main import main


@pytest.fixture
def library(tmp_path) -> Path:
    root = tmp_path / "library"
    root.mkdir()
    (root / "river.txt").write_text("The boat went down the river. The clock stood still. " * 9)
    (root / "birds.md").write_text("# Birds\n\nTwo birds sat on a stone.\n")
    lines = [
        {
            "id": "a",
            "question": "Where did the boat go?",
            "answers": [{"text": "down the river", "document": "river.txt", "start": 14}],
        },
        {"id": "b", "question": "Who built the clock?", "answers": []},
    ]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return root


def test_everything_is_shown(library, checkpoint, capsys) -> None:
    assert main(["demo", "--library", str(library), "--model", str(checkpoint), "--quiet"]) == 0
    shown = capsys.readouterr().out
    for words in (
        "layers 1 to 3 of 5 stored",
        "holds 2 documents",
        "Where did the boat go?",
        "Who built the clock?",
        "of these 2 right",
        "stored passages, search and loading included",
        "transformers joint, batch 1 ",
        "random weights",
    ):
        assert words in shown


def test_json_and_a_store_that_is_kept(tmp_path, library, checkpoint, capsys) -> None:
    arguments = [
        "demo",
        "--library",
        str(library),
        "--model",
        str(checkpoint),
        "--store",
        str(tmp_path / "s"),
    ]
    assert main([*arguments, "--json", "--quiet"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in shown["questions"]] == ["a", "b"]
    assert shown["store"]["documents"] == 2 and shown["seconds"]["stored"] > 0
    assert (tmp_path / "s" / "manifest.json").exists()


def result(answer: str, document: str):
    from narrows.serving.answers import Answer, Result, no_answer

    found = Answer(
        answer=answer,
        score=0.9,
        document=document,
        start=0,
        end=len(answer),
        context=answer,
        context_start=0,
        passage="p",
        title="",
    )
    answers = [found] if answer else [no_answer(0.9)]
    return Result(question="?", answers=answers, no_answer_score=0.1, threshold=0.5, candidates=1, seconds=0.1)


@pytest.mark.parametrize(
    ("answer", "document", "golds", "right"),
    [
        ("down the river", "a", [{"text": "the river", "document": "a"}], False),
        ("the river", "a", [{"text": "river", "document": "a"}], True),
        ("river", "b", [{"text": "river", "document": "a"}], False),
        ("", "", [{"text": "river", "document": "a"}], False),
        ("river", "a", [], False),
        ("", "", [], True),
    ],
)
def test_what_counts_as_right(answer, document, golds, right) -> None:
    assert demo.is_right(result(answer, document), {"answers": golds}) is right


def test_the_fixed_questions_are_in_the_examples(repository_root) -> None:
    chosen = demo._chosen(repository_root / "examples" / "questions.jsonl")
    assert [question["id"] for question in chosen] == list(demo.QUESTIONS)
    unanswerable = [question["id"] for question in chosen if not question["answers"]]
    assert unanswerable == ["q55", "q58", "q61", "q64", "q67"]
    documents = [question["answers"][0]["document"] for question in chosen if question["answers"]]
    assert len(set(documents)) == len(documents) >= 6


def test_files_that_hold_no_questions(tmp_path) -> None:
    from narrows.errors import UsageError

    (tmp_path / "bad").write_text("no json\n")
    (tmp_path / "empty").write_text("\n")
    for name in ("bad", "none"):
        with pytest.raises(UsageError, match="but it cannot be read as such"):
            demo._chosen(tmp_path / name)
    with pytest.raises(UsageError, match="but it is empty; name another file"):
        demo._chosen(tmp_path / "empty")


@pytest.mark.parametrize(
    "question",
    [
        *({"question": 5}, {"question": None}, {"answers": "x"}, {"answers": ["Lyon"]}, {"answers": 5}),
        *(
            {"answers": [{"text": "Lyon"}]},
            {"answers": [{"text": 5, "document": "a"}]},
            {"answers": [{"text": "a"}, []]},
        ),
    ],
)
def test_questions_of_another_form(tmp_path, question) -> None:
    from narrows.errors import UsageError

    whole = {"id": "a", "question": "where?", "answers": [{"text": "Lyon", "document": "a.txt", "start": 3}]}
    (tmp_path / "a").write_text(json.dumps(whole))
    assert demo._chosen(tmp_path / "a")[0]["answers"] == [{"text": "Lyon", "document": "a.txt"}]
    (tmp_path / "a").write_text(json.dumps(whole | question))
    with pytest.raises(UsageError, match='expected lines of {"id", "question", "answers"} in .*Error'):
        demo._chosen(tmp_path / "a")


@pytest.mark.parametrize("question", ["who is it?", "zebra?"])
def test_a_question_that_shares_no_word_with_the_library(tmp_path, library, checkpoint, capsys, question) -> None:
    asked = tmp_path / "questions.jsonl"
    asked.write_text(json.dumps({"id": "a", "question": question, "answers": []}))
    arguments = ["--library", str(library), "--questions", str(asked), "--model", str(checkpoint), "--json", "-q"]
    assert main(["demo", *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["seconds"]["passages"] >= 1


def test_no_examples(tmp_path, monkeypatch) -> None:
    from narrows.errors import UsageError

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "__file__", str(tmp_path / "a" / "b" / "c" / "demo.py"))
    with pytest.raises(UsageError, match="expected the folder examples/library"):
        demo._examples()
