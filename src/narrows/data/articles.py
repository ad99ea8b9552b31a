"""Running text as articles of paragraphs: WikiText, MediaWiki dumps, the contexts of SQuAD files."""

import bz2
import gzip
import html
import re
import zlib
from collections.abc import Collection, Iterator
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from narrows.data.squad import normalize_title, read_squad
from narrows.errors import UsageError

__all__ = ["Article", "plain_wikitext", "read_articles"]

_HEADING = re.compile(r"^ = (?!=)(.+?)(?<!=) = ?$")
# WikiText-2 writes "7 @.@ 5" and "well @-@ known" for what was one word.
_JOINED = re.compile(r" @([.,-])@ ")
_PAGE = re.compile(r"<page>(.*?)</page>", re.DOTALL)
# A page without text has `<text … />`.
_PARTS = re.compile(r"<title>(?P<title>.*?)</title>.*?<text(?:[^>]*[^>/])?>(?P<text>.*?)</text>", re.DOTALL)
# Innermost first, again and again: templates and tables stand in one another.
_INNERMOST = re.compile(r"\{\{[^{}]*\}\}|\{\|[^{}]*\|\}")
_MARKUP = [
    (re.compile(r"<!--.*?-->|<ref[^>]*/>|<ref[^>]*>.*?</ref>", re.DOTALL), ""),
    (re.compile(r"\[\[(?:File|Image|Category|[a-z-]{2,12}):(?:[^\[\]]|\[\[[^\[\]]*\]\])*\]\]"), ""),
    (re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]]*)\]\]"), r"\1"),
    (re.compile(r"\[https?://[^\s\]]*\s*([^\]]*)\]"), r"\1"),
    (re.compile(r"'{2,}|</?[a-zA-Z][^<>]*>"), ""),
]
_UNPACK = {".gz": gzip.decompress, ".bz2": bz2.decompress}
_UNREADABLE = (OSError, EOFError, ValueError, zlib.error)
_NOT_PROSE = ("=", "*", "#", ":", ";", "|", "!", "{", "}", "[")


class Article(NamedTuple):
    """A title and its paragraphs in order."""

    title: str
    paragraphs: tuple[str, ...]


def read_articles(path: str | PathLike[str], *, titles: Collection[str] | None = None) -> Iterator[Article]:
    """Reads articles; the kind of file is told by its name.

    Args:
        path: `.txt[.gz]`, WikiText with its ` = Title = ` lines; `.xml[.bz2]`, a MediaWiki dump, markup taken
            away, lists and tables left out; `.json[.gz]`, SQuAD, each context once.
        titles: the articles to keep; all of them when None.

    Raises:
        UsageError: another kind of name, or a file that cannot be read.

    Example:
        `next(read_articles("wikitext-2/valid.txt.gz")).title`
    """
    path = Path(path)
    kept = None if titles is None else {normalize_title(title) for title in titles}
    for article in _reader(path):
        if article.paragraphs and (kept is None or normalize_title(article.title) in kept):
            yield article


def plain_wikitext(markup: str) -> str:
    """The prose of MediaWiki markup: no templates, tables, notes, links' targets, headings or lists."""
    text = html.unescape(markup)
    for pattern, replacement in _MARKUP[:1]:
        text = pattern.sub(replacement, text)
    while (less := _INNERMOST.sub("", text)) != text:
        text = less
    for pattern, replacement in _MARKUP[1:]:
        text = pattern.sub(replacement, text)
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(_NOT_PROSE))


def _reader(path: Path) -> Iterator[Article]:
    name = path.name.removesuffix(".gz").removesuffix(".bz2")
    if name.endswith(".txt"):
        return _wikitext(_text(path))
    if name.endswith(".xml"):
        return _dump(_text(path))
    if name.endswith(".json"):
        return _contexts(path)
    raise UsageError(f"expected articles in a .txt, .xml or .json file (or .gz, .bz2 of it), got {path}; rename it.")


def _text(path: Path) -> str:
    try:
        data = path.read_bytes()
        unpack = _UNPACK.get(path.suffix)
        return (data if unpack is None else unpack(data)).decode("utf-8")
    except FileNotFoundError as error:
        raise UsageError(f"{path}: expected a file, got nothing at this path; check the path.") from error
    except _UNREADABLE as error:
        raise UsageError(
            f"{path}: expected UTF-8 text, plain or packed as its name says, got {error}; fetch it again or rename it."
        ) from error


def _wikitext(text: str) -> Iterator[Article]:
    title, paragraphs = "", []
    for line in text.splitlines():
        heading = _HEADING.match(line)
        if heading:
            yield Article(title, tuple(paragraphs))
            title, paragraphs = heading[1], []
        elif line.strip() and not line.startswith(" ="):
            paragraphs.append(_JOINED.sub(r"\1", line.strip()))
    yield Article(title, tuple(paragraphs))


def _dump(text: str) -> Iterator[Article]:
    for page in _PAGE.finditer(text):
        if parts := _PARTS.search(page[1]):
            prose = plain_wikitext(html.unescape(parts["text"]))
            yield Article(html.unescape(parts["title"]), tuple(prose.splitlines()))


def _contexts(path: Path) -> Iterator[Article]:
    by_title: dict[str, dict[str, None]] = {}
    for example in read_squad(path):
        by_title.setdefault(example.title, {})[example.context] = None
    for title, contexts in by_title.items():
        yield Article(title, tuple(contexts))
