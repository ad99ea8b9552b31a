"""Articles out of WikiText, MediaWiki dumps and SQuAD files; and what each says of a file it cannot read."""

import bz2
import gzip
import html
import json

import pytest

from narrows.data import Article, read_articles
from narrows.data.articles import plain_wikitext
from narrows.errors import UsageError

WIKITEXT = """
 = Old Mill =

 The mill @-@ pond holds 7 @,@ 500 litres , 3 @.@ 5 metres deep . It is a well @-@ known @-@ place .

 = = History = =

 = = = Fire = = =

 It burnt in 1901 .
 = Mill Pond ( film ) =
 A film .
 = Empty =
"""

MARKUP = """{{Infobox mill|name=Old {{lang|en|Mill}}|built={{start date|1844}}}}
[[File:Mill.jpg|thumb|The [[mill]] in winter]]'''Old Mill''' is a [[water mill|mill]] on the [[Vistula]].<ref>A {{cite}}
note.</ref> It is &quot;old&quot;<ref name="a/b" /> and large.<ref name=c/>
<!-- not
shown -->
== History ==
* a list
# another
: indented
{| class="wikitext"
|-
| cell {{x}}
|}
It burnt&nbsp;down in ''1901''; see [http://mill.example/a the notes] and [https://mill.example] today.<br />The end.

[[Category:Mills]]
[[de:Mühle]]
"""

PROSE = (
    'Old Mill is a mill on the Vistula. It is "old" and large.',
    "It burnt down in 1901; see the notes and today.The end.",
)


def page(title, text):
    body = '<text bytes="0" />' if text is None else f'<text xml:space="preserve">{html.escape(text)}</text>'
    return f"<page>\n<title>{html.escape(title)}</title>\n<ns>0</ns>\n<revision><id>1</id>{body}</revision>\n</page>\n"


def dump(*pages):
    return "<mediawiki>\n" + "".join(page(title, text) for title, text in pages) + "</mediawiki>\n"


def write(path, text):
    data = text.encode()
    packed = {".gz": gzip.compress, ".bz2": bz2.compress}.get(path.suffix, bytes)(data)
    path.write_bytes(packed)
    return path


def fails(path, pattern, **options):
    with pytest.raises(UsageError, match=pattern) as caught:
        list(read_articles(path, **options))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("name", ["wiki.txt", "wiki.txt.gz", "wiki.txt.bz2"])
@pytest.mark.parametrize("line_end", ["\n", " \n", " \r\n"])
def test_wikitext(tmp_path, name, line_end):
    path = write(tmp_path / name, WIKITEXT.replace("\n", line_end))
    assert list(read_articles(path)) == [
        Article(
            "Old Mill",
            (
                "The mill-pond holds 7,500 litres , 3.5 metres deep . It is a well-known-place .",
                "It burnt in 1901 .",
            ),
        ),
        Article("Mill Pond ( film )", ("A film .",)),
    ]


def test_paragraphs_before_the_first_title_are_of_an_article_without_one(tmp_path):
    assert list(read_articles(write(tmp_path / "a.txt", "One.\n\nTwo.\n"))) == [Article("", ("One.", "Two."))]
    assert list(read_articles(write(tmp_path / "b.txt", ""))) == []
    assert list(read_articles(write(tmp_path / "c.txt.gz", ""))) == []


@pytest.mark.parametrize("name", ["wiki.xml", "wiki.xml.bz2", "wiki.xml.gz"])
def test_a_dump_without_its_markup(tmp_path, name):
    pages = dump(("Old Mill", MARKUP), ("Mill & Pond", "A <b>pond</b>."), ("Moved", "#REDIRECT [[Old Mill]]"))
    assert list(read_articles(write(tmp_path / name, pages))) == [
        Article("Old Mill", PROSE),
        Article("Mill & Pond", ("A pond.",)),
    ]


def test_a_page_without_text_takes_none_of_the_next(tmp_path):
    path = write(tmp_path / "wiki.xml", dump(("Empty", None), ("Pond", "Water.")))
    assert list(read_articles(path)) == [Article("Pond", ("Water.",))]


