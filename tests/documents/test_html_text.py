import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrows.documents.html_text import extract_html


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<p>Hello <b>wor</b>ld</p><p>two", "Hello world\n\ntwo"),
        ("a <i> b </i> c", "a b c"),
        ("a\r\n  b<br>c<br/>d", "a b\nc\nd"),
        ("caf&eacute; &amp; &lt;b&gt; &#x1F600; &#26481;", "café & <b> 😀 東"),
        ("<div><div><div>in</div></div></div>out", "in\n\nout"),
        (
            "<script>var a='<p>';</script>x<style>p{}</style><template>t<template>u</template></template>y",
            "xy",
        ),
        ("<nav>menu</nav><p>x", "menu\n\nx"),
        ("<table><tr><th>a<th>b<tr><td><p>1</p></td><td><p>2</p></td></table>z", "a | b\n1 | 2\n\nz"),
        ("<table><tr><td>a</td><td></td><td>c</td></tr><tr><td></td><td>x</td></tr></table>", "a | | c\n| x"),
        ("<ul><li>one<li>two</ul>", "one\n\ntwo"),
        ("<p>x</p><pre>\nif a:\r\n    b  c\n</pre>", "x\n\nif a:\n    b  c"),
        ("<p>open <b>bold <p>next </i></div> end <", "open bold\n\nnext\n\nend <"),
        ("a<![foo[ b ]]>c<![if !IE]>d<!-- e -->f", "acdf"),
        ("x<script>never closed <p>y", "x"),
        ("</template></script>x", "x"),
        ("", ""),
    ],
)
def test_visible_text(markup, text):
    assert extract_html(markup) == (text, "")


def test_title_is_taken_out_and_only_the_first_counts():
    markup = "<html><head><title> A &amp;\n B </title></head><body><svg><title>icon</title></svg>x</body>"
    assert extract_html(markup) == ("x", "A & B")


def test_nested_tables_stay_readable():
    markup = "<table><tr><td>a</td><td><table><tr><td>b</td><td>c</td></tr></table></td></tr></table>"
    assert extract_html(markup)[0].replace("\n", " ").split() == ["a", "b", "|", "c"]


@given(st.lists(st.sampled_from(["<p>", "</p>", "<td>", "<tr", "<![x[", "<!--", "é", " ", ">", "&", "</", "<pre>"])))
def test_broken_html_never_fails(parts):
    text, _ = extract_html("".join(parts))
    assert text == text.strip()


@given(st.text(st.characters(exclude_characters="<>&\r", exclude_categories=["Cs", "Cc"])))
def test_plain_characters_pass_through(text):
    assert extract_html(f"<p>{text}</p>")[0] == re.sub(" +", " ", text).strip()
