"""WCEP (Gholipour Ghalandari et al. 2020): news articles on one event, and a sentence or two from Wikipedia."""

from collections.abc import Iterator
from typing import Any

from narrows.data.files import field
from narrows.data.summary_layouts.record import Layout, SummaryExample, filled, json_records, record_id

__all__ = ["WCEP", "WCEP_10"]

_FIRST = 10


def _examples(record: Any, where: str, number: int) -> Iterator[SummaryExample]:
    articles = field(record, "articles", list, where)
    texts = [field(article, "text", str, f"{where}, article {a}") for a, article in enumerate(articles)]
    yield SummaryExample(
        id=record_id(record, "id", number, where),
        # The published clusters hold about a hundred articles whose text could not be fetched.
        documents=filled([text for text in texts if text.strip()], "article", where),
        references=filled([field(record, "summary", str, where)], "summary", where),
    )


def _of_ten(record: Any, where: str, number: int) -> Iterator[SummaryExample]:
    articles = field(record, "articles", list, where)
    yield from _examples({**record, "articles": articles[:_FIRST]}, where, number)


WCEP = Layout(json_records, _examples)
WCEP_10 = Layout(json_records, _of_ten)
