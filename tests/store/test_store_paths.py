"""Where a store may lie: anywhere, or it is refused by name before anything is made."""

import os
import re
from pathlib import Path

import pytest

from narrows.errors import UsageError
from narrows.store import Store, delete, tidying, verify

# Folders inside each other.
USABLE = [
    [
        " a",
        "a b",
        "a ",
        "a.",
        "..a",
        "~",
        "a?b",
        "a#b",
        "a%b",
        "a%20b",
        "a%41b",
        "%zz",
        "$HOME",
        "a&b",
        "a;b",
        "a|b",
        "a+b",
    ],
    ["~", "a'b", 'a"b', "a:b", "a\\b", "a*b", "a[b]", "a{b}", "a@v1", "a<b>", "a^b", "a`b"],
    ["日本", "é", "e\u0301", "a\xa0b", "\x85x", "a\u2028b", "\u202eb", "😀", "\ufeff"],
    *(["s3:"], ["file:", "C:"], ["C:"], ["a%20b"], ["a?b#c"], [" a "]),
]
UNUSABLE = [*(f"a{chr(code)}b" for code in (*range(1, 32), 127)), os.fsdecode(b"st\xfe"), os.fsdecode(b"\xc3")]


@pytest.mark.parametrize("names", USABLE)
@pytest.mark.parametrize("is_relative", [False, True])
def test_a_store_may_lie_anywhere(tmp_path, fingerprint, document, monkeypatch, names, is_relative) -> None:
    monkeypatch.chdir(tmp_path)
    whole = tmp_path.joinpath(*names)
    path = whole.relative_to(tmp_path) if is_relative else whole
    with Store.create(path, fingerprint) as store, store.writer() as writer:
        writer.put([document("a"), document("b")])
        writer.finish()
        writer.remove(["b"])
        writer.finish()
        assert [len(tidying._counted_rows(whole / "passages.lance", one)) for one in segments(store)] == [2]
    with Store.open(path, expect=fingerprint) as store:
        assert len(store.search("harbour", 4)) == 1
    assert verify(path).ok
    assert os.listdir(tmp_path) == names[:1] and os.listdir(whole.parent) == names[-1:]
    delete(path)
    assert os.listdir(whole.parent) == []


def segments(store: Store) -> list:
    store.refresh()
    (index,) = store._dataset.describe_indices()
    return index.segments


@pytest.mark.parametrize("name", UNUSABLE)
def test_what_lance_cannot_be_told_is_refused_before_anything_is_made(tmp_path, fingerprint, name) -> None:
    letter = next(letter for letter in name if not letter.isprintable())
    what = "not UTF-8" if ord(letter) > 127 else "a control character"
    for path in (tmp_path / name, tmp_path / name / "s"):
        sentence = (
            "expected a path of UTF-8 without control characters for a store, got "
            f"{str(path)!r}, in which {letter!r} is {what}; choose another path, or rename the folder"
        )
        with pytest.raises(UsageError, match=f"^{re.escape(sentence)}$"):
            Store.create(path, fingerprint)
    assert os.listdir(tmp_path) == []


def test_a_folder_that_was_renamed_so_is_named(store, document, tmp_path) -> None:
    with store.writer() as writer:
        writer.put([document("a")])
    store.close()
    bad = store.path.rename(tmp_path / "a\nb")
    (tmp_path / "link").symlink_to(bad)
    for path in (bad, tmp_path / "link"):
        for look in (lambda path: Store.open(path, expect=None), verify):
            with pytest.raises(UsageError, match=r"a\\nb', in which '\\n' is a control character; choose another"):
                look(path)
    delete(bad)


def test_links_are_followed(tmp_path, fingerprint, document, monkeypatch) -> None:
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "away")
    monkeypatch.chdir(tmp_path)
    path = Path("link/../s")
    with Store.create(path, fingerprint) as store, store.writer() as writer:
        writer.put([document("a")])
        writer.finish()
    assert (tmp_path / "far" / "s" / "passages.lance").exists() and verify(tmp_path / "far" / "s").documents == 1
