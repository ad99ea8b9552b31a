"""PDF: the text of small hand-written files, offsets in it, and each file that cannot be read as one sentence."""

import importlib.util
import io
import logging
import re
import sys

import pypdf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from narrows.documents import read_documents, split_passages
from narrows.documents.pdf import PAGE_BREAK, extract_pdf
from narrows.errors import DocumentError, MissingExtraError

CATALOG = b"<< /Type /Catalog /Pages 2 0 R >>"
FONT = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>"
# Of revision 6, whose password cannot even be tried without AES.
AES = b"<< /Filter /Standard /V 5 /R 6 /Length 256 /P -4 /U (%b) /O (%b) /UE (%b) /OE (%b) /Perms (%b) >>" % (
    b"u" * 48,
    b"o" * 48,
    b"u" * 32,
    b"o" * 32,
    b"p" * 16,
)


def make_pdf(*pages: str, title: str = "", trailer: bytes = b"") -> bytes:
    """A PDF written by hand: a page for each text, a line of the page for each of its lines."""
    objects = [CATALOG, b"", FONT, f"<< /Title ({title}) >>".encode()]
    kids = []
    for text in pages:
        lines = b"".join(b"(%b) Tj T* " % _escaped(line) for line in text.split("\n"))
        stream = b"BT /F1 12 Tf 14 TL 50 700 Td " + lines + b"ET"
        objects.append(b"<< /Length %d >>\nstream\n%b\nendstream" % (len(stream), stream))
        page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Resources << /Font << /F1 3 0 R >> >> "
        objects.append(page + b"/Contents %d 0 R >>" % len(objects))
        kids.append(b"%d 0 R" % len(objects))
    objects[1] = b"<< /Type /Pages /Kids [%b] /Count %d >>" % (b" ".join(kids), len(kids))
    out, places = b"%PDF-1.7\n", []
    for number, content in enumerate(objects, start=1):
        places.append(len(out))
        out += b"%d 0 obj\n%b\nendobj\n" % (number, content)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(objects) + 1
    return out + b"trailer << /Size %d /Root 1 0 R /Info 4 0 R %b>>\nstartxref\n%d\n%%%%EOF\n" % (size, trailer, start)


def _escaped(line: str) -> bytes:
    return line.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)").encode("cp1252")


def encrypted(password: str, owner: str | None = None) -> bytes:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(make_pdf("A secret mill.")))
    writer.encrypt(password, owner, algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def blank() -> bytes:
    writer = pypdf.PdfWriter()
    writer.add_blank_page(600, 800)
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def test_pages_lines_and_title() -> None:
    data = make_pdf("The mill (old)\nwas built – café.", "Two birds.", title="On mills")
    text, title = extract_pdf(data, "a.pdf")
    assert text == "The mill (old)\nwas built – café." + PAGE_BREAK + "Two birds."
    assert title == "On mills"
    assert extract_pdf(data, "a.pdf") == (text, title)


def test_a_pdf_among_other_documents(tmp_path) -> None:
    (tmp_path / "a.txt").write_text("a text")
    (tmp_path / "b.PDF").write_bytes(make_pdf("The mill."))
    (tmp_path / "c.pdf").write_bytes(make_pdf("The boat.", title="Boats"))
    documents = list(read_documents(tmp_path, lambda name, error: pytest.fail(f"{name}: {error}")))
    found = [(document.id, document.title, document.text) for document in documents]
    assert found == [("a.txt", "a", "a text"), ("b.PDF", "b", "The mill."), ("c.pdf", "Boats", "The boat.")]


def test_passages_are_slices_of_the_text(tmp_path) -> None:
    sentence = "The old mill near the river was built by the king."
    pages = ["\n".join(f"{sentence} It was number {page}-{line}." for line in range(30)) for page in range(4)]
    (tmp_path / "a.pdf").write_bytes(make_pdf(*pages))
    [document] = read_documents(tmp_path, lambda name, error: pytest.fail(f"{name}: {error}"))
    [again] = read_documents(tmp_path, lambda name, error: pytest.fail(f"{name}: {error}"))
    assert document == again and document.text == PAGE_BREAK.join(pages)
    words = [match.span() for match in re.finditer(r"\S+", document.text)]
    passages = split_passages(document.text, token_offsets=words, max_tokens=100, overlap_tokens=0)
    assert len(passages) > 4
    shown = [document.text[passage.start : passage.end] for passage in passages]
    assert " ".join(shown).split() == document.text.split()
    assert all(text.startswith("The old mill") for text in shown)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(st.sampled_from("abc XYZ.,()\\äß€"), max_size=30), min_size=1, max_size=4))
