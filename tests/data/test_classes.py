"""Readers of labelled data: each public layout on a small file, the real ones where they are, each mistake told."""

import gzip
import json
import zipfile
from collections import Counter

import pytest

from narrows.data import ChoiceExample, TextExample, WordsExample, read_examples
from narrows.errors import UsageError


def _table(path, rows):
    path.write_text("\n".join("\t".join(row) for row in rows) + "\n")
    return path


_STS = ("index", "genre", "filename", "year", "old_index", "source1", "source2", "sentence1", "sentence2", "score")
_MNLI = (
    "index",
    "promptID",
    "pairID",
    "genre",
    "b1",
    "b2",
    "p1",
    "p2",
    "sentence1",
    "sentence2",
    "x",
    "y",
    "gold_label",
)


@pytest.mark.parametrize(
    ("layout", "rows", "expected"),
    [
        ("cola", [["gj04", "0", "*", 'He said "no.']], ('He said "no.', None, "0")),
        ("sst-2", [["sentence", "label"], ["a fine film ", "1"]], ("a fine film", None, "1")),
        ("mrpc", [["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"], ["1", "7", "8", "A", "B"]], ("A", "B", "1")),
        ("mrpc", [["1", "7", "8", "A", "B"]], ("A", "B", "1")),
        ("sts-b", [_STS, [*"1234567", "A", "B", "4.25"]], ("A", "B", "4.25")),
        ("qqp", [["7", "1", "2", "A?", "B?", "0"]], ("A?", "B?", "0")),
        ("mnli", [_MNLI, [*"12345678", "A", "B", "x", "y", "neutral"]], ("A", "B", "neutral")),
        (
            "qnli",
            [["index", "question", "sentence", "label"], ["0", "A?", "B", "entailment"]],
            ("A?", "B", "entailment"),
        ),
        ("rte", [["0", "A", "B", "entailment"]], ("A", "B", "entailment")),
        ("wnli", [["index", "sentence1", "sentence2", "label"], ["0", "A", "B", "1"]], ("A", "B", "1")),
    ],
)
def test_tables_of_glue_with_a_header_and_without(layout, rows, expected, tmp_path) -> None:
    (example,) = read_examples(_table(tmp_path / "a.tsv", rows), layout=layout)
    assert isinstance(example, TextExample) and example[1:] == expected


@pytest.mark.parametrize(
    ("layout", "file", "counts"),
    [
        ("rte", "RTE/train.tsv.gz", {"entailment": 1078, "not_entailment": 1049}),
        ("rte", "RTE/val.tsv", {"entailment": 171, "not_entailment": 192}),
        ("rte", "RTE/dev.tsv", {"entailment": 146, "not_entailment": 131}),
        ("cola", "CoLA/dev.tsv", {"1": 721, "0": 322}),
        ("sst-2", "SST-2/test.tsv.gz", {"1": 444, "0": 428}),
        ("qnli", "QNLI/dev.tsv.gz", {"entailment": 2702, "not_entailment": 2761}),
        ("wnli", "WNLI/dev.tsv", {"0": 40, "1": 31}),
    ],
)
def test_the_published_tables(layout, file, counts, shared_data) -> None:
    assert Counter(example.label for example in read_examples(shared_data / "glue" / file, layout=layout)) == counts


def test_published_json_lines_and_folders(shared_data) -> None:
    names = {"text": "premise", "pair": "hypothesis"}
    found = read_examples(shared_data / "glue" / "MNLI" / "dev_matched.jsonl.gz", layout="jsonl", fields=names)
    assert Counter(e.label for e in found) == {"entailment": 3479, "neutral": 3123, "contradiction": 3213}
    reviews = shared_data / "textcls" / "nltk" / "movie_reviews.zip"
    parts = [read_examples(reviews, layout="folders", folds=10, take=take) for take in ([*range(9)], [9])]
    assert [Counter(e.label for e in part) for part in parts] == [{"neg": 900, "pos": 900}, {"neg": 100, "pos": 100}]
    assert not {e.id for e in parts[0]} & {e.id for e in parts[1]}


def test_comma_separated_files(tmp_path) -> None:
    (tmp_path / "yelp.csv").write_text('"1","Bad ""food"".\\nNever."\n"5","Good, really"\n')
    found = read_examples(tmp_path / "yelp.csv", layout="csv")
    assert [e[1:] for e in found] == [('Bad "food".\nNever.', None, "1"), ("Good, really", None, "5")]
    (tmp_path / "amazon.csv").write_text('"3","A title","the text"\n')
    assert read_examples(tmp_path / "amazon.csv", layout="csv")[0].text == "A title the text"
    (tmp_path / "named.csv").write_text("id,review,other,stars\n1,fine,more,5\n")
    fields = {"text": "review", "pair": "other", "label": "stars"}
    assert read_examples(tmp_path / "named.csv", layout="csv", fields=fields)[0][1:] == ("fine", "more", "5")


