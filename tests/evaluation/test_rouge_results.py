import json
import subprocess
import sys

import pytest

from narrows.errors import OutputError, UsageError

pytest.importorskip("rouge_score", reason="needs the extra eval")

from narrows.evaluation.rouge import Rouge, RougeScore, rouge_summary  # noqa: E402
from narrows.evaluation.rouge_results import RougeResults  # noqa: E402

SUMMARIES = {
    "a": ("The cat sat.", ["A cat sat."]),
    "b": ("Rivers run.", ["A river ran.", "Rivers"]),
    "ç\n": ("", ["x"]),
}


@pytest.fixture
def rouge():
    return Rouge()


def test_scores_are_written_a_line_each_and_taken_up_again(tmp_path, rouge):
    path = tmp_path / "new" / "rouge.jsonl"
    first = RougeResults(path, rouge=rouge)
    for name, (prediction, references) in list(SUMMARIES.items())[:2]:
        assert first.add(name, prediction, references) == rouge.score(prediction, references)
    again = RougeResults(path, rouge=rouge)
    assert list(again) == ["a", "b"]
    assert "a" in again and "ç\n" not in again and len(again) == 2
    for name, (prediction, references) in SUMMARIES.items():
        again.add(name, prediction, references)
    assert again.scores == {name: rouge.score(*made) for name, made in SUMMARIES.items()}
    assert RougeResults(path, rouge=rouge).scores == again.scores
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [record["id"] for record in records] == list(SUMMARIES)
    assert set(records[0]) == {"id", *RougeScore._fields, "words", "of"}
    assert rouge_summary(again.scores.values()).total == 3


@pytest.mark.parametrize("kept", [0, 1, -1])
def test_a_line_that_a_kill_tore_is_cut_off(tmp_path, rouge, kept):
    path = tmp_path / "rouge.jsonl"
    results = RougeResults(path, rouge=rouge)
    results.add("a", *SUMMARIES["a"])
    one = path.read_bytes()
    results.add("b", *SUMMARIES["b"])
    both = path.read_bytes()
    path.write_bytes(one + both[len(one) :][:kept])
    again = RougeResults(path, rouge=rouge)
    assert list(again) == ["a"]
    again.add("b", *SUMMARIES["b"])
    assert path.read_bytes() == both


def test_another_summary_of_an_id_is_refused(tmp_path, rouge):
    results = RougeResults(tmp_path / "rouge.jsonl", rouge=rouge)
    results.add("a", *SUMMARIES["a"])
    for again in (results, RougeResults(tmp_path / "rouge.jsonl", rouge=rouge)):
        with pytest.raises(
            UsageError, match=r"expected the summary of 'a' that was scored, got another one; name anot"
        ):
            again.add("a", "The dog sat.", ["A cat sat."])
        with pytest.raises(UsageError, match="expected the summary of 'a' that was scored"):
            again.add("a", "The cat sat.", ["A cat sat.", "x"])


def test_scores_of_other_words_are_refused(tmp_path, rouge):
    RougeResults(tmp_path / "rouge.jsonl", rouge=rouge).add("a", *SUMMARIES["a"])
    with pytest.raises(
        UsageError, match="line 1: expected scores with the words 'unicode', got 'english-stemmed'; name"
    ):
        RougeResults(tmp_path / "rouge.jsonl", rouge=Rouge(words="unicode"))


@pytest.mark.parametrize(
    "line", ["not JSON", "[]", "3", '{"id": "a"}', '{"id": "a", "words": 1, "of": 2, "rouge1": "x"}']
)
def test_another_file_is_refused_and_left_as_it_is(tmp_path, rouge, line):
    path = tmp_path / "rouge.jsonl"
    path.write_text(f"{line}\nrest", encoding="utf-8")
    with pytest.raises(UsageError, match=r"rouge\.jsonl: line 1: expected a ROUGE score of an earlier run, got b'"):
        RougeResults(path, rouge=rouge)
    assert path.read_text(encoding="utf-8") == f"{line}\nrest"


def test_an_id_twice_is_refused(tmp_path, rouge):
    path = tmp_path / "rouge.jsonl"
    RougeResults(path, rouge=rouge).add("a", *SUMMARIES["a"])
    path.write_bytes(2 * path.read_bytes())
    with pytest.raises(UsageError, match="line 2: expected each id once, got 'a' twice; remove one of the two lines"):
        RougeResults(path, rouge=rouge)


def test_a_place_that_cannot_be_written_is_named(tmp_path, rouge):
    with pytest.raises(
        OutputError, match=r"expected a file to write scores to, got .* \(Is a directory\); make room or"
    ):
        RougeResults(tmp_path, rouge=rouge)
    results = RougeResults(tmp_path / "rouge.jsonl", rouge=rouge)
    (tmp_path / "rouge.jsonl").unlink()
    (tmp_path / "rouge.jsonl").mkdir()
    with pytest.raises(OutputError, match=r"got .*rouge\.jsonl \(Is a directory\); make room"):
        results.add("a", "b", ["c"])
    assert "a" not in results


_FULL = """
import resource, sys
from narrows.errors import OutputError
from narrows.evaluation.rouge import Rouge
from narrows.evaluation.rouge_results import RougeResults
resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
results = RougeResults(sys.argv[1], rouge=Rouge())
results.add("a", "The cat sat.", ["A cat sat."])
try:
    results.add("b", "The cat sat.", ["A cat sat."])
except OutputError as error:
    print(error, list(results))
"""


def test_a_full_disk_tears_no_line(tmp_path, rouge):
    path = tmp_path / "rouge.jsonl"
    said = subprocess.run([sys.executable, "-c", _FULL, str(path)], capture_output=True, text=True, check=True)
    assert "(No space left on device); make room or choose another place. ['a']" in said.stdout
    assert path.read_bytes().endswith(b"}\n")
    assert list(RougeResults(path, rouge=rouge)) == ["a"]