def test_no_visible_character_is_lost(pages) -> None:
    words = "".join("".join(pages).split())
    if not words:
        with pytest.raises(DocumentError, match="its pages hold none"):
            extract_pdf(make_pdf(*pages), "a.pdf")
    else:
        assert "".join(extract_pdf(make_pdf(*pages), "a.pdf")[0].split()) == words


def test_characters_that_no_text_holds_are_replaced(tmp_path) -> None:
    # A font whose codes a, b, c mean NUL, a half of a surrogate pair, and a whole pair.
    cmap = b"1 begincodespacerange <00> <ff> endcodespacerange 3 beginbfchar <61> <0000> <62> <d83d> "
    cmap += b"<63> <d83dde00> endbfchar"
    stream = b"<< /Length %d >>\nstream\n%b\nendstream" % (len(cmap), cmap)
    data = make_pdf("xabcx").replace(FONT, FONT.replace(b">>", b"/ToUnicode 7 0 R >>"))
    data = data.replace(b"xref\n0", b"7 0 obj\n" + stream + b"\nendobj\nxref\n0", 1)
    (tmp_path / "a.pdf").write_bytes(data)
    [document] = read_documents(tmp_path, lambda name, error: pytest.fail(f"{name}: {error}"))
    assert document.text.encode() and "\0" not in document.text
    assert document.text == "x\ufffd\ufffd😀x"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            encrypted("secret"),
            "expected a PDF that opens without a password, but a.pdf is encrypted; save a copy without a password or",
        ),
        (blank(), r"expected text in a.pdf, but its pages hold none, as in a scan; recognise the text first \(OCR, "),
        (make_pdf(), "expected text in a.pdf, but its pages hold none"),
        (b"no PDF at all", r"expected a whole PDF in a.pdf, but it is damaged \(.+\); save it anew or leave it out"),
        (b"", "expected a whole PDF in a.pdf, but it is damaged"),
        (make_pdf("The mill.")[:200], "expected a whole PDF in a.pdf, but it is damaged"),
        (
            make_pdf("The mill.", "The boat.").replace(b"[6 0 R 8 0 R]", b"[6 0 R 9 0 R]"),
            r"expected a whole PDF in a.pdf, but it is damaged \(1 of its 2 pages can be found\); save it",
        ),
    ],
)
def test_what_cannot_be_read_is_one_sentence(data, message, tmp_path) -> None:
    with pytest.raises(DocumentError, match=message) as caught:
        extract_pdf(data, "a.pdf")
    assert "\n" not in str(caught.value)
    (tmp_path / "a.pdf").write_bytes(data)
    (tmp_path / "b.txt").write_text("good")
    problems = []
    documents = list(read_documents(tmp_path, lambda name, error: problems.append((name, str(error)))))
    assert [document.id for document in documents] == ["b.txt"]
    assert problems == [("a.pdf", str(caught.value))]


def test_encrypted_for_changes_only_is_read() -> None:
    assert extract_pdf(encrypted("", owner="secret"), "a.pdf")[0] == "A secret mill."


@pytest.mark.skipif(importlib.util.find_spec("cryptography") is not None, reason="cryptography brings AES")
def test_encrypted_with_aes_names_the_package() -> None:
    data = make_pdf("The mill.", trailer=b"/Encrypt " + AES + b" ")
    with pytest.raises(DocumentError, match="reads by itself, but for a.pdf cryptography.* is required .*; install th"):
        extract_pdf(data, "a.pdf")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 600), st.binary(min_size=1, max_size=8))
def test_damage_is_an_error_or_a_text(place, junk) -> None:
    data = make_pdf("The mill.", "The boat.")
    try:
        text, _ = extract_pdf(data[:place] + junk + data[place + len(junk) :], "a.pdf")
        assert text.strip() and text.encode()
    except DocumentError as error:
        assert str(error).startswith("expected ")


def test_without_pypdf_the_extra_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pypdf", None)
    message = r"`pypdf` is needed to read a.pdf, but it is not installed; .*'narrows\[pdf\]'"
    with pytest.raises(MissingExtraError, match=message):
        extract_pdf(make_pdf("The mill."), "a.pdf")
    (tmp_path / "a.pdf").write_bytes(make_pdf("The mill."))
    (tmp_path / "b.txt").write_text("good")
    problems = []
    documents = list(read_documents(tmp_path, lambda name, error: problems.append((name, error))))
    assert [document.id for document in documents] == ["b.txt"]
    [(name, error)] = problems
    assert name == "a.pdf" and isinstance(error, DocumentError) and "narrows[pdf]" in str(error)


def test_the_parser_is_quiet_unless_asked(capfd, caplog) -> None:
    data = make_pdf("The mill.").replace(b"startxref\n", b"startxref\n1")
    with caplog.at_level(logging.WARNING, logger="pypdf"):
        assert extract_pdf(data, "a.pdf")[0] == "The mill."
    assert caplog.records
    assert capfd.readouterr().err == ""
