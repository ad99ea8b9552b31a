"""`narrows ask` and `narrows answer`: what is shown, what JSON holds, sessions, and bad input."""

import io
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from narrows.cli.ask import show_result
from narrows.cli.main import main
from narrows.deformer import DeformerConfig
from narrows.serving.answers import Answer, Result, no_answer

QUESTION = "where was the boat at night?"
TEXT = "The boat was in the town. The night was cold [red]and[/red] long. A bird sang."
FIELDS = ["question", "answers", "no_answer_score", "candidates", "seconds"]


@pytest.fixture(scope="module")
def model_folder(tiny_bert, tmp_path_factory) -> Path:
    from transformers import AutoTokenizer

    from narrows.deformer.convert import convert_checkpoint

    folder = tmp_path_factory.mktemp("ask-model")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model, _ = convert_checkpoint(tiny_bert, split_layer=3, task="question-answering", no_answer_threshold=0.0)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def refusing_folder(model_folder, tmp_path_factory) -> Path:
    """The same weights with a threshold that nothing reaches: it reads the same stores."""
    from transformers import AutoTokenizer

    from narrows.deformer import DeformerForQuestionAnswering

    folder = tmp_path_factory.mktemp("refusing-model")
    model = DeformerForQuestionAnswering.from_pretrained(model_folder)
    model.config.no_answer_threshold = 1.1
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(model_folder).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("ask-library")
    (root / "town.txt").write_text(TEXT)
    (root / "sea.md").write_text("# The sea\n\nA ship came over the sea with gold.\n")
    return root


@pytest.fixture(scope="module")
def store(model_folder, library, tmp_path_factory) -> Path:
    from narrows.serving.engine import Engine
    from narrows.serving.indexing import index_folder

    path = tmp_path_factory.mktemp("ask-store") / "town.store"
    index_folder(library, path, Engine.from_pretrained(model_folder))
    return path


@pytest.fixture
def ask(store, model_folder, capsys):
    """Run `narrows ask STORE ...` and give its exit code and what it wrote."""

    def run(*arguments: str, model: Path = model_folder):
        code = main(["ask", str(store), "--model", str(model), "--device", "cpu", "--quiet", *arguments])
        return code, *capsys.readouterr()

    return run


def test_an_answer_is_shown_in_its_sentence_with_its_place(ask) -> None:
    code, out, err = ask(QUESTION, "--top", "1")
    assert code == 0 and err == ""
    sentence, place, last = out.splitlines()
    assert "«" in sentence and "»" in sentence
    assert any(f"{name} " in place for name in ("town.txt", "sea.md"))
    assert "score" in place and last.startswith("Read ")


def test_json_has_the_fields_and_true_offsets(ask, library) -> None:
    code, out, _ = ask(QUESTION, "--json", "--top", "4")
    assert code == 0
    result = json.loads(out)
    assert list(result) == FIELDS
    assert 1 <= len(result["answers"]) <= 4
    for answer in result["answers"]:
        assert list(answer) == ["answer", "score", "document", "start", "end", "context", "passage"]
        text = (library / answer["document"]).read_text()
        assert text[answer["start"] : answer["end"]] == answer["answer"] != ""


def test_a_refusal_names_the_nearest_candidate(ask, refusing_folder) -> None:
    code, out, _ = ask(QUESTION, model=refusing_folder)
    assert code == 0
    first, second, sentence, *_ = out.splitlines()
    threshold = DeformerConfig.from_pretrained(refusing_folder).no_answer_threshold
    assert re.fullmatch(
        rf"No answer in this store \(the likeliest has 0\.\d\d, the model answers from {threshold:.2f} on\)\.", first
    )
    assert second == "Nearest candidate:"
    assert "«" in sentence
    code, out, _ = ask(QUESTION, "--json", model=refusing_folder)
    answers = json.loads(out)["answers"]
    assert (answers[0]["answer"], answers[0]["document"], answers[0]["start"], answers[0]["end"]) == (
        "",
        "",
        0,
        0,
    )
    assert answers[1]["answer"]


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_other_precisions_answer(ask, precision) -> None:
    code, out, _ = ask(QUESTION, "--json", "--precision", precision)
    assert code == 0 and json.loads(out)["answers"][0]["answer"]


