import hashlib
import json
import os
import tracemalloc

import pytest

from narrows.documents import SUFFIXES, UnsupportedEncoding, UnsupportedSuffix, read_documents, reading, scan
from narrows.errors import DocumentError

HARD = "Žluťoučký kůň\r\n\r\n東京は晴れ。😀👩‍👩‍👧 café\r\nende\n"


def read(path):
    problems = []
    documents = list(read_documents(path, lambda name, error: problems.append((name, error))))
    return documents, problems


@pytest.mark.parametrize("slice_size", [1, 3, 1000])
def test_digest_does_not_depend_on_how_the_text_is_sliced(tmp_path, monkeypatch, slice_size):
    monkeypatch.setattr(reading, "_HASHED_AT_ONCE", slice_size)
    (tmp_path / "a.txt").write_bytes(HARD.encode())
    [document], _ = read(tmp_path)
    assert document.sha256 == hashlib.sha256(("1\na" + HARD).encode()).hexdigest()


@pytest.mark.parametrize("suffix", [".txt", ".md", ".jsonl"])
def test_a_large_text_stands_in_memory_once(tmp_path, suffix):
    text = "the river " * 400_000
    content = json.dumps({"text": text}) + "\n" if suffix == ".jsonl" else text
    (tmp_path / f"a{suffix}").write_text(content)
    del content
    tracemalloc.start()
    try:
        documents = read_documents(tmp_path, lambda *_: None)
        document = next(documents)
        now, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert document.text == text
    # While it is read, the bytes of the file stand beside it, and of a record its line.
    assert now < 1.3 * len(text) and most < 3.3 * len(text)


def only_problem(folder, name, content):
    (folder / "good.txt").write_text("good")
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    documents, problems = read(folder)
    assert [document.id for document in documents] == ["good.txt"]
    [(problem_name, error)] = problems
    assert problem_name == name
    return error


def test_text_is_the_decoded_file_and_offsets_are_exact(tmp_path):
    (tmp_path / "a.txt").write_bytes(HARD.encode())
    [document], problems = read(tmp_path)
    assert problems == []
    assert document.text == HARD
    start = HARD.index("😀")
    assert document.text[start : start + 1] == "😀"
    assert (document.id, document.title) == ("a.txt", "a")
    assert document.sha256 == hashlib.sha256(("1\na" + HARD).encode()).hexdigest()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("suffix", [".txt", ".md"])
def test_byte_order_mark_is_dropped_and_nothing_else(tmp_path, encoding, suffix):
    (tmp_path / f"a{suffix}").write_bytes(HARD.encode(encoding))
    [document], _ = read(tmp_path)
    assert document.text == HARD


def test_big_endian_utf16_with_mark(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xfe\xff" + HARD.encode("utf-16-be"))
    [document], _ = read(tmp_path)
    assert document.text == HARD


def test_digest_depends_on_title_and_text(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"title":"ab","text":"c"}\n{"title":"a","text":"bc"}\n{"title":"x","text":"c"}')
    documents, _ = read(tmp_path)
    assert len({document.sha256 for document in documents}) == 3


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# Köln ##\r\ntext", "Köln"),
        ("# C#\ntext", "C#"),
        ("intro\n\n## second\n# First\n# Other", "First"),
        ("```\n# comment\n```\n# Real", "Real"),
        ("~~~\n```\n# no\n~~~\n# Yes", "Yes"),
        ("#hashtag\n# \n#", "note"),
        ("no heading", "note"),
    ],
)
def test_markdown_title(tmp_path, text, title):
    (tmp_path / "note.md").write_bytes(text.encode())
    [document], _ = read(tmp_path)
    assert (document.title, document.text) == (title, text)


