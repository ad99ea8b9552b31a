import gzip
import json
from itertools import islice

import pytest

from narrows.data.summaries import SUMMARY_LAYOUTS, SummaryExample, read_summaries
from narrows.errors import UsageError

PLAIN = {"document": "Long.", "summary": "Short."}
SQUALITY = {
    "metadata": {"passage_id": "63833", "uid": "u", "license": "free"},
    "document": "A ship.",
    "questions": [
        {
            "question_text": "What is the plot?",
            "question_number": 1,
            "responses": [{"worker_id": "6", "uid": "a", "response_text": text} for text in ("It flies.", "It sails.")],
        }
    ],
}
QMSUM = {
    "topic_list": [],
    "general_query_list": [{"query": "Summarize the whole meeting", "answer": "They met."}],
    "specific_query_list": [{"query": "Who?", "answer": "Two.", "relevant_text_span": [["0", "1"]]}],
    "meeting_transcripts": [{"speaker": "A", "content": "Hello ."}, {"speaker": "B", "content": "Yes ."}],
}
MULTI_NEWS = {"document": "One. NEWLINE_CHAR More. ||||| Two. |||||", "summary": "– Both -- said. "}
SCIENTIFIC = {
    "article_id": "1501.0001",
    "article_text": ["we study .", "it is ."],
    "abstract_text": ["<S> short . </S>", "<S> end . </S>"],
    "labels": None,
    "section_names": ["introduction"],
    "sections": [["we study .", "it is ."]],
}
WCEP = {"id": 7, "summary": "It rained.", "articles": [{"title": "T", "text": f"Text {n}."} for n in range(12)]}
GAO = {
    "id": "GAO-1",
    "report": [
        {
            "section_title": "Background",
            "paragraphs": ["One.", " "],
            "subsections": [{"section_title": "", "paragraphs": ["Two."], "subsections": []}],
        }
    ],
    "highlight": [
        {"section_title": "What GAO Found", "paragraphs": ["Found."]},
        {"section_title": "What GAO Recommends", "paragraphs": ["Do."]},
    ],
}
CRS = {"id": "R1", "reports": GAO["report"][0], "summary": ["First.", "Second."]}

RECORDS = {
    "jsonl": (PLAIN, [SummaryExample("1", ("Long.",), ("Short.",))]),
    "squality": (SQUALITY, [SummaryExample("63833-1", ("A ship.",), ("It flies.", "It sails."), "What is the plot?")]),
    "qmsum": (
        QMSUM,
        [
            SummaryExample("1-general-0", ("A: Hello .\nB: Yes .",), ("They met.",), "Summarize the whole meeting"),
            SummaryExample("1-specific-0", ("A: Hello .\nB: Yes .",), ("Two.",), "Who?"),
        ],
    ),
    "multi-news": (MULTI_NEWS, [SummaryExample("1", ("One. \n More.", "Two."), ("Both -- said.",))]),
    "arxiv": (SCIENTIFIC, [SummaryExample("1501.0001", ("we study .\nit is .",), ("short .\nend .",))]),
    "pubmed": (SCIENTIFIC, [SummaryExample("1501.0001", ("we study .\nit is .",), ("short .\nend .",))]),
    "wcep": (WCEP, [SummaryExample("7", tuple(f"Text {n}." for n in range(12)), ("It rained.",))]),
    "wcep-10": (WCEP, [SummaryExample("7", tuple(f"Text {n}." for n in range(10)), ("It rained.",))]),
    "govreport": (GAO, [SummaryExample("GAO-1", ("Background\nOne.\nTwo.",), ("Found.",))]),
}


def write(path, text):
    data = text.encode("utf-8", "surrogatepass")
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def write_lines(path, *records):
    return write(path, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))


def read(path, layout):
    return list(read_summaries(path, layout=layout))


def fails(path, layout, pattern):
    with pytest.raises(UsageError, match=pattern) as caught:
        read(path, layout)
    assert str(path.parent) in str(caught.value)


def test_every_layout_is_tried_here():
    assert set(RECORDS) == set(SUMMARY_LAYOUTS)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.json", "a.json.gz"])
@pytest.mark.parametrize("layout", RECORDS)
def test_records_on_lines(tmp_path, layout, name):
    record, expected = RECORDS[layout]
    assert read(write_lines(tmp_path / name, record), layout) == expected


