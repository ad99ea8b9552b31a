import gzip
import json
import re

import pytest

from narrows.data.squad import (
    Answer,
    QAExample,
    normalize_title,
    read_pairs,
    read_qamr,
    read_reqa_pairs,
    read_split,
    read_squad,
)
from narrows.errors import UsageError

CONTEXT = "Denver won. The café in Denver closed."


def question(**changes):
    record = {
        "id": "q1",
        "question": "Who won?",
        "answers": [{"text": "Denver", "answer_start": 0}, {"text": "Denver won", "answer_start": 0}],
    }
    return {key: value for key, value in (record | changes).items() if value is not ...}


def squad(*questions, title="Super_Bowl_50", context=CONTEXT):
    return {
        "version": "1.1",
        "data": [{"title": title, "paragraphs": [{"context": context, "qas": questions}]}],
    }


def qamr(**changes):
    return {"sentence": "wiki:1", "context": CONTEXT} | question(**changes)


def write(path, value):
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", encoding="utf-8") as file:
        file.write(text)
    return path


def fails(read, path, pattern):
    with pytest.raises(UsageError, match=pattern) as caught:
        list(read(path))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["dev.json", "dev.json.gz"])
def test_squad_v1(tmp_path, name):
    path = write(tmp_path / name, squad(question()))
    answers = (Answer("Denver", 0), Answer("Denver won", 0))
    assert list(read_squad(path)) == [QAExample("q1", "Super Bowl 50", "Who won?", CONTEXT, answers, False)]
    assert answers[1].end == 10


def test_squad_v2_keeps_impossible_questions(tmp_path):
    impossible = question(id="q2", answers=[], is_impossible=True, plausible_answers=[{"text": "x"}])
    path = write(tmp_path / "dev.json", squad(question(is_impossible=False), impossible))
    assert [(example.id, example.impossible) for example in read_squad(path)] == [("q1", False), ("q2", True)]


@pytest.mark.parametrize("title", ["Super_Bowl_50", "Super Bowl 50"])
@pytest.mark.parametrize("stored", ["Super_Bowl_50", "Super  Bowl 50 "])
def test_titles_match_in_either_form(tmp_path, title, stored):
    path = write(tmp_path / "dev.json", squad(question(), title=stored))
    assert len(list(read_squad(path, titles=[title]))) == 1
    assert list(read_squad(path, titles=["Warsaw"])) == []
    assert normalize_title(stored) == "Super Bowl 50"


def test_an_offset_counts_characters_not_bytes(tmp_path):
    path = write(tmp_path / "dev.json", squad(question(answers=[{"text": "Denver", "answer_start": 24}])))
    assert next(read_squad(path)).answers[0].start == 24


@pytest.mark.parametrize(
    ("record", "pattern"),
    [
        (
            question(answers=[{"text": "Denver", "answer_start": 1}]),
            "question q1: expected the answer 'Denver' at character 1 of its context, got 'enver '; correct",
        ),
        (question(answers=[{"text": "Denver", "answer_start": -6}]), "'Denver' at character -6"),
        (question(answers=[{"text": "", "answer_start": 0}]), "expected the answer '' at character 0"),
        (
            question(answers=[{"text": "Denver"}]),
            "question q1, answer 0: expected a key 'answer_start', got .*; correct the place",
        ),
        (
            question(answers=[{"text": "Denver", "answer_start": True}]),
            "'answer_start' to be an integer, got b",
        ),
        (question(answers=["Denver"]), "question q1, answer 0: expected an object with 'text', got str"),
        (question(answers=[]), "q1: expected at least one answer or is_impossible set to true, got neither; add"),
        (question(is_impossible=True), "question q1: expected no answers where is_impossible is true, got 2; remove"),
        (question(is_impossible=1), "expected 'is_impossible' to be true or false, got int"),
        (question(question=None), "question q1: expected 'question' to be a string, got NoneType"),
        (question(question=" "), "question q1: expected a question, got an empty one; write it or remove the record"),
        (question(id=...), r"article 0 \(Super Bowl 50\), paragraph 0, question 0: expected a key 'id'"),
    ],
)
def test_malformed_question(tmp_path, record, pattern):
    fails(read_squad, write(tmp_path / "dev.json", squad(record)), pattern)


