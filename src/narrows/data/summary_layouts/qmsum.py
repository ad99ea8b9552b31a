"""QMSum (Zhong et al. 2021): meetings, with general and specific queries and a summary for each."""

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from narrows.data.files import field
from narrows.data.summary_layouts.record import Layout, SummaryExample, filled, json_records, record_id

__all__ = ["QMSUM"]


def _examples(record: Any, where: str, number: int) -> Iterator[SummaryExample]:
    # The name of the meeting is that of its file; JSON lines that join the files may keep it under `_file`.
    meeting = PurePath(record_id(record, "_file", number, where)).stem
    turns = []
    for t, turn in enumerate(field(record, "meeting_transcripts", list, where)):
        place = f"{where}, turn {t}"
        turns.append(f"{field(turn, 'speaker', str, place)}: {field(turn, 'content', str, place)}")
    documents = filled(["\n".join(turns)], "transcript", where)
    for kind in ("general", "specific"):
        for q, query in enumerate(field(record, f"{kind}_query_list", list, where)):
            place = f"{where}, {kind} query {q}"
            yield SummaryExample(
                id=f"{meeting}-{kind}-{q}",
                documents=documents,
                references=filled([field(query, "answer", str, place)], "answer", place),
                query=filled([field(query, "query", str, place)], "query", place)[0],
            )


QMSUM = Layout(json_records, _examples)
