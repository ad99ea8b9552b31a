"""arXiv and PubMed (Cohan et al. 2018): an article's sentences, and its abstract's sentences in `<S>` tags."""

from collections.abc import Iterator
from typing import Any

from narrows.data.summary_layouts.record import Layout, SummaryExample, filled, json_records, record_id, strings

__all__ = ["SCIENTIFIC"]


def _examples(record: Any, where: str, number: int) -> Iterator[SummaryExample]:
    article = _joined(strings(record, "article_text", where))
    abstract = _joined([_untagged(sentence) for sentence in strings(record, "abstract_text", where)])
    yield SummaryExample(
        id=record_id(record, "article_id", number, where),
        documents=filled([article], "article_text", where),
        references=filled([abstract], "abstract_text", where),
    )


def _untagged(sentence: str) -> str:
    return sentence.strip().removeprefix("<S>").removesuffix("</S>").strip()


def _joined(sentences: list[str]) -> str:
    """A line each, so that what scores by sentence need not find them again."""
    return "\n".join(sentence for sentence in sentences if sentence.strip())


SCIENTIFIC = Layout(json_records, _examples)