@pytest.mark.parametrize("key", ["id", "question"])
def test_half_a_character_is_refused(tmp_path, key):
    path = write(tmp_path / "dev.json", json.dumps(squad(question(**{key: "\ud800"}))))
    fails(read_squad, path, f"expected {key!r} in Unicode, got half of a surrogate pair at character 0; correct the pl")
    path = write(tmp_path / "dev.jsonl", json.dumps(qamr(**{key: "a\ud800"})))
    fails(read_qamr, path, f"line 1: expected {key!r} in Unicode, got half of a surrogate pair at character 1; correct")
    pairs = {"question_ids": [1], "questions": ["what?"], "answers": ["\udfff"]}
    path = write(tmp_path / "pairs.json", json.dumps(pairs))
    fails(read_reqa_pairs, path, "pair 0: expected Unicode, got half of a surrogate pair at character 0; correct the")


@pytest.mark.parametrize(
    ("document", "pattern"),
    [
        ("{", r"expected JSON, got other text \(.*\); pass a file in the layout of SQuAD\."),
        ("[" * 100_000, r"expected JSON, got other text \(.*\); pass a file in the layout of SQuAD\."),
        ([], "the file: expected an object with 'data', got list"),
        ({"data": {}}, "the file: expected 'data' to be a list, got dict"),
        ({"data": [{"paragraphs": []}]}, "article 0: expected a key 'title', got only"),
        (
            {"data": [{"title": "A", "paragraphs": [{"qas": []}]}]},
            r"article 0 \(A\), paragraph 0: expected a key",
        ),
    ],
)
def test_malformed_squad_file(tmp_path, document, pattern):
    fails(read_squad, write(tmp_path / "dev.json", document), pattern)


@pytest.mark.parametrize("read", [read_squad, read_qamr, read_reqa_pairs, read_split])
def test_unreadable_files(tmp_path, read):
    fails(read, tmp_path / "absent.json", "expected a file, got nothing at this path; check the path")
    plain = tmp_path / "plain.json.gz"
    plain.write_text("{}")
    fails(read, plain, "expected UTF-8 text, plain or gzip as its name says, got .*; fetch it again or rename it")
    fails(read, tmp_path, "expected a readable file, got Is a directory; check the path and its permissions")
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(gzip.compress(json.dumps(squad(question())).encode())[:-12])
    fails(read, cut, "expected UTF-8 text, plain or gzip")
    latin = tmp_path / "latin.json"
    latin.write_bytes(CONTEXT.encode("latin-1"))
    fails(read, latin, "expected UTF-8 text, plain or gzip")


@pytest.mark.parametrize("name", ["dev.jsonl", "dev.jsonl.gz"])
def test_qamr(tmp_path, name):
    lines = json.dumps(qamr()) + "\n" + json.dumps(qamr(id="q2")) + "\n"
    examples = list(read_qamr(write(tmp_path / name, lines)))
    assert [example.id for example in examples] == ["q1", "q2"]
    assert examples[0].title == "wiki:1"
    assert examples[0].answers[0] == Answer("Denver", 0)


@pytest.mark.parametrize(
    ("line", "pattern"),
    [
        ("{", r"line 2: expected one JSON record, got other text \(.*\); correct or remove it\."),
        ("[" * 100_000, r"line 2: expected one JSON record, got other text \(.*\); correct or remove it\."),
        ("3", "line 2: expected an object with 'id', got int"),
        (json.dumps(qamr(question=...)), "line 2: expected a key 'question'"),
        (
            json.dumps(qamr(answers=[{"text": "Oslo", "answer_start": 0}])),
            "question q1: expected the answer 'Oslo'",
        ),
    ],
)
def test_malformed_qamr(tmp_path, line, pattern):
    fails(read_qamr, write(tmp_path / "dev.jsonl", json.dumps(qamr(id="q0")) + "\n" + line), pattern)