@pytest.mark.parametrize(
    ("markup", "prose"),
    [
        ("", ""),
        ("Plain.", "Plain."),
        ("A {{a|{{b|{{c}}}}}} B", "A B"),
        ("A{| x\n|{| y\n| z\n|}\n|}B", "AB"),
        ("[[a|b]] [[c]] [[d (e)|]]", "b c"),
        ("[[File:x.png|[[a]] b [[c|d]]]]text", "text"),
        ("One[http://a.b] and [http://c.d two] three", "One and two three"),
        ("A<ref name='x/y'/> B<ref>C</ref> D<ref name=z>E</ref>", "A B D"),
        ("'''Bold''' and ''slanted'' and 'quoted'", "Bold and slanted and 'quoted'"),
        ("1 &amp; 2&nbsp;&ndash; 3", "1 & 2 – 3"),
        ("At the <10 ppm level.\n\nThe <i>end</i><br /> of 3 &lt; 4.", "At the <10 ppm level.\nThe end of 3 < 4."),
        ("an unclosed {{template and [[link", "an unclosed {{template and [[link"),
        ("渡し船 🙂\n\n== 歴史 ==\nThe  café", "渡し船 🙂\nThe café"),
    ],
)
def test_plain_wikitext(markup, prose):
    assert plain_wikitext(markup) == prose


def squad(path):
    answers = [{"text": "One", "answer_start": 0}]

    def paragraph(context, *names):
        qas = [{"id": name, "question": "Which?", "answers": answers} for name in names]
        return {"context": context, "qas": qas}

    data = [
        {"title": "Old_Mill", "paragraphs": [paragraph("One a.", "1", "2"), paragraph("One b.", "3")]},
        {"title": "Pond", "paragraphs": [paragraph("One c.", "4")]},
        {"title": "Old Mill", "paragraphs": [paragraph("One a.", "5"), paragraph("One d.", "6")]},
    ]
    return write(path, json.dumps({"data": data}))


@pytest.mark.parametrize("name", ["squad.json", "squad.json.gz"])
def test_each_context_of_squad_once(tmp_path, name):
    assert list(read_articles(squad(tmp_path / name))) == [
        Article("Old Mill", ("One a.", "One b.", "One d.")),
        Article("Pond", ("One c.",)),
    ]


@pytest.mark.parametrize("wanted", ["Old_Mill", "Old  Mill"])
def test_only_the_titles_asked_for(tmp_path, wanted):
    files = [
        write(tmp_path / "a.txt", WIKITEXT),
        write(tmp_path / "b.xml", dump(("Pond", "Water."), ("Old Mill", "Stone."))),
        squad(tmp_path / "c.json"),
    ]
    for path in files:
        assert [article.title for article in read_articles(path, titles=[wanted, "No such title"])] == ["Old Mill"]
        assert list(read_articles(path, titles=[])) == []


@pytest.mark.parametrize("name", ["wiki.html", "wiki", "wiki.gz", "wiki.txt.zip"])
def test_another_kind_of_name_is_refused(tmp_path, name):
    path = write(tmp_path / name, "x")
    fails(path, r"^expected articles in a \.txt, \.xml or \.json file \(or \.gz, \.bz2 of it\), got .*; rename it\.$")


@pytest.mark.parametrize("name", ["wiki.txt", "wiki.xml.bz2", "wiki.json"])
def test_a_missing_file_is_named(tmp_path, name):
    fails(tmp_path / name, "expected a file, got nothing at this path; check the path.$")


def _damaged(data: bytes) -> bytes:
    return data[:12] + bytes(byte ^ 0xFF for byte in data[12:20]) + data[20:]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "café".encode("latin-1")),
        ("b.txt.gz", b"not gzip"),
        ("c.txt.gz", gzip.compress(WIKITEXT.encode())[:-9]),
        ("d.txt.gz", _damaged(gzip.compress(WIKITEXT.encode()))),
        ("e.txt.gz", gzip.compress("café".encode("latin-1"))),
        ("f.xml.bz2", b"not bzip2"),
        ("g.xml.bz2", bz2.compress(WIKITEXT.encode())[:-9]),
        ("h.xml.bz2", _damaged(bz2.compress(WIKITEXT.encode()))),
    ],
    # gzip writes the time into its bytes: as an id it would differ between the processes that collect.
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    fails(tmp_path / name, "expected UTF-8 text, plain or packed as its name says, got .+")


def test_a_folder_and_a_broken_squad_file_are_refused(tmp_path):
    (tmp_path / "folder.txt").mkdir()
    fails(tmp_path / "folder.txt", "expected UTF-8 text, plain or packed as its name says, got .*Is a directory")
    fails(write(tmp_path / "a.json", "{"), "expected JSON, got other text")
    fails(write(tmp_path / "b.json.bz2", "{}"), "expected UTF-8 text, plain or gzip as its name says, got .+")
