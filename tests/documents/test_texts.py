"""Texts from files, folders and stdin with their ids, one at a time, and each mistake a sentence."""

import io
from pathlib import Path

import pytest

from narrows.documents.texts import Text, read_texts, require_inputs
from narrows.errors import DocumentError, UsageError


def _complain(name: str, error: Exception) -> None:
    raise AssertionError((name, error))


def _read(*names: object, stdin: bytes | None = None, on_problem=_complain, **fields: str) -> list[Text]:
    stream = None if stdin is None else io.BytesIO(stdin)
    return list(read_texts([str(name) for name in names], on_problem, stdin=stream, **fields))


@pytest.fixture
def library(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "library"
    (folder / "old").mkdir(parents=True)
    (folder / "river.txt").write_text("The boat.")
    (folder / "old" / "birds.md").write_text("# Birds\n\nTwo birds.\n")
    (folder / "list.jsonl").write_text(
        '{"id": 7, "text": "One."}\n\n{"contents": "Two."}\n{"_id": "x", "body": "Three."}\n'
    )
    return Path("library")


def test_files_and_folders_by_their_paths_and_records_by_their_ids(library) -> None:
    expected = [
        Text("library/old/birds.md", "# Birds\n\nTwo birds.\n"),
        Text("library/river.txt", "The boat."),
    ]
    records = [Text(7, "One."), Text("library/list.jsonl#3", "Two."), Text("x", "Three.")]
    assert _read(library) == [*records, *expected]
    assert _read(library / "river.txt", library / "list.jsonl") == [expected[1], *records]


def test_stdin_is_a_text_a_line_or_json_lines() -> None:
    assert _read("-", stdin="Änne.\r\n\n b \n".encode()) == [Text(1, "Änne."), Text(3, " b ")]
    assert _read("-", stdin="\ufeffa\nb".encode("utf-16-le")) == [Text(1, "a"), Text(2, "b")]
    lines = b'{"id": "a", "q": "One?", "p": "Yes."}\n{"q": "Two?", "p": "No."}\n'
    assert _read("-", stdin=lines, field="q") == [Text("a", "One?"), Text(2, "Two?")]
    assert _read("-", stdin=lines, field="q", pair_field="p") == [Text("a", "One?", "Yes."), Text(2, "Two?", "No.")]


def test_what_cannot_be_read_in_a_folder_is_told_and_passed_over(library) -> None:
    (library / "binary.txt").write_bytes(b"a\0b")
    problems = []
    found = _read(library, on_problem=lambda name, error: problems.append((name, str(error))))
    assert len(found) == 5
    assert [name for name, _ in problems] == ["library/binary.txt"]
    assert "byte 1 is a NUL as in binary files; convert the file to UTF-8 text" in problems[0][1]
    with pytest.raises(DocumentError, match="expected text in binary.txt, but byte 1 is a NUL as in binary files"):
        _read(library / "binary.txt")


def test_records_that_cannot_be_read_end_it(library) -> None:
    path = library / "bad.jsonl"
    for content, fields, said in [
        ("{}\n", {}, r"expected a field 'text' on line 1 of library/bad\.jsonl, but got \[\]; name the field that"),
        ('{"a": "b"}', {"field": "c"}, r"expected a field 'c' on line 1 of library/bad\.jsonl, but got \['a'\]; name"),
        ('{"text": " "}', {}, "expected text in 'text' on line 1 of library/bad.jsonl, but it is empty; fill it or"),
        ('{"text": 3}', {}, "expected a string in 'text' on line 1 of library/bad.jsonl, but got a int; correct or"),
        ("[1]", {}, "expected a JSON object on line 1 of library/bad.jsonl, but got a list; correct or remove"),
        ("{", {}, r"expected a JSON object on line 1 of library/bad\.jsonl, but it is not JSON \(.*\); correct"),
        ("\n \n", {}, r"expected text in library/bad\.jsonl, but there is none; name other inputs"),
        ("a\0b", {}, r"expected text in library/bad\.jsonl, but byte 1 is a NUL as in binary files; convert"),
    ]:
        path.write_text(content)
        with pytest.raises(DocumentError, match=said):
            _read(path, **fields)
    with pytest.raises(DocumentError, match="expected text in stdin, but there is none; name other inputs"):
        _read("-", stdin=b"\n")
    with pytest.raises(UsageError, match="expected something on stdin, got no stream; pass one"):
        _read("-")


def test_inputs_that_cannot_be(library) -> None:
    require_inputs([str(library), "-"])
    require_inputs([str(library / "list.jsonl"), "-"], field="a", pair_field="b")
    for names, fields, said in [
        (["-", "-"], {}, "expected - for stdin once, got it several times; name it once"),
        (["-"], {"pair_field": "b"}, "expected --field beside --field-pair, got none; name the field of the first"),
        (["-"], {"field": "b", "pair_field": "b"}, "expected two fields for a pair, got 'b' twice; name another for"),
        ([str(library)], {"field": "b"}, r"expected JSON Lines \(.jsonl\) where a field is named, got library/old/b"),
        (["nowhere"], {}, "expected a folder or a file, but nowhere does not exist; check the path"),
        (["pyproject.png"], {}, "expected a folder or a file, but pyproject.png does not exist"),
    ]:
        with pytest.raises(UsageError, match=said):
            require_inputs(names, **fields)
