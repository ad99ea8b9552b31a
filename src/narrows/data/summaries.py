"""Long documents and their summaries: the public layouts, and our own JSON lines, into one record."""

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from types import MappingProxyType

from narrows.data.summary_layouts.govreport import GOV_REPORT
from narrows.data.summary_layouts.multi_news import MULTI_NEWS
from narrows.data.summary_layouts.plain import PLAIN
from narrows.data.summary_layouts.qmsum import QMSUM
from narrows.data.summary_layouts.record import Layout, SummaryExample
from narrows.data.summary_layouts.scientific import SCIENTIFIC
from narrows.data.summary_layouts.squality import SQUALITY
from narrows.data.summary_layouts.wcep import WCEP, WCEP_10
from narrows.errors import UsageError

__all__ = ["SUMMARY_LAYOUTS", "SummaryExample", "read_summaries"]

SUMMARY_LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        "jsonl": PLAIN,
        "squality": SQUALITY,
        "qmsum": QMSUM,
        "multi-news": MULTI_NEWS,
        "arxiv": SCIENTIFIC,
        "pubmed": SCIENTIFIC,
        "wcep": WCEP,
        "wcep-10": WCEP_10,
        "govreport": GOV_REPORT,
    }
)
"""The layouts by name; their files under `summary_layouts` say what they hold."""


def read_summaries(
    path: str | PathLike[str], *, layout: str, on_bad: Callable[[UsageError], None] | None = None
) -> Iterator[SummaryExample]:
    """Reads summary data, a record at a time.

    Args:
        path: JSON lines, a JSON list, one JSON object, or a folder of such files, any of them plain or ending in
            `.gz`; for `multi-news` also `*.src[.cleaned]` with `*.tgt` beside it; for `govreport` also a file of
            ids, `split_ids/gao_train.ids`.
        layout: a name of `SUMMARY_LAYOUTS`. `wcep-10` keeps the first ten articles of a cluster, `wcep` all.
        on_bad: told of each bad record, which is then left out; a bad record ends the reading when None. A file
            that cannot be read ends it always.

    Yields:
        One example a summary that is asked for (a question, a query), in file order. Examples of one document
        share its string.

    Raises:
        UsageError: an unknown layout, at once; a file that cannot be read, or a record that is no JSON, lacks a
            key, or has an empty document or summary, while iterating. The sentence names the file and the line.

    Example:
        `next(read_summaries("squality/dev.jsonl.gz", layout="squality")).query`
    """
    if layout not in SUMMARY_LAYOUTS:
        near = get_close_matches(layout, SUMMARY_LAYOUTS, n=1)
        raise UsageError(
            f"expected a layout of summary data ({', '.join(SUMMARY_LAYOUTS)}), got {layout!r}; "
            + (f"did you mean {near[0]!r}?" if near else "name one of them.")
        )
    return _read(Path(path), SUMMARY_LAYOUTS[layout], on_bad)


def _read(path: Path, layout: Layout, on_bad: Callable[[UsageError], None] | None) -> Iterator[SummaryExample]:
    for number, raw in enumerate(layout.records(path), start=1):
        try:
            # Whole, so that a record is left out with all its examples or not at all.
            examples = list(layout.examples(raw.parse(), raw.where, number))
        except UsageError as error:
            if on_bad is None:
                raise
            on_bad(error)
        else:
            yield from examples
