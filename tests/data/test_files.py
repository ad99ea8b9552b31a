import gzip
import json
import zipfile

import pytest

from narrows.data import read_articles, read_examples, read_labelled, read_pieces, read_summaries
from narrows.data.files import archived_texts, field, lines, load_json, parse_json
from narrows.errors import UsageError
from narrows.training.planted.data import read_texts
from narrows.training.planted.recipe import PlantedDataSection
from narrows.training.summaries.data import read_text_corpus
from narrows.training.summaries.recipe import DataPart


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


def _planted(path):
    section = PlantedDataSection(train_text=path.name, test_text=path.name, lengths=[64], test_lengths=[64])
    return read_texts(section, path.parent)


class _Untokenized:
    def tokenize(self, texts):
        return list(texts)


_READERS = {
    "lines": lambda path: list(lines(path)),
    "load_json": lambda path: load_json(path, "a record"),
    "pieces": lambda path: list(read_pieces(path, layout="text")),
    "corpus": lambda path: read_text_corpus([DataPart(format="text", file=path.name)], path.parent, _Untokenized()),
    "summaries": lambda path: list(read_summaries(path.rename(path.with_name("a.json.gz")), layout="jsonl")),
    "articles": lambda path: list(read_articles(path)),
    "examples": lambda path: read_examples(path, layout="jsonl"),
    "planted": _planted,
}


@pytest.mark.parametrize("read", _READERS.values(), ids=_READERS)
def test_a_damaged_gzip_is_one_sentence_whoever_reads_it(tmp_path, read):
    packed = bytearray(gzip.compress(b"some text\n" * 100))
    # Behind the header of ten bytes, a kind of block that there is not: zlib has an error of its own for it.
    packed[10] = 0b111
    (tmp_path / "a.txt.gz").write_bytes(packed)
    with pytest.raises(UsageError, match=r"a\.(txt|json)\.gz.*invalid block type"):
        read(tmp_path / "a.txt.gz")


def _change(path, place, value):
    """Changes a byte of the first file's header, in both places where an archive keeps it."""
    content = bytearray(path.read_bytes())
    for start in (content.index(b"PK\x03\x04") + place, content.index(b"PK\x01\x02") + place + 2):
        content[start] = value
    path.write_bytes(content)


@pytest.mark.parametrize(
    "read",
    [
        lambda path: list(archived_texts(path)),
        lambda path: read_examples(path, layout="folders"),
        read_labelled,
    ],
)
@pytest.mark.parametrize(("place", "value", "text"), [(6, 1, "is encrypted"), (8, 99, "is not supported")])
def test_an_archive_that_cannot_be_unpacked_is_one_sentence(tmp_path, read, place, value, text):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("reviews/good/1.txt", "fine")
        archive.writestr("reviews/bad/1.txt", "poor")
    assert [name for name, _ in archived_texts(path)] == ["reviews/bad/1.txt", "reviews/good/1.txt"]
    _change(path, place, value)
    with pytest.raises(UsageError, match=rf"a\.zip: expected a \.zip archive, got .*{text}.*; fetch it again\.$"):
        read(path)


def test_a_damaged_file_of_an_archive_is_one_sentence(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("good/1.txt", "fine " * 100)
    content = bytearray(path.read_bytes())
    content[30 + len("good/1.txt")] = 0b111
    path.write_bytes(content)
    with pytest.raises(UsageError, match="expected a .zip archive, got .*invalid block type; fetch it again"):
        list(archived_texts(path))