@pytest.mark.parametrize("layout", RECORDS)
def test_a_list_one_record_and_a_folder(tmp_path, layout):
    record, expected = RECORDS[layout]
    assert read(write(tmp_path / "list.json", json.dumps([record], indent=1)), layout) == expected
    assert read(write(tmp_path / "one.json", json.dumps(record, indent=1)), layout) == expected
    assert len(read(tmp_path, layout)) == 2 * len(expected)


@pytest.mark.parametrize("layout", RECORDS)
def test_every_key_that_is_read_is_missed(tmp_path, layout):
    record, expected = RECORDS[layout]
    good = write_lines(tmp_path / "good.jsonl", record)
    read_keys = 0
    for key in record:
        less = {name: value for name, value in record.items() if name != key}
        path = write_lines(tmp_path / "less.jsonl", record, less)
        try:
            # Ids may be missing: the number of the record stands in.
            assert {example.references for example in read(path, layout)} == {e.references for e in expected}
        except UsageError as error:
            assert f"less.jsonl: line 2: expected a key '{key}', got only" in str(error)
            read_keys += 1
    assert read_keys >= 2
    assert read(good, layout) == expected


def test_our_own_lines_hold_several_documents_summaries_and_a_query(tmp_path):
    record = {"id": 3, "documents": ["One.", "Two."], "summary": ["A.", "B."], "query": "Why?"}
    (example,) = read(write_lines(tmp_path / "a.jsonl", record), "jsonl")
    assert example == SummaryExample("3", ("One.", "Two."), ("A.", "B."), "Why?")
    assert example.summary == "A."


def test_ids_count_on_over_the_files_of_a_folder(tmp_path):
    write_lines(tmp_path / "a.jsonl", PLAIN, PLAIN)
    write_lines(tmp_path / "b.jsonl.gz", PLAIN)
    write(tmp_path / "README.md", "not read")
    assert [example.id for example in read(tmp_path, "jsonl")] == ["1", "2", "3"]


def test_blank_lines_between_records_count_as_lines(tmp_path):
    path = write(tmp_path / "a.jsonl", f"{json.dumps(PLAIN)}\n\n{{\n")
    fails(path, "jsonl", "line 3: expected one JSON record, got other text")


def test_a_byte_order_mark_and_windows_line_ends_are_no_text(tmp_path):
    lines = "".join(json.dumps({**PLAIN, "id": str(number)}) + "\r\n" for number in range(2))
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + lines.encode())
    assert [example.id for example in read(tmp_path / "a.jsonl", "jsonl")] == ["0", "1"]


def test_records_are_read_one_at_a_time(tmp_path):
    path = write(tmp_path / "a.jsonl", f"{json.dumps(PLAIN)}\nnot JSON\n")
    assert next(read_summaries(path, layout="jsonl")).summary == "Short."


def test_bad_records_are_told_and_left_out(tmp_path):
    two = {**QMSUM, "specific_query_list": [{"query": "Who?", "answer": " "}]}
    path = write_lines(tmp_path / "a.jsonl", two, QMSUM)
    told = []
    examples = list(read_summaries(path, layout="qmsum", on_bad=told.append))
    # The general query of the bad record is left out with the specific one.
    assert [example.id for example in examples] == ["2-general-0", "2-specific-0"]
    assert [str(error) for error in told] == [
        f"{path}: line 1, specific query 0: expected text in the answer, got none; fill it or remove the record."
    ]


@pytest.mark.parametrize("names", [("t.src", "t.tgt"), ("t.src.cleaned", "t.tgt"), ("t.src.cleaned.gz", "t.tgt.gz")])
def test_multi_news_as_parallel_files(tmp_path, names):
    source = write(tmp_path / names[0], "One. ||||| Two.\nThree. NEWLINE_CHAR Four.\n")
    write(tmp_path / names[1], "– Both.\n– One.\n")
    assert read(source, "multi-news") == [
        SummaryExample("1", ("One.", "Two."), ("Both.",)),
        SummaryExample("2", ("Three. \n Four.",), ("One.",)),
    ]


