"""Queries, candidates and judgements in two layouts, whole and broken."""

import gzip
import json

import pytest

from narrows.data import read_retrieval
from narrows.errors import UsageError

_TEST = {
    "questions": ["who?", "where?", "when?"],
    "candidates": ["the king", "the mill", "in May"],
    "ground_truths": [[0], [1, 2], []],
}


def _write(folder, name="test.json", **changes):
    path = folder / name
    text = json.dumps({**_TEST, **changes})
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["test.json", "test.json.gz"])
def test_a_whole_reqa_file_and_one_that_names_its_questions(name, tmp_path) -> None:
    whole = read_retrieval(_write(tmp_path, name))
    assert whole == (("who?", "where?"), ("the king", "the mill", "in May"), ({0: 1.0}, {1: 1.0, 2: 1.0}), 1)
    (tmp_path / "eval.json").write_text(json.dumps({"note": "", "questions": [1], "candidates": [[0, 1]]}))
    assert read_retrieval(tmp_path / "eval.json") == (("where?",), whole.candidates, ({1: 1.0, 2: 1.0},), 0)


@pytest.fixture
def beir(tmp_path):
    folder = tmp_path / "beir"
    folder.mkdir()
    corpus = [{"_id": "a", "title": "A", "text": "first"}, {"_id": "b", "text": "second"}]
    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress("".join(f"{json.dumps(r)}\n" for r in corpus).encode()))
    queries = [{"_id": "q", "text": "what"}, {"_id": "none", "text": "nothing"}, {"_id": "zero", "text": "zero"}]
    (folder / "queries.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in queries))
    (folder / "qrels-test.tsv").write_text("query-id\tcorpus-id\tscore\nq\ta\t2\nq\tb\t0\nzero\ta\t0\n")
    return folder


def test_a_folder_of_beir(beir) -> None:
    assert read_retrieval(beir) == (("what",), ("A first", "second"), ({0: 2.0, 1: 0.0},), 2)
    (beir / "qrels").mkdir()
    (beir / "qrels-test.tsv").rename(beir / "qrels" / "test.tsv")
    assert read_retrieval(beir).queries == ("what",)


def test_the_real_ones(shared_data) -> None:
    reqa = read_retrieval(shared_data / "squad_reqa" / "eval-500.json.gz")
    assert (len(reqa.queries), len(reqa.candidates), reqa.left_out) == (500, 10_246, 0)
    entities = read_retrieval(shared_data / "ir" / "dbpedia_5k")
    assert (len(entities.queries), len(entities.candidates), entities.left_out) == (40, 5_000, 10)
    assert sum(len(gains) for gains in entities.gains) == 3_709


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ground_truths": [[0]]}, "expected as many ground_truths as questions, got 1 and 3; pass a whole ReQA"),
        (
            {"ground_truths": [[0], [9], []]},
            r"expected numbers of candidates as the ground truth of question 1, got \[9",
        ),
        ({"candidates": ["a", 1]}, "expected strings as 'candidates', got int at 1; correct the place"),
        ({"candidates": ["a\ud800"]}, "expected Unicode at 0 of 'candidates', got half of a surrogate pair"),
        ({"ground_truths": [[], [], []]}, "expected queries with a right candidate, got none; check the judgements"),
    ],
)
def test_a_broken_reqa_file(changes, message, tmp_path) -> None:
    with pytest.raises(UsageError, match=message):
        read_retrieval(_write(tmp_path, **changes))


def test_questions_of_another_file(tmp_path) -> None:
    path = tmp_path / "eval.json"
    path.write_text(json.dumps({"questions": [7], "candidates": []}))
    with pytest.raises(UsageError, match="expected test.json or test.json.gz beside it, .* got neither; put them in"):
        read_retrieval(path)
    _write(tmp_path)
    with pytest.raises(UsageError, match="expected questions from 0 to 2, got 7; pass the file that belongs to"):
        read_retrieval(path)


def test_a_broken_folder(beir) -> None:
    (beir / "qrels-test.tsv").write_text("q\tunknown\t1\n")
    with pytest.raises(UsageError, match=r"line 1: expected a query, a candidate and a number, all known .*'q\\tunkn"):
        read_retrieval(beir)
    (beir / "corpus.jsonl.gz").unlink()
    with pytest.raises(UsageError, match="expected corpus.jsonl.gz or corpus.jsonl in it, got neither; pass a .json"):
        read_retrieval(beir)


def test_another_layout(tmp_path) -> None:
    with pytest.raises(
        UsageError, match=r"expected a .json\[.gz\] file in the layout of ReQA, or a folder .*another name"
    ):
        read_retrieval(tmp_path / "a.csv")