def test_a_file_gives_a_line_for_each_question(ask, tmp_path) -> None:
    file = tmp_path / "questions.jsonl"
    lines = [{"id": "a", "question": QUESTION, "answers": []}, {"id": 7, "question": "who sang?"}]
    file.write_text("\n".join(map(json.dumps, lines)) + "\n\n", encoding="utf-8-sig")
    code, out, _ = ask("--file", str(file))
    assert code == 0
    results = [json.loads(line) for line in out.splitlines()]
    assert [result["id"] for result in results] == ["a", 7]
    assert all(list(result) == ["id", *FIELDS] for result in results)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{oops", 'expected {"id", "question"} on line 2 of'),
        ('{"id": 1}', 'expected a text "question" on line 2 of'),
        ('["id"]', 'expected a text "question" on line 2 of'),
        ('{"question": "who?"}', 'expected an "id" (text or number) on line 2 of'),
        ('{"id": true, "question": "who?"}', 'expected an "id" (text or number) on line 2 of'),
        ('{"id": 1, "question": " "}', "line 2 of"),
        (json.dumps({"id": 1, "question": "why " * 99}), "a question must have at most 64 tokens, got 99"),
        (
            json.dumps({"id": 1, "question": "\ud800 x"}),
            "jsonl: expected a question in Unicode, but its character 0 is",
        ),
        (f'{{"id": {"1" * 5000}, "question": "x"}}', "jsonl, got no JSON (a number has too many digits); correct or"),
        ("[" * 100_000, "jsonl, got no JSON (it is nested too deep); correct or remove the line"),
    ],
)
def test_a_bad_line_keeps_what_was_answered_before(ask, tmp_path, line, sentence) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text(json.dumps({"id": "a", "question": QUESTION}) + f"\n{line}\n")
    code, out, err = ask("--file", str(file))
    assert code == 2
    assert [json.loads(line)["id"] for line in out.splitlines()] == ["a"]
    assert err.count("\n") == 1 and err.startswith("narrows: error: ") and sentence in err


def test_a_file_that_cannot_be_read_is_one_sentence(ask, tmp_path) -> None:
    code, _, err = ask("--file", str(tmp_path / "none.jsonl"))
    assert code == 2 and "cannot be read (No such file or directory)" in err
    (tmp_path / "latin.jsonl").write_bytes(b'{"id": 1, "question": "caf\xe9?"}\n')
    code, out, err = ask("--file", str(tmp_path / "latin.jsonl"))
    assert (code, out) == (2, "") and "expected UTF-8 on line 1 of" in err


def test_a_session_answers_line_by_line_and_outlives_errors(ask, monkeypatch) -> None:
    asked = f"{QUESTION}\n{'why ' * 99}\nwho sang?\n\nnever asked?\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(asked.encode())))
    code, out, err = ask("--json")
    assert code == 0
    assert [json.loads(line)["question"] for line in out.splitlines()] == [QUESTION, "who sang?"]
    assert err == "narrows: error: a question must have at most 64 tokens, got 99; ask it in fewer words\n"


def test_a_session_ends_with_its_input(ask, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"who sang?")))
    code, out, _ = ask()
    assert code == 0 and "score" in out


def test_bytes_that_are_no_text_end_their_question_only(ask, monkeypatch) -> None:
    asked = f"{QUESTION}\n".encode() + b"caf\xe9?\n\xff\nwho sang?\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(asked)))
    code, out, err = ask("--json")
    assert code == 0
    assert [json.loads(line)["question"] for line in out.splitlines()] == [QUESTION, "who sang?"]
    assert [line[:77] for line in err.splitlines()] == [
        "narrows: error: expected a question in Unicode, but its character 3 is a byte",
        "narrows: error: expected a question in Unicode, but its character 0 is a byte",
    ]


def test_a_session_without_stdin_is_refused(ask, monkeypatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    code, out, err = ask()
    assert (code, out) == (2, "")
    assert err == (
        "narrows: error: expected something on stdin, but it is closed; pipe it in or name it on the command line\n"
    )


def test_an_id_that_is_no_text_comes_back_as_it_came(ask, tmp_path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text(json.dumps({"id": "\ud800é", "question": QUESTION}) + "\n")
    code, out, err = ask("--file", str(file))
    assert (code, err) == (0, "")
    assert '"id": "\\ud800\\u00e9"' in out and json.loads(out)["id"] == "\ud800é"


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ([""], 2, "expected a question, got an empty one; ask in at least one word"),
        (["why " * 65], 2, "a question must have at most 64 tokens, got 65"),
        ([QUESTION, "--file", "x.jsonl"], 2, "expected a question or --file, got both"),
        ([QUESTION, "--retrieval", "dense"], 2, "has no vectors to compare with"),
    ],
)
def test_a_question_that_cannot_be_asked_is_one_sentence(ask, arguments, code, sentence) -> None:
    found, out, err = ask(*arguments)
    assert (found, out) == (code, "")
    assert err.count("\n") == 1 and sentence in err


def test_a_store_of_another_model_is_one_sentence(ask, tiny_bert, tmp_path) -> None:
    from transformers import AutoTokenizer

    from narrows.deformer.convert import convert_checkpoint

    convert_checkpoint(tiny_bert, split_layer=0, task="question-answering")[0].save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(tmp_path)
    code, out, err = ask(QUESTION, model=tmp_path)
    assert (code, out) == (1, "")
    assert "was written by another model" in err and "split layer 3 in the store, 0 in the model" in err