def test_parallel_files_that_do_not_fit_are_refused(tmp_path):
    source = write(tmp_path / "t.src", "One.\nTwo.\n")
    fails(source, "multi-news", r"expected its summaries beside it, got no t\.tgt or t\.tgt; put the file there")
    write(tmp_path / "t.tgt", "– A.\n")
    fails(source, "multi-news", r"line 2: .* summaries in t\.tgt, got sources without summaries; fetch both files")
    write(tmp_path / "t.tgt", "– A.\n– B.\n– C.\n")
    fails(source, "multi-news", r"line 3: .* got summaries without sources; fetch both files again")


@pytest.mark.parametrize(
    ("layout", "record", "document", "summary"),
    [
        (
            "arxiv",
            {"article": "we study .\n it is .\n", "abstract": " short .\n end .", "section_names": "introduction"},
            ("we study .\nit is .",),
            "short .\nend .",
        ),
        ("pubmed", {"article": "we study .", "abstract": "<S> short . </S>"}, ("we study .",), "short ."),
        ("govreport", {"report": "Background\nOne.", "summary": "Found."}, ("Background\nOne.",), "Found."),
        ("wcep", {"document": ["One.", " ", "Two."], "summary": "It rained."}, ("One.", "Two."), "It rained."),
        (
            "wcep-10",
            {"document": [f"Text {n}." for n in range(12)], "summary": "It rained."},
            tuple(f"Text {n}." for n in range(10)),
            "It rained.",
        ),
        ("multi-news", {"document": "One.\nMore. ||||| Two.", "summary": "– Both."}, ("One.\nMore.", "Two."), "Both."),
    ],
)
def test_copies_on_hubs_hold_texts(tmp_path, layout, record, document, summary):
    path = write_lines(tmp_path / "train.jsonl", record)
    assert read(path, layout) == [SummaryExample("1", document, (summary,))]
    for key in record.keys() & {"document", "summary", "abstract", "report"}:
        fails(write_lines(tmp_path / "bad.jsonl", {**record, key: 3}), layout, f"line 1: expected '{key}' to be")


def test_govreport_reads_what_a_list_of_ids_names(tmp_path):
    for folder in ("split_ids", "gao", "crs"):
        (tmp_path / folder).mkdir()
    write(tmp_path / "gao" / "GAO-1.json", json.dumps(GAO))
    write(tmp_path / "crs" / "R1.json", json.dumps(CRS))
    (gao,) = read(write(tmp_path / "split_ids" / "gao_test.ids", "GAO-1\n"), "govreport")
    (crs,) = read(write(tmp_path / "split_ids" / "crs_test.ids", "R1\n"), "govreport")
    assert (gao.id, crs.id, crs.documents, crs.summary) == ("GAO-1", "R1", gao.documents, "First.\nSecond.")
    with pytest.raises(UsageError, match=r"crs.R2\.json: expected a file, got nothing at this path"):
        read(write(tmp_path / "split_ids" / "crs_x.ids", "R2\n"), "govreport")


def test_sections_without_end_are_refused(tmp_path):
    section = {"section_title": "", "paragraphs": ["End."]}
    for _ in range(101):
        section = {"section_title": "", "paragraphs": [], "subsections": [section]}
    path = write_lines(tmp_path / "a.jsonl", {**GAO, "report": [section]})
    fails(path, "govreport", "line 1: expected at most 100 levels of sections, got more; correct the record")


