"""SQuALITY (Wang et al. 2022): a story, five questions of it, and four people's answers to each."""

from collections.abc import Iterator
from typing import Any

from narrows.data.files import field
from narrows.data.summary_layouts.record import Layout, SummaryExample, filled, json_records

__all__ = ["SQUALITY"]


def _examples(record: Any, where: str, number: int) -> Iterator[SummaryExample]:
    story = field(field(record, "metadata", dict, where), "passage_id", str, where)
    documents = filled([field(record, "document", str, where)], "document", where)
    for question in field(record, "questions", list, where):
        place = f"{where}, question {field(question, 'question_number', int, where)}"
        responses = field(question, "responses", list, place)
        yield SummaryExample(
            id=f"{story}-{question['question_number']}",
            documents=documents,
            references=filled([field(answer, "response_text", str, place) for answer in responses], "response", place),
            query=filled([field(question, "question_text", str, place)], "question", place)[0],
        )


SQUALITY = Layout(json_records, _examples)