def test_no_store_is_one_sentence(model_folder, tmp_path, capsys) -> None:
    assert main(["ask", str(tmp_path / "none"), QUESTION, "--model", str(model_folder)]) == 1
    shown = capsys.readouterr()
    assert shown.out == "" and "none" in shown.err and shown.err.count("\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_no_permission_is_one_sentence(ask, store) -> None:
    manifest = store / "manifest.json"
    mode = manifest.stat().st_mode
    manifest.chmod(0)
    try:
        code, _, err = ask(QUESTION)
    finally:
        manifest.chmod(mode)
    assert code == 1 and err.count("\n") == 1


def test_answer_reads_one_file(model_folder, library, capsys) -> None:
    arguments = ["answer", QUESTION, "--context", str(library / "town.txt"), "--model", str(model_folder)]
    assert main([*arguments, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert list(result) == FIELDS
    for answer in result["answers"]:
        assert answer["document"] == "town.txt"
        assert TEXT[answer["start"] : answer["end"]] == answer["answer"]
    assert main(arguments) == 0
    assert "town.txt " in capsys.readouterr().out


def test_answer_reads_stdin(model_folder, monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert main(["answer", QUESTION, "-c", "-", "--model", str(model_folder), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)["answers"][0]
    assert TEXT[answer["start"] : answer["end"]] == answer["answer"]


def test_answer_names_bad_lines_and_reads_the_others(model_folder, tmp_path, capsys) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"id": "a", "text": "The boat was in the town."}\n{oops\n')
    assert main(["answer", QUESTION, "-c", str(file), "--model", str(model_folder), "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["answers"][0]["document"] == "rows.jsonl#a"
    assert "skipped: expected a JSON object on line 2" in shown.err


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("none.txt", None, "does not exist"),
        ("empty.txt", b"", "expected text in empty.txt, but it is empty"),
        ("binary.txt", b"a\0b", "NUL"),
        ("page.pdf", b"x", "page.pdf"),
    ],
)
def test_answer_refuses_what_it_cannot_read(model_folder, tmp_path, capsys, name, content, sentence) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert main(["answer", QUESTION, "-c", str(tmp_path / name), "--model", str(model_folder)]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and sentence in shown.err and shown.err.count("\n") == 1


def test_answer_refuses_an_empty_stdin(model_folder, monkeypatch, capsys) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b" ")))
    assert main(["answer", QUESTION, "-c", "-", "--model", str(model_folder)]) == 2
    assert "expected text on stdin, but it is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("score", "threshold", "words"),
    [
        (0.41, 0.55, "the likeliest has 0.41, the model answers from 0.55 on"),
        (0.5499, 0.55, "the likeliest has 0.5499, the model answers from 0.5500 on"),
        (0.996, 1.0, "the likeliest has 0.996, the model answers from 1.000 on"),
        (None, 0.0, "none of the passages read holds anything that could be one"),
    ],
)
def test_a_refusal_says_by_how_much(capsys, score, threshold, words) -> None:
    refused = [] if score is None else [replace(no_answer(score), answer="gold", context="gold")]
    best = score or 0.0
    answers = [no_answer(1 - best), *refused]
    show_result(
        Result(question="?", answers=answers, no_answer_score=1 - best, threshold=threshold, candidates=1, seconds=0.1)
    )
    assert capsys.readouterr().out.splitlines()[0] == f"No answer in this store ({words})."


def test_markup_and_control_characters_of_a_document_are_only_text(capsys) -> None:
    context = "See [bold]the\x1b[31m list[/bold]\nhere [link=x]."
    start = context.index("list")
    answer = Answer(
        answer="list[/bold]\nhere",
        score=0.5,
        document="a[b].md",
        start=start,
        end=start + 16,
        context=context,
        context_start=0,
        passage="a[b].md:0",
        title="",
    )
    show_result(Result(question="?", answers=[answer], no_answer_score=0.5, threshold=0.4, candidates=1, seconds=0.1))
    assert capsys.readouterr().out.splitlines() == [
        "  See [bold]the [31m «list[/bold] here» [link=x].",
        f"    a[b].md {start}–{start + 16}, score 0.50",
        "Read 1 passage in 0.10 s.",
    ]


@pytest.mark.parametrize("question", ["???", "😀", "...", "   "])
def test_a_question_of_signs_alone_is_used_wrongly(store, folder, checkpoint, question, capsys) -> None:
    for arguments in (["ask", store, question], ["answer", "--context", folder / "river.txt", question]):
        assert main([*map(str, arguments), "--model", str(checkpoint), "--quiet"]) == 2
        shown = capsys.readouterr()
        assert shown.out == "" and shown.err.count("\n") == 1
        assert "expected a question" in shown.err and "ask in at least one word" in shown.err
