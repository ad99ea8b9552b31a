import gzip
import json

import pytest

from narrows.data.files import field, lines, load_json, parse_json
from narrows.errors import UsageError


@pytest.mark.parametrize(
    ("record", "kind", "pattern"),
    [
        ([], str, "^a: line 1: expected an object with 'k', got list; correct the place, or pass a file in the layout"),
        ({"z": 1, "b": 2}, str, r"expected a key 'k', got only \['b', 'z'\]; correct the place"),
        ({"k": 3}, str, "expected 'k' to be a string, got int; correct the place"),
        ({"k": "a\ud800"}, str, "expected 'k' in Unicode, got half of a surrogate pair at character 1; correct the"),
        ({"k": True}, int, "expected 'k' to be an integer, got bool; correct the place"),
    ],
)
def test_a_field_of_another_kind_is_refused(record, kind, pattern):
    with pytest.raises(UsageError, match=pattern):
        field(record, "k", kind, "a: line 1")


@pytest.mark.parametrize("name", ["a.json", "a.json.gz"])
def test_files_are_read_plain_and_packed(tmp_path, name):
    path = tmp_path / name
    data = json.dumps({"text": "é"}, ensure_ascii=False).encode() + b"\n"
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert load_json(path, "JSON") == {"text": "é"}
    assert [parse_json(line, "") for line in lines(path)] == [{"text": "é"}]


def test_what_is_no_json_is_refused(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("{", encoding="utf-8")
    with pytest.raises(UsageError, match=r"a\.json: expected JSON, got other text \(.*\); pass a record\.$"):
        load_json(path, "a record")
    with pytest.raises(UsageError, match=r"^line 1: expected one JSON record, got other text \(.*\); correct or"):
        parse_json("[" * 100_000, "line 1")


@pytest.mark.parametrize(
    ("text", "reason"),
    [("1" * 5000, "a number has too many digits"), ("[" * 100_000, "it is nested too deep")],
)
def test_json_that_python_will_not_make_is_refused(tmp_path, text, reason):
    path = tmp_path / "a.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=rf"a\.json: expected JSON, got other text \({reason}\); pass a record\.$"):
        load_json(path, "a record")
    with pytest.raises(UsageError, match=rf"^line 1: expected one JSON record, got other text \({reason}\); correct"):
        parse_json(text, "line 1")


@pytest.mark.parametrize("read", [lambda path: load_json(path, "a record"), lambda path: list(lines(path))])
def test_a_file_that_cannot_be_read_is_named(tmp_path, read):
    with pytest.raises(UsageError, match=r"no\.json: expected a file, got nothing at this path; check the path"):
        read(tmp_path / "no.json")
    with pytest.raises(UsageError, match="expected a readable file, got Is a directory; check the path"):
        read(tmp_path)
    packed = tmp_path / "cut.json.gz"
    packed.write_bytes(gzip.compress(b"{}" * 1000)[:-9])
    with pytest.raises(UsageError, match=r"cut\.json\.gz: expected UTF-8 text, plain or gzip as its name says, got "):
        read(packed)
