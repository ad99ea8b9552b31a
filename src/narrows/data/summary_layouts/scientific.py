"""arXiv and PubMed (Cohan et al. 2018): an article's sentences, and its abstract's sentences in `<S>` tags.

The authors' files hold them as lists in `article_text` and `abstract_text`; copies on hubs (`scientific_papers`,
`ccdv/arxiv-summarization`) as texts in `article` and `abstract`, a line or a paragraph after the other.
"""

from collections.abc import Iterator
from typing import Any

from narrows.data.files import field
from narrows.data.summary_layouts.record import Layout, SummaryExample, filled, json_records, record_id, strings

__all__ = ["SCIENTIFIC"]


def _examples(record: Any, where: str, number: int) -> Iterator[SummaryExample]:
    end = "" if isinstance(record, dict) and "article" in record else "_text"
    article = _joined(_lines(record, f"article{end}", where))
    abstract = _joined([_untagged(sentence) for sentence in _lines(record, f"abstract{end}", where)])
    yield SummaryExample(
        id=record_id(record, "article_id", number, where),
        documents=filled([article], f"article{end}", where),
        references=filled([abstract], f"abstract{end}", where),
    )


def _lines(record: Any, key: str, where: str) -> list[str]:
    if key.endswith("_text"):
        return strings(record, key, where)
    return [line.strip() for line in field(record, key, str, where).splitlines()]


def _untagged(sentence: str) -> str:
    return sentence.strip().removeprefix("<S>").removesuffix("</S>").strip()


def _joined(sentences: list[str]) -> str:
    """A line each, so that what scores by sentence need not find them again."""
    return "\n".join(sentence for sentence in sentences if sentence.strip())


SCIENTIFIC = Layout(json_records, _examples)