@pytest.mark.parametrize(
    ("layout", "record", "pattern"),
    [
        ("jsonl", [PLAIN], "line 1: expected an object with 'document', got list"),
        ("jsonl", {**PLAIN, "document": ""}, "line 1: expected text in the document, got none; fill it or remove"),
        ("jsonl", {**PLAIN, "summary": " \n"}, "line 1: expected text in the summary, got none; fill it or remove"),
        ("jsonl", {**PLAIN, "summary": []}, "line 1: expected at least one summary, got none; add one or remove"),
        ("jsonl", {**PLAIN, "summary": 3}, "line 1: expected 'summary' to be a string, got int"),
        ("jsonl", {**PLAIN, "summary": None}, "line 1: expected 'summary' to be a string, got NoneType"),
        ("jsonl", {**PLAIN, "query": ""}, "line 1: expected text in the query, got none"),
        ("jsonl", {**PLAIN, "documents": ["A."]}, "line 1: expected 'document' or 'documents', got both; remove one"),
        ("jsonl", {"documents": ["A.", ""], "summary": "B."}, "line 1: expected text in the document 2, got none"),
        (
            "jsonl",
            {"documents": ["A.", 3], "summary": "B."},
            "'documents' to hold strings, got int at place 1",
        ),
        ("jsonl", {**PLAIN, "id": True}, "line 1: expected 'id' to be a name or a number, got True; correct it"),
        ("squality", {**SQUALITY, "document": " "}, "expected text in the document, got none"),
        ("squality", {**SQUALITY, "questions": [{}]}, "line 1: expected a key 'question_number'"),
        ("qmsum", {**QMSUM, "meeting_transcripts": [{}]}, "line 1, turn 0: expected a key 'speaker'"),
        ("qmsum", {**QMSUM, "meeting_transcripts": []}, "expected text in the transcript, got none"),
        ("multi-news", {**MULTI_NEWS, "document": " ||||| "}, "expected at least one document, got none; add one"),
        ("arxiv", {**SCIENTIFIC, "article_text": []}, "expected text in the article_text, got none"),
        ("arxiv", {**SCIENTIFIC, "abstract_text": ["<S> </S>"]}, "expected text in the abstract_text, got none"),
        ("wcep", {**WCEP, "articles": [{"text": ""}]}, "expected at least one article, got none"),
        ("wcep", {**WCEP, "articles": [{}]}, "line 1, article 0: expected a key 'text'"),
        ("govreport", {**GAO, "report": []}, "expected text in the report, got none"),
        ("govreport", {**GAO, "report": [{}]}, "expected a key 'section_title'"),
        ("govreport", {**GAO, "highlight": []}, "expected text in the summary, got none"),
    ],
)
def test_bad_records_are_refused_with_their_line(tmp_path, layout, record, pattern):
    fails(write_lines(tmp_path / "a.jsonl", record), layout, pattern)


def test_half_a_surrogate_pair_is_refused(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"document": "a\\ud800", "summary": "b"}')
    fails(path, "jsonl", "line 1: expected 'document' in Unicode, got half of a surrogate pair at character 1; correct")
    path = write(tmp_path / "b.jsonl", '{"document": "a", "summary": ["b", "c\\ud800"]}')
    fails(path, "jsonl", "expected Unicode text in the summary 2, got half of a surrogate pair at character 1; correct")


def test_an_unknown_layout_is_refused_at_once(tmp_path):
    with pytest.raises(UsageError, match=r"expected a layout of summary data \(jsonl, squality, .*\), got 'qmsumm'"):
        read_summaries(tmp_path, layout="qmsumm")
    with pytest.raises(UsageError, match=r"got 'zzz'; name one of them\.$"):
        read_summaries(tmp_path, layout="zzz")
    with pytest.raises(UsageError, match=r"got 'qmsumm'; did you mean 'qmsum'\?$"):
        read_summaries(tmp_path, layout="qmsumm")


def test_files_that_are_not_there_are_named(tmp_path):
    fails(tmp_path / "no.json", "jsonl", r"no\.json: expected a file, got nothing at this path")
    folder = tmp_path / "empty"
    folder.mkdir()
    fails(folder, "jsonl", r"expected files that end in \.jsonl, .*, got none; pass another folder")
    fails(write(tmp_path / "a.json", "{"), "jsonl", r"a\.json: expected JSON, got other text .*; pass JSON lines")
    fails(write(tmp_path / "b.json", ""), "jsonl", r"b\.json: expected JSON, got other text")


@pytest.mark.parametrize(
    ("name", "layout", "counts"),
    [
        ("squality_v1-3/dev.jsonl.gz", "squality", (25, 125, 500)),
        ("qmsum/ALL_val.jsonl.gz", "qmsum", (35, 272, 272)),
    ],
)
def test_the_published_files(shared_data, name, layout, counts):
    path = shared_data / "longdoc" / name
    if not path.exists():
        pytest.skip(f"needs the data of {layout} under longdoc")
    examples = read(path, layout)
    documents = {id(example.documents[0]) for example in examples}
    references = [text for example in examples for text in example.references]
    assert (len(documents), len(examples), len(references)) == counts
    assert len({example.id for example in examples}) == len(examples)
    assert all(example.query for example in islice(examples, 20))