def test_folds_of_numbers_are_cut_in_their_order(tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": "a", "label": n / 10}) for n in range(20)))
    options: dict = {"layout": "jsonl", "folds": 5, "stratified": False}
    folds = [read_examples(tmp_path / "a.jsonl", take=[fold], **options) for fold in range(5)]
    assert [[float(e.label) * 10 for e in fold] for fold in folds] == [[*range(n, n + 4)] for n in range(0, 20, 4)]


def test_a_field_may_be_as_long_as_a_document(tmp_path) -> None:
    (tmp_path / "a.csv").write_text(f"1,{'long ' * 40_000}\n2,short\n")
    assert [len(example.text) for example in read_examples(tmp_path / "a.csv", layout="csv")] == [199_999, 5]


def test_folders_on_disk_and_in_an_archive(tmp_path) -> None:
    for name in ("neg/1.txt", "pos/1.txt", "pos/2.txt", "unsup/9.txt"):
        (tmp_path / "train" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "train" / name).write_text(f"text of {name}\n")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for file in sorted((tmp_path / "train").glob("*/*.txt")):
            archive.write(file, f"reviews/{file.parent.name}/{file.name}")
    for path in (tmp_path / "train", tmp_path / "a.zip"):
        found = read_examples(path, layout="folders")
        assert [(e.text, e.label) for e in found] == [
            ("text of neg/1.txt", "neg"),
            ("text of pos/1.txt", "pos"),
            ("text of pos/2.txt", "pos"),
        ]


def test_json_lines(tmp_path) -> None:
    records = [{"text": "A", "label": "x"}, {"text_a": "A", "text_b": "B", "label": True}, {"text": "A", "label": 2.5}]
    with gzip.open(tmp_path / "a.jsonl.gz", "wt") as file:
        file.write("\n\n".join(map(json.dumps, records)))
    found = read_examples(tmp_path / "a.jsonl.gz", layout="jsonl")
    assert [e[1:] for e in found] == [("A", None, "x"), ("A", "B", "true"), ("A", None, "2.5")]


def test_race_and_conll(tmp_path) -> None:
    record = {"article": "An article.", "questions": ["It is _ .", "Why?"], "options": [["a", "b"], ["c", "d"]]}
    (tmp_path / "high").mkdir()
    (tmp_path / "high" / "1.txt").write_text(json.dumps({**record, "answers": ["B", "A"]}))
    first, second = read_examples(tmp_path, layout="race")
    assert first == ChoiceExample("high/1.txt/1", "An article.", ("It is  a  .", "It is  b  ."), 1)
    assert isinstance(second, ChoiceExample) and second.choices == ("Why? c", "Why? d") and second.label == 0
    (tmp_path / "a.conll").write_text("-DOCSTART- -X- O O\n\nKim NNP B-PER\nran VBD O\n\n\nHome RB O\n")
    found = read_examples(tmp_path / "a.conll", layout="conll")
    assert found == [WordsExample("3", ("Kim", "ran"), ("B-PER", "O")), WordsExample("7", ("Home",), ("O",))]
    tagged = read_examples(tmp_path / "a.conll", layout="conll", fields={"word": "1", "tag": "2"})
    assert tagged[0].tags == ("NNP", "VBD")  # type: ignore[union-attr]


def test_listops_in_both_layouts(tmp_path) -> None:
    with gzip.open(tmp_path / "own.tsv.gz", "wt") as file:
        file.write("9\t( ( ( [MAX 2 ) 9 ) ] )\n3\t3\r\n4\t[MIN 4 [SM 9 9 ] ]\n")
    (tmp_path / "arena.tsv").write_text("Source\tTarget\n( ( ( [MAX 2 ) 9 ) ] )\t9\n3\t3\n[MIN 4 [SM 9 9 ] ]\t4\n")
    expected = [("[MAX 2 9 ]", None, "9"), ("3", None, "3"), ("[MIN 4 [SM 9 9 ] ]", None, "4")]
    for name in ("own.tsv.gz", "arena.tsv"):
        assert [example[1:] for example in read_examples(tmp_path / name, layout="listops")] == expected
    (tmp_path / "broken.tsv").write_text("3\t3\n9 [MAX 2 9 ]\n")
    assert len(read_examples(tmp_path / "broken.tsv", layout="listops", skip_broken=True)) == 1


def test_broken_lines_are_refused_or_left_out(tmp_path) -> None:
    path = _table(tmp_path / "a.tsv", [["7", "1", "2", "A?", "B?", "0"], ["8", "1"]])
    with pytest.raises(UsageError, match=r"line 2: expected 6 columns with tabs .*, got 2; correct the line, or set"):
        read_examples(path, layout="qqp")
    assert len(read_examples(path, layout="qqp", skip_broken=True)) == 1
    (tmp_path / "a.csv").write_text("1,A\n1,A,B\n")
    with pytest.raises(UsageError, match="line 2: expected 2 columns with commas between them, got 3; correct the"):
        read_examples(tmp_path / "a.csv", layout="csv")
    assert len(read_examples(tmp_path / "a.csv", layout="csv", skip_broken=True)) == 1


_RACE = {"article": "A", "questions": ["Why?"], "options": [["a", "b"]], "answers": ["A"]}


@pytest.mark.parametrize(
    ("layout", "name", "text", "options", "message"),
    [
        ("rtee", "a", "", {}, "expected a layout of labelled data .*, got 'rtee'; did you mean 'rte'?"),
        ("zzzz", "a", "", {}, "got 'zzzz'; name one of them."),
        (
            "rte",
            "a",
            "",
            {"fields": {"text": "x"}},
            r"expected fields of the layout rte \(none\), got 'text'; leave it",
        ),
        ("cola", "a", "", {}, "a: expected at least one example, got none; check the file."),
        (
            "cola",
            "a",
            "x\t1\t\tA\n",
            {"take": [1]},
            r"expected folds, and numbers below it to take, got None and \[1\]",
        ),
        ("cola", "a", "x\t1\t\tA\n", {"folds": 2, "take": [2]}, "expected folds, and numbers below it to take, got 2"),
        ("cola", "a", "x\t1\t\t \n", {}, "a: line 1: expected words in the sentence, got none; fill it or remove"),
        ("cola", "a", "x\t\t\tA\n", {}, "a: line 1: expected words in the label, got none; fill it or remove"),
        ("cola", "a", "index\tsentence\n", {}, "a: expected a column 'label', got only index, sentence; pass a part"),
        ("csv", "a", "x,y\n", {"fields": {"text": "x", "label": "z"}}, "expected a column 'z', got only x, y; correct"),
        (
            "csv",
            "a",
            "x,y\n",
            {"fields": {"text": "x"}},
            r"expected names for text and label, got \['text'\]; add them",
        ),
        ("folders", "a", "", {}, "a: expected a folder or a .zip with a folder a class, got none; check the path"),
        ("folders", "a.zip", "no", {}, "a.zip: expected a .zip archive, got .*; fetch it again"),
        ("jsonl", "a", "[]\n", {}, "a: line 1: expected an object, got list; write a record a line"),
        ("jsonl", "a", '{"text": "A"}\n', {}, "a: line 1: expected a key 'label', got only"),
        ("jsonl", "a", '{"text": "\\ud800", "label": 1}', {}, "expected 'text' in Unicode, got half of a surrogate"),
        (
            "race",
            "a",
            json.dumps({**_RACE, "answers": []}),
            {},
            "expected options and an answer for each of 1 questions",
        ),
        (
            "race",
            "a",
            json.dumps({**_RACE, "questions": [1]}),
            {},
            "question 1: expected a string and a list of strings",
        ),
        ("race", "a", json.dumps({**_RACE, "answers": ["C"]}), {}, "expected the letter of one of 2 options, got 'C'"),
        (
            "listops",
            "a",
            "3\t3\n9 [MAX 2 9 ]\n",
            {},
            "a: line 2: expected a label and an expression of ListOps with a tab between them, got 1 column; correct",
        ),
        (
            "listops",
            "a",
            "[MAX 2 9 ]\t9\n",
            {},
            r"a: line 1: expected a label from 0 to 9, got '\[MAX 2 9 \]'; correct",
        ),
        ("listops", "a", "9\t[MAX 2 x ]\n", {}, r"a: line 1: expected words of ListOps \(.*\), got 'x' as word 3; cor"),
        ("listops", "a", "9\t( )\n", {}, "a: line 1: expected an expression of ListOps, got none; fill it or remove"),
        ("listops", "a", "", {"fields": {"text": "x"}}, r"expected fields of the layout listops \(none\), got 'text'"),
        ("conll", "a", "word\n", {}, "a: line 1: expected at least 2 columns, got 1; correct the line"),
        ("conll", "a", "w t\n", {"fields": {"tag": "x"}}, "expected a column's number, from 1, as fields.tag, got 'x'"),
    ],
)
def test_a_mistake_is_one_sentence(layout, name, text, options, message, tmp_path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=message):
        read_examples(tmp_path / name, layout=layout, **options)


def test_empty_folders(tmp_path) -> None:
    with pytest.raises(UsageError, match="expected .txt files in a folder a class, got none; pass the folder above"):
        read_examples(tmp_path, layout="folders")
    with pytest.raises(UsageError, match="expected files of RACE .* in the folder, got none; check the path"):
        read_examples(tmp_path, layout="race")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="b.txt: expected UTF-8 text"):
        read_examples(tmp_path, layout="folders")
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        archive.writestr("x/b.txt", b"\xff")
    with pytest.raises(UsageError, match="c.zip: expected UTF-8 text"):
        read_examples(tmp_path / "c.zip", layout="folders")