def test_scan_is_sorted_recursive_and_skips_hidden(tmp_path):
    for name in ["b/z.md", "b/a.TXT", "a.htm", ".hidden.txt", ".git/x.txt", "c.jsonl", "photo.png"]:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    skipped = []
    sources = scan(tmp_path, on_problem=lambda name, error: skipped.append((name, error)))
    assert [source.id for source in sources] == ["a.htm", "b/a.TXT", "b/z.md", "c.jsonl"]
    assert sources[0].size == 1 and sources[0].mtime_ns == (tmp_path / "a.htm").stat().st_mtime_ns
    [(name, error)] = skipped
    assert name == "photo.png" and isinstance(error, UnsupportedSuffix)
    message = "expected a .txt, .md, .html, .jsonl or .pdf file, but photo.png has the suffix '.png'"
    assert str(error).startswith(message)
    assert scan(tmp_path) == sources


@pytest.mark.parametrize("suffix", sorted(SUFFIXES.keys() - {".pdf"}))
def test_one_file_is_read_on_its_own(tmp_path, suffix):
    path = tmp_path / f"only{suffix}"
    path.write_text('{"text": "x"}')
    documents, problems = read(path)
    assert problems == []
    assert [document.id.split("#")[0] for document in documents] == [path.name]


def test_missing_path(tmp_path):
    with pytest.raises(DocumentError, match="expected a folder or a file, but .*nowhere does not exist; check"):
        read_documents(tmp_path / "nowhere", print)


def test_single_file_of_unknown_suffix(tmp_path):
    (tmp_path / "a.docx").write_text("x")
    with pytest.raises(UnsupportedSuffix, match=r"expected a \.txt.* has the suffix '\.docx'; convert"):
        scan(tmp_path / "a.docx")
    (tmp_path / "LICENSE").write_text("x")
    with pytest.raises(UnsupportedSuffix, match="has the suffix 'none'"):
        scan(tmp_path / "LICENSE")


def test_neither_file_nor_folder(tmp_path):
    os.mkfifo(tmp_path / "p.txt")
    with pytest.raises(DocumentError, match="expected a folder or a file, but .* is neither; check the path"):
        scan(tmp_path / "p.txt")


def test_a_folder_of_which_nothing_may_be_read_says_where_to_look(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "loop.txt").symlink_to("loop.txt")
    (tmp_path / "folder" / "photo.png").write_text("x")
    with pytest.raises(DocumentError, match=r"holds none \(2 others skipped\); see why they were skipped$"):
        scan(tmp_path / "folder", on_problem=lambda name, error: None)


def test_folder_without_anything_to_read(tmp_path):
    with pytest.raises(DocumentError, match=r"expected a folder with .*pdf files, but .* holds none; name another"):
        scan(tmp_path)
    (tmp_path / "a.png").write_text("x")
    with pytest.raises(DocumentError, match=r"holds none \(1 other skipped\)"):
        scan(tmp_path)


def test_folder_in_which_every_file_fails(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xff")
    problems = []
    with pytest.raises(DocumentError, match="that can be read, but of the 1 in .* not one could be; correct"):
        list(read_documents(tmp_path, lambda *problem: problems.append(problem)))
    assert len(problems) == 1


def test_file_in_which_every_record_fails(tmp_path):
    (tmp_path / "r.jsonl").write_text('{"txt": "a"}\n{"txt": "b"}\n')
    problems = []
    with pytest.raises(DocumentError, match=r"expected text that can be read in .*r.jsonl, but nothing in it could be"):
        list(read_documents(tmp_path / "r.jsonl", lambda *problem: problems.append(problem)))
    assert len(problems) == 2


def test_pipes_and_links(tmp_path):
    (tmp_path / "good.txt").write_text("x")
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "dangling.txt").symlink_to("nowhere")
    (tmp_path / "loop.txt").symlink_to("loop.txt")
    (tmp_path / "circle").symlink_to(tmp_path)
    (tmp_path / "link.txt").symlink_to("good.txt")
    documents, problems = read(tmp_path)
    assert [document.id for document in documents] == ["good.txt", "link.txt"]
    messages = {name: str(error) for name, error in problems}
    assert "pipe.txt is a pipe, socket or device; leave it out" in messages["pipe.txt"]
    assert "circle is a link to a folder; name that folder" in messages["circle"]
    assert "dangling.txt could not be opened (No such file" in messages["dangling.txt"]
    assert "loop.txt could not be opened (Too many levels of symbolic links)" in messages["loop.txt"]
    with pytest.raises(DocumentError, match="link to a folder"):
        scan(tmp_path)


