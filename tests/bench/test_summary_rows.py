"""ROUGE rows of checkpoints named on the command line: by length, and the documents' beginnings beside them."""

import gzip
import json

import pytest

from narrows.bench.mulla import groups
from narrows.bench.rows import Context
from narrows.bench.summaries import summary_groups
from narrows.data import evenly_spread

pytest.importorskip("rouge_score")

_STORY = {
    "metadata": {"passage_id": "1", "uid": "1", "license": ""},
    "document": "A child found the old mill beside the water. " * 8,
    "questions": [
        {
            "question_text": f"What is question {number}?",
            "question_number": number,
            "responses": [{"response_text": text}],
        }
        for number, text in enumerate(("A child found the old mill.", "The water."), 1)
    ],
}
_MEETING = {
    "general_query_list": [{"query": "Summarize the meeting", "answer": "A child found the old mill."}],
    "specific_query_list": [],
    "meeting_transcripts": [{"speaker": "A", "content": "A child found the old mill."}],
}


@pytest.fixture
def data(tmp_path):
    for path, record in (("squality_v1-3/test", _STORY), ("qmsum/ALL_val", _MEETING)):
        file = tmp_path / "longdoc" / f"{path}.jsonl.gz"
        file.parent.mkdir(parents=True)
        with gzip.open(file, "wt") as out:
            out.write(json.dumps(record) + "\n")
    return tmp_path


def test_rows_by_length_and_the_beginning_of_each_document(tiny_seq2seq, data) -> None:
    context = Context(data=data, models={"tiny": tiny_seq2seq("mulla")})
    found = {}
    for group in summary_groups(["tiny"]):
        assert group.missing(context) is None
        measured = group.measure(context)
        assert set(measured) == {row.name for row in group.rows}
        found |= measured
    names = {f"rouge-tiny-{key}-{length}k" for key in ("squality", "qmsum") for length in (2, 4, 8, 16)}
    assert set(found) == names | {"rouge-lead-squality", "rouge-lead-qmsum"}
    assert found["rouge-lead-qmsum"].detail["rouge1"] > 80
    # Nothing is longer than 2,048 tokens: whatever the length, the same is read and written.
    assert found["rouge-tiny-squality-2k"] == found["rouge-tiny-squality-16k"]
    assert found["rouge-tiny-squality-2k"].detail["not_read"] == 0


def test_what_is_missing_is_named(tmp_path) -> None:
    context = Context(models={"tiny": tmp_path})
    rows = {row.name for group in groups(context) for row in group.rows}
    assert "rouge-tiny-squality-16k" in rows and not any(
        "rouge" in row.name for g in groups(Context()) for row in g.rows
    )
    group = summary_groups(["tiny"])[0]
    assert group.missing(context) == "needs data: pass --data DIR or set NARROWS_DATA"
    assert group.missing(Context(data=tmp_path)) == (
        f"needs data: no longdoc/squality_v1-3/test.jsonl.gz in {tmp_path}"
    )


def test_a_part_stands_for_all_of_it() -> None:
    assert evenly_spread(range(10), 5) == [0, 2, 4, 6, 8]
    assert list(evenly_spread(range(3), 5)) == list(evenly_spread(range(3), None)) == [0, 1, 2]
