"""Our own JSON lines: `document` or `documents`, `summary`, and where there are, `query` and `id`."""

from collections.abc import Iterator
from typing import Any

from narrows.data.files import field
from narrows.data.summary_layouts.record import (
    Layout,
    SummaryExample,
    filled,
    json_records,
    record_id,
    string_or_strings,
    strings,
)
from narrows.errors import UsageError

__all__ = ["PLAIN"]


def _examples(record: Any, where: str, number: int) -> Iterator[SummaryExample]:
    one, several = (isinstance(record, dict) and key in record for key in ("document", "documents"))
    if one and several:
        raise UsageError(f"{where}: expected 'document' or 'documents', got both; remove one of them.")
    documents = strings(record, "documents", where) if several else [field(record, "document", str, where)]
    summaries = string_or_strings(record, "summary", where)
    query = field(record, "query", str, where) if record.get("query") is not None else None
    yield SummaryExample(
        id=record_id(record, "id", number, where),
        documents=filled(documents, "document", where),
        references=filled(summaries, "summary", where),
        query=None if query is None else filled([query], "query", where)[0],
    )


PLAIN = Layout(json_records, _examples)
