"""Tasks as plain records: readers of data files, windows, span labels and batches. Knows no model."""

from narrows.data.articles import Article, read_articles
from narrows.data.cloze import cloze_examples
from narrows.data.joining import join_contexts
from narrows.data.negatives import add_unanswerable_pairs
from narrows.data.packing import join_pair, passage_start, restore, shuffled_batches, token_budget_batches
from narrows.data.plain import AS_PLAIN_TEXT
from narrows.data.spans import EncodedSpans, SpanEncoder, SpanFeature
from narrows.data.squad import (
    Answer,
    QAExample,
    normalize_title,
    read_qamr,
    read_reqa_pairs,
    read_split,
    read_squad,
)
from narrows.data.windows import windows

__all__ = [
    "AS_PLAIN_TEXT",
    "Answer",
    "Article",
    "EncodedSpans",
    "QAExample",
    "SpanEncoder",
    "SpanFeature",
    "add_unanswerable_pairs",
    "cloze_examples",
    "join_contexts",
    "join_pair",
    "normalize_title",
    "passage_start",
    "read_articles",
    "read_qamr",
    "read_reqa_pairs",
    "read_split",
    "read_squad",
    "restore",
    "shuffled_batches",
    "token_budget_batches",
    "windows",
]
