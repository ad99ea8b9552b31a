"""GLUE's tables, and comma-separated files such as those of Yelp and Amazon."""

import csv
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from narrows.data.class_layouts.record import ClassExample, Layout, TextExample, require_text
from narrows.data.files import lines
from narrows.errors import UsageError

__all__ = ["CSV", "GLUE"]

_FIELDS = ("text", "pair", "label")
# The most that a C long holds everywhere.
_LONGEST_FIELD = 2**31 - 1


class _Table(NamedTuple):
    """Columns of a task's tables: their names in a header, or in this order without one; and those that are read."""

    columns: tuple[str, ...]
    text: str
    pair: str | None
    label: str


_PAIR = ("index", "sentence1", "sentence2", "label")
_MNLI = (
    "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse "
    "sentence1 sentence2 label1 gold_label"
)
_STS_B = "index genre filename year old_index source1 source2 sentence1 sentence2 score"
_TABLES = {
    "cola": _Table(("source", "label", "mark", "sentence"), "sentence", None, "label"),
    "sst-2": _Table(("sentence", "label"), "sentence", None, "label"),
    "mrpc": _Table(("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"), "#1 String", "#2 String", "Quality"),
    "sts-b": _Table(
        tuple(_STS_B.split()),
        "sentence1",
        "sentence2",
        "score",
    ),
    "qqp": _Table(
        ("id", "qid1", "qid2", "question1", "question2", "is_duplicate"), "question1", "question2", "is_duplicate"
    ),
    "mnli": _Table(tuple(_MNLI.split()), "sentence1", "sentence2", "gold_label"),
    "qnli": _Table(("index", "question", "sentence", "label"), "question", "sentence", "label"),
    "rte": _Table(_PAIR, "sentence1", "sentence2", "label"),
    "wnli": _Table(_PAIR, "sentence1", "sentence2", "label"),
}


def _read_glue(path: Path, fields: Mapping[str, str], skip: bool, *, table: _Table) -> Iterator[ClassExample]:
    columns = table.columns
    for number, line in enumerate(lines(path), start=1):
        # Quotes are text: GLUE's tables are split at tabs alone.
        cells = line.rstrip("\r\n").split("\t")
        if number == 1 and {table.text, table.pair or table.text} <= set(cells):
            columns = tuple(cells)
            if table.label not in columns:
                raise UsageError(
                    f"{path}: expected a column {table.label!r}, got only {', '.join(cells)}; pass a part with labels "
                    "(GLUE's test sets have none)."
                )
            continue
        where = f"{path}: line {number}"
        if len(cells) != len(columns):
            if skip:
                continue
            raise UsageError(
                f"{where}: expected {len(columns)} columns with tabs between them ({', '.join(columns)}), got "
                f"{len(cells)}; correct the line, or set skip_broken to leave such lines out."
            )
        row = dict(zip(columns, cells, strict=True))
        pair = None if table.pair is None else require_text(row[table.pair], table.pair, where)
        label = require_text(row[table.label], table.label, where)
        yield TextExample(str(number), require_text(row[table.text], table.text, where), pair, label)


def _read_csv(path: Path, fields: Mapping[str, str], skip: bool) -> Iterator[ClassExample]:
    # Python's own limit, of the whole process, is 131,072: a long document is longer.
    csv.field_size_limit(_LONGEST_FIELD)
    rows = csv.reader(lines(path), strict=False)
    columns: list[str] = []
    if fields:
        columns = next(rows, [])
        for field in fields.values():
            if field not in columns:
                raise UsageError(
                    f"{path}: expected a column {field!r}, got only {', '.join(columns)}; correct the names in fields."
                )
        if not {"text", "label"} <= set(fields):
            raise UsageError(f"{path}: expected names for text and label, got {sorted(fields)}; add them to fields.")
    width = len(columns)
    for cells in rows:
        where = f"{path}: line {rows.line_num}"
        width = width or len(cells)
        if len(cells) != width or width < 2:
            if skip:
                continue
            raise UsageError(
                f"{where}: expected {max(width, 2)} columns with commas between them, got {len(cells)}; correct the "
                "line, or set skip_broken to leave such lines out."
            )
        if fields:
            row = dict(zip(columns, cells, strict=True))
            text, label = row[fields["text"]], row[fields["label"]]
            pair = require_text(row[fields["pair"]], "pair", where) if "pair" in fields else None
        else:
            # Yelp's and Amazon's: the class, then a title where there is one, then the text, line ends spelled out.
            label, text, pair = cells[0], " ".join(cells[1:]).replace("\\n", "\n"), None
        yield TextExample(
            str(rows.line_num), require_text(text, "text", where), pair, require_text(label, "label", where)
        )


GLUE: Mapping[str, Layout] = {
    name: Layout(partial(_read_glue, table=table), TextExample) for name, table in _TABLES.items()
}
"""GLUE's tab-separated tables by task, with a header or without one."""

CSV = Layout(_read_csv, TextExample, _FIELDS)
"""Comma-separated: without `fields` the class and then the text, as Yelp's and Amazon's; with them a header's names."""
