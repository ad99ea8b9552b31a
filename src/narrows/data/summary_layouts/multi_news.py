"""Multi-News (Fabbri et al. 2019): articles on one event, with `|||||` between them, and an editor's summary.

The published text files hold an example a line, `train.src.cleaned` beside `train.tgt`, with NEWLINE_CHAR where a
line ended; JSON records hold the same in `document` and `summary`.
"""

from collections.abc import Iterator
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from narrows.data.files import field, lines
from narrows.data.summary_layouts.record import Layout, Raw, SummaryExample, filled, json_records, record_id
from narrows.errors import UsageError

__all__ = ["MULTI_NEWS"]

_BETWEEN = "|||||"
_LINE_END = "NEWLINE_CHAR"


def _records(path: Path) -> Iterator[Raw]:
    if ".src" not in path.suffixes:
        yield from json_records(path)
        return
    beside = _targets(path)
    for number, (source, target) in enumerate(zip_longest(lines(path), lines(beside)), start=1):
        where = f"{path}: line {number}"
        yield Raw(where, partial(_pair, source, target, where, beside))


def _targets(path: Path) -> Path:
    """The file of summaries: the sources' name with `.tgt`, with or without `.cleaned` and `.gz`."""
    name = path.name.replace(".src", ".tgt")
    plain = name.removesuffix(".gz").removesuffix(".cleaned")
    names = [name, *(f"{plain}{end}" for end in ("", ".gz", ".cleaned", ".cleaned.gz"))]
    for candidate in names:
        if (beside := path.with_name(candidate)).exists():
            return beside
    raise UsageError(f"{path}: expected its summaries beside it, got no {names[0]} or {plain}; put the file there.")


def _pair(source: str | None, target: str | None, where: str, beside: Path) -> dict[str, str]:
    if source is None or target is None:
        longer, shorter = ("sources", "summaries") if target is None else ("summaries", "sources")
        raise UsageError(
            f"{where}: expected as many lines of sources as of summaries in {beside.name}, got {longer} without "
            f"{shorter}; fetch both files again."
        )
    return {"document": source, "summary": target}


def _examples(record: Any, where: str, number: int) -> Iterator[SummaryExample]:
    text = field(record, "document", str, where).replace(_LINE_END, "\n")
    # A mark may also follow the last article, and some articles were empty when they were fetched.
    documents = [article.strip() for article in text.split(_BETWEEN) if article.strip()]
    summary = field(record, "summary", str, where).replace(_LINE_END, "\n")
    yield SummaryExample(
        id=record_id(record, "id", number, where),
        documents=filled(documents, "document", where),
        # Every summary begins with a dash that is the site's and not the editor's.
        references=filled([summary.strip().lstrip("–- ")], "summary", where),
    )


MULTI_NEWS = Layout(_records, _examples)
