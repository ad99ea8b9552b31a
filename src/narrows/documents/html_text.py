"""HTML into the text a reader sees."""

import re
from html.parser import HTMLParser

__all__ = ["extract_html"]

_HIDDEN = frozenset({"script", "style", "template"})
_BLOCKS = frozenset({
    "address", "article", "aside", "blockquote", "body", "caption", "center", "dd", "details", "dialog",
    "dir", "div", "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3",
    "h4", "h5", "h6", "head", "header", "hgroup", "hr", "html", "legend", "li", "main", "menu", "nav",
    "ol", "optgroup", "option", "p", "pre", "search", "section", "select", "summary", "table", "tbody",
    "textarea", "tfoot", "thead", "ul",
})  # fmt: skip
_PREFORMATTED = frozenset({"pre", "textarea"})
_WHITE_SPACE = re.compile(r"[ \t\n\r\f]+")


def extract_html(markup: str) -> tuple[str, str]:
    """Take the visible text and the title out of HTML, whole or broken.

    Block elements become paragraphs (a blank line between them), `br` and table rows lines; the cells of a
    row are joined by " | "; runs of white space become one space except in `pre`; inline tags leave no trace.
    `script`, `style` and `template` are left out, and so is `title`, which is returned on its own.

    Args:
        markup: the characters of the file.

    Returns:
        (text, title); title is "" when there is none.

    Raises:
        ValueError: the standard library's parser refuses a character reference.

    Example:
        >>> extract_html("<title>T</title><p>a<b>b</b>c<p>d<br>e")
        ('abc\\n\\nd\\ne', 'T')
    """
    parser = _VisibleText()
    parser.feed(markup)
    parser.close()
    return "".join(parser.pieces).strip(), " ".join("".join(parser.title).split())


class _VisibleText(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self.title: list[str] = []
        self._titles = 0
        self._in_title = False
        self._hidden: list[str] = []
        self._preformatted = 0
        self._drop_newline = False
        # What separates the next characters from the last: a number of line ends, or cell bars, or a space.
        self._line_ends = 0
        self._bars = 0
        self._space = False
        self._row_is_empty = True
        self._is_first_cell = True

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_title = False
        if tag in _HIDDEN:
            self._hidden.append(tag)
        elif self._hidden:
            return
        elif tag == "title":
            self._titles += 1
            self._in_title = True
        elif tag in ("td", "th"):
            self._start_cell()
        elif tag == "tr":
            self._start_row(1)
        elif tag == "table":
            self._start_row(2)
        elif tag == "br":
            self._break(1)
        elif tag in _BLOCKS:
            self._break(2)
            if tag in _PREFORMATTED:
                self._preformatted += 1
                self._drop_newline = True

    def handle_endtag(self, tag: str) -> None:
        self._in_title = False
        if self._hidden:
            if tag == self._hidden[-1]:
                self._hidden.pop()
        elif tag == "tr":
            self._start_row(1)
        elif tag == "table":
            self._start_row(2)
        elif tag in _BLOCKS:
            self._break(2)
            if tag in _PREFORMATTED:
                self._preformatted = max(0, self._preformatted - 1)

    def handle_data(self, data: str) -> None:
        if self._hidden:
            return
        if self._in_title:
            if self._titles == 1:
                self.title.append(data)
            return
        if self._preformatted:
            data = data.replace("\r\n", "\n").replace("\r", "\n")
            if self._drop_newline:
                data = data.removeprefix("\n")
                self._drop_newline = False
            if data:
                self._write(data)
            return
        data = _WHITE_SPACE.sub(" ", data)
        if data.startswith(" "):
            self._space = True
        core = data.strip(" ")
        if core:
            self._write(core)
            self._space = data.endswith(" ")

    def parse_marked_section(self, i: int, report: int = 1) -> int:
        # Browsers read "<![...>" as a comment; the inherited method fails on keywords it does not know.
        return self.parse_bogus_comment(i)

    def _break(self, line_ends: int) -> None:
        # A paragraph inside a cell that has just begun must not tear the row apart.
        in_first_cell = self._row_is_empty and not self._is_first_cell
        if not self._bars and not in_first_cell:
            self._line_ends = max(self._line_ends, line_ends)

    def _start_row(self, line_ends: int) -> None:
        self._bars = 0
        self._break(line_ends)
        self._row_is_empty = True
        self._is_first_cell = True

    def _start_cell(self) -> None:
        if self._is_first_cell:
            self._is_first_cell = False
            return
        self._bars += 1
        if not self._row_is_empty:
            self._line_ends = 0

    def _write(self, characters: str) -> None:
        if self.pieces:
            self.pieces.append("\n" * self._line_ends)
            if not self._line_ends and (self._space or self._bars):
                self.pieces.append(" ")
        self.pieces.append("| " * self._bars)
        self.pieces.append(characters)
        self._line_ends, self._bars, self._space = 0, 0, False
        self._row_is_empty = False