def test_reqa_pairs(tmp_path):
    document = {"questions": ["Who won?"], "answers": ["Denver won."], "question_ids": [7]}
    assert list(read_reqa_pairs(write(tmp_path / "train.json", document))) == [
        QAExample("7", "", "Who won?", "Denver won.")
    ]
    fails(
        read_reqa_pairs,
        write(tmp_path / "uneven.json", document | {"answers": []}),
        "expected as many question_ids as questions and answers, got 1, 1 and 0; pass a whole ReQA",
    )
    fails(
        read_reqa_pairs,
        write(tmp_path / "typed.json", document | {"answers": [None]}),
        "pair 0: expected a question and an answer sentence as strings, got str and NoneType; correct or remove",
    )


@pytest.mark.parametrize("name", ["mine.jsonl", "mine.jsonl.gz"])
def test_pairs_of_ones_own(tmp_path, name):
    records = [{"question": "Who won?", "context": "Denver won."}, {"id": "b", "question": "Où ?", "context": "Là."}]
    text = "\n\n".join(json.dumps(record) for record in records)
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    assert list(read_pairs(path)) == [
        QAExample(f"{name}:1", "", "Who won?", "Denver won."),
        QAExample("b", "", "Où ?", "Là."),
    ]


@pytest.mark.parametrize(
    ("line", "pattern"),
    [
        ('{"question": "Who?"}', r"mine\.jsonl: line 1: expected a key 'context', got only \['question'\]"),
        ('{"question": " ", "context": "A."}', r"line 1: expected a question, got an empty one; write it"),
        ('{"id": 3, "question": "Who?", "context": "A."}', r"line 1: expected 'id' to be a string, got int"),
        ("Who?", r"mine\.jsonl: line 1: expected one JSON record, got other text"),
    ],
)
def test_malformed_pairs(tmp_path, line, pattern):
    (tmp_path / "mine.jsonl").write_text(line)
    with pytest.raises(UsageError, match=pattern):
        list(read_pairs(tmp_path / "mine.jsonl"))


def test_pairs_of_any_other_name_are_those_of_reqa(tmp_path):
    document = {"questions": ["Who won?"], "answers": ["Denver won."], "question_ids": [7]}
    path = write(tmp_path / "train.json", document)
    assert list(read_pairs(path)) == list(read_reqa_pairs(path))


def test_split(tmp_path):
    path = write(tmp_path / "split.json", {"note": "by title", "test": ["A_b", "C"], "train": ["D"]})
    assert read_split(path) == {"test": frozenset({"A b", "C"}), "train": frozenset({"D"})}


@pytest.mark.parametrize(
    ("document", "pattern"),
    [
        (
            {"a": ["X_y"], "b": ["X y"]},
            "each title in one part, got 'X y' in 'a' and 'b'; remove it from one",
        ),
        ({"note": "none"}, r"expected at least one list of titles, got keys \['note'\]; pass a file such as"),
        (["A"], "expected an object of lists of titles, got list; pass a file such as"),
        ({"a": [1]}, "expected titles in part 'a' as strings, got 1; put it in quotes"),
        ("{", r"expected JSON, got other text \(.*\); pass a file such as"),
    ],
)
def test_malformed_split(tmp_path, document, pattern):
    fails(read_split, write(tmp_path / "split.json", document), pattern)


def test_error_is_one_sentence(tmp_path):
    path = write(tmp_path / "dev.json", squad(question(answers=[])))
    with pytest.raises(UsageError) as caught:
        list(read_squad(path))
    assert re.fullmatch(r"[^\n]+\.", str(caught.value))


def test_published_counts(shared_data):
    folder = shared_data / "squad"
    split = read_split(folder / "split.json")
    v1 = list(read_squad(folder / "dev-v1.1.json.gz"))
    v2 = list(read_squad(folder / "dev-v2.0.json.gz"))
    assert (len(v1), sum(len(example.answers) for example in v1)) == (10570, 34726)
    assert (len(v2), sum(example.impossible for example in v2)) == (11873, 5945)
    assert {example.title for example in v1} == frozenset.union(*split.values())
    assert sum(1 for _ in read_squad(folder / "dev-v2.0.json.gz", titles=split["test"])) == 3180
    assert sum(1 for _ in read_qamr(shared_data / "qamr" / "test.jsonl.gz")) == 18770
    assert sum(1 for _ in read_reqa_pairs(shared_data / "squad_reqa" / "train.json.gz")) == 10000
