"""WCEP (Gholipour Ghalandari et al. 2020): news articles on one event, and a sentence or two from Wikipedia.

The authors' files hold `articles`, each with its `text`; copies on hubs (`ccdv/WCEP-10`) their texts, in `document`.
"""

from collections.abc import Iterator
from typing import Any

from narrows.data.files import field
from narrows.data.summary_layouts.record import Layout, SummaryExample, filled, json_records, record_id, strings

__all__ = ["WCEP", "WCEP_10"]

_FIRST = 10


def _examples(record: Any, where: str, number: int) -> Iterator[SummaryExample]:
    yield _example(_texts(record, where), record, where, number)


def _of_ten(record: Any, where: str, number: int) -> Iterator[SummaryExample]:
    yield _example(_texts(record, where)[:_FIRST], record, where, number)


def _texts(record: Any, where: str) -> list[str]:
    if isinstance(record, dict) and "document" in record:
        return strings(record, "document", where)
    articles = field(record, "articles", list, where)
    return [field(article, "text", str, f"{where}, article {a}") for a, article in enumerate(articles)]


def _example(texts: list[str], record: Any, where: str, number: int) -> SummaryExample:
    return SummaryExample(
        id=record_id(record, "id", number, where),
        # The published clusters hold about a hundred articles whose text could not be fetched.
        documents=filled([text for text in texts if text.strip()], "article", where),
        references=filled([field(record, "summary", str, where)], "summary", where),
    )


WCEP = Layout(json_records, _examples)
WCEP_10 = Layout(json_records, _of_ten)