def test_file_name_that_is_not_utf8(tmp_path):
    (tmp_path / "good.txt").write_text("x")
    with open(os.fsencode(tmp_path) + b"/\xff.txt", "w") as file:
        file.write("x")
    _, [(_, error)] = read(tmp_path)
    assert "expected a file name in UTF-8, but got '\\udcff.txt'; rename" in str(error)


def test_file_that_vanishes_while_reading(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(name)
    problems = []
    documents = read_documents(tmp_path, lambda *problem: problems.append(problem))
    assert next(documents).text == "a"
    (tmp_path / "b.txt").unlink()
    assert list(documents) == []
    assert "expected a readable file or folder, but b.txt could not be opened" in str(problems[0][1])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path):
    (tmp_path / "good.txt").write_text("x")
    (tmp_path / "shut.txt").write_text("x")
    (tmp_path / "shut.txt").chmod(0)
    (tmp_path / "closed").mkdir(mode=0)
    _, problems = read(tmp_path)
    assert [name for name, _ in problems] == ["closed", "shut.txt"]
    assert all("could not be opened (Permission denied)" in str(error) for _, error in problems)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"ab\0c", "byte 2 is a NUL as in binary files; convert"),
        (b"\xef\xbb\xbfab\xe9", "expected UTF-8 text in d/bad.txt, but byte 5 is not UTF-8"),
        ("żle".encode("cp1250"), "byte 0 is not UTF-8"),
        ("x".encode("utf-32"), "byte 0 is not UTF-8"),
        ("x".encode("utf-16-le"), "byte 1 is a NUL"),
        (b"\xff\xfea\0b", "byte 4 is not UTF-16-LE"),
    ],
)
def test_encoding_errors_name_the_byte(tmp_path, content, message):
    error = only_problem(tmp_path, "d/bad.txt", content)
    assert isinstance(error, UnsupportedEncoding)
    assert message in str(error)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("e.txt", b""),
        ("e.md", b"\xef\xbb\xbf \r\n"),
        ("e.html", b"<p> <script>x</script>"),
        ("e.jsonl", b"\n \n"),
    ],
)
def test_empty_files(tmp_path, name, content):
    assert f"expected text in {name}, but it is empty; fill it" in str(only_problem(tmp_path, name, content))


def test_jsonl_records(tmp_path):
    (tmp_path / "d").mkdir()
    lines = [
        json.dumps({"id": "x/1", "title": " T ", "text": HARD}),
        "",
        json.dumps({"_id": 7, "contents": "zwei"}),
        json.dumps({"body": "drei", "id": None, "title": ""}, ensure_ascii=False),
    ]
    for encoding in ("utf-8-sig", "utf-16"):
        (tmp_path / "d" / "r.jsonl").write_bytes("\r\n".join(lines).encode(encoding))
        documents, problems = read(tmp_path)
        assert problems == []
        assert [(d.id, d.title, d.text) for d in documents] == [
            ("d/r.jsonl#x/1", "T", HARD),
            ("d/r.jsonl#7", "r", "zwei"),
            ("d/r.jsonl#4", "r", "drei"),
        ]


def test_records_of_summary_data(tmp_path):
    """`document` or `documents`, as `narrows train` and `narrows evaluate` read them."""
    lines = [
        json.dumps({"id": "a", "document": "eins", "summary": "1", "query": "?"}),
        json.dumps({"id": "b", "title": "T", "documents": ["zwei", "drei"], "summary": ["2"]}),
        json.dumps({"id": "a/1", "documents": ["vier"]}),
        json.dumps({"id": "b/2", "text": "vergeben"}),
    ]
    (tmp_path / "r.jsonl").write_text("\n".join(lines))
    documents, problems = read(tmp_path)
    assert [(d.id, d.title, d.text) for d in documents] == [
        ("r.jsonl#a", "r", "eins"),
        ("r.jsonl#b/1", "T", "zwei"),
        ("r.jsonl#b/2", "T", "drei"),
        ("r.jsonl#a/1/1", "r", "vier"),
    ]
    assert "but line 4 repeats 'b/2'; give it another id" in str(problems[0][1])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            b"{oops",
            "expected a JSON object on line 1 of r.jsonl, but it is not JSON (Expecting property name",
        ),
        (b"[" * 100_000, "is not JSON (it is nested too deep); correct"),
        (b"1" * 5000, "is not JSON (a number has too many digits); correct"),
        (b"[1]", "expected a JSON object on line 1 of r.jsonl, but got a list; correct or remove"),
        (
            b'{"txt": "a"}',
            "expected a field 'text', 'contents', 'body', 'document' or 'documents' on line 1 of r.jsonl, but got "
            "['txt']; give the field that holds the text one of these names, or add it",
        ),
        (b'{"documents": "a"}', "expected a list of texts in 'documents' on line 1 of r.jsonl, but got a str; correct"),
        (b'{"documents": []}', "expected a list of texts in 'documents' on line 1 of r.jsonl, but got an empty one"),
        (b'{"documents": ["a", 3]}', "expected a string in 'documents[1]' on line 1 of r.jsonl, but got a int"),
        (b'{"documents": ["a", " "]}', "expected text in 'documents[1]' on line 1 of r.jsonl, but it is empty"),
        (b'{"text": 3}', "expected a string in 'text' on line 1 of r.jsonl, but got a int"),
        (b'{"text": " "}', "expected text in 'text' on line 1 of r.jsonl, but it is empty"),
        (
            b'{"text": "\\ud800"}',
            "expected Unicode text in 'text' on line 1 of r.jsonl, but character 0 is half",
        ),
        (b'{"text": "a", "title": []}', "expected a string in 'title' on line 1 of r.jsonl, but got a list"),
        (
            b'{"text": "a", "id": true}',
            "expected a number or a name in 'id' on line 1 of r.jsonl, but got True",
        ),
        (b'{"text": "a\xff"}', "byte 11 is not UTF-8"),
    ],
)
def test_bad_records_do_not_stop_the_others(tmp_path, line, message):
    (tmp_path / "r.jsonl").write_bytes(line + b'\n{"text": "fine"}\n')
    documents, problems = read(tmp_path)
    assert [(document.id, document.text) for document in documents] == [("r.jsonl#2", "fine")]
    [(name, error)] = problems
    assert name == "r.jsonl" and message in str(error)


def test_byte_offsets_in_later_lines(tmp_path):
    first = '{"text": "ä"}\n'.encode()
    (tmp_path / "r.jsonl").write_bytes(first + b'{"text": "\xff"}')
    _, [(_, error)] = read(tmp_path)
    assert f"byte {len(first) + 10} is not UTF-8" in str(error)


def test_duplicate_ids_also_against_line_numbers(tmp_path):
    (tmp_path / "r.jsonl").write_text('{"id":2,"text":"a"}\n{"text":"b"}\n{"id":"2","text":"c"}\n')
    documents, problems = read(tmp_path)
    assert [document.text for document in documents] == ["a"]
    assert "expected every record id once in r.jsonl, but line 2 repeats '2'; give it" in str(problems[0][1])
    assert "line 3 repeats '2'" in str(problems[1][1])


def test_binary_jsonl_is_one_problem(tmp_path):
    error = only_problem(tmp_path, "r.jsonl", b"\x89PNG\n\0\n\0\n")
    assert "byte 5 is a NUL" in str(error)


def test_html_that_the_parser_refuses(tmp_path):
    error = only_problem(tmp_path, "r.html", b"&#" + b"9" * 5000 + b";")
    assert "expected HTML in r.html, but it has a character reference of too many digits; correct it" in str(error)


@pytest.mark.parametrize("suffix", [".txt", ".md", ".html"])
def test_five_megabytes_in_one_line(tmp_path, suffix):
    (tmp_path / f"long{suffix}").write_text("word é. " * 600_000)
    [document], _ = read(tmp_path)
    assert len(document.text) >= 8 * 600_000 - 1
