"""Tasks as plain records: readers of data files, windows, span labels and batches. Knows no model."""

from narrows.data.articles import Article, read_articles
from narrows.data.byte_text import byte_split, read_byte_text
from narrows.data.class_rows import PROBLEMS, ClassRow, ClassRows, collate_classes, encode_classes, label_names
from narrows.data.classes import (
    CLASS_LAYOUTS,
    ChoiceExample,
    ClassExample,
    TextExample,
    WordsExample,
    read_examples,
)
from narrows.data.cloze import cloze_examples
from narrows.data.joining import join_contexts
from narrows.data.labelled import LabelledTexts, read_labelled
from narrows.data.listops import (
    LISTOPS_TOKENS,
    ListOps,
    evaluate_listops,
    generate_listops,
    listops_tokens,
    write_listops,
)
from narrows.data.long_inputs import InputEncoder, LongInputs
from narrows.data.masking import MASKINGS, Masked, mask_tokens, word_numbers, word_numbers_of, word_starts
from narrows.data.negatives import add_unanswerable_pairs
from narrows.data.packing import equal_length_batches, restore, shuffled_batches, token_budget_batches
from narrows.data.pair_layout import PairLayout, bert_pairs, pair_layout
from narrows.data.plain import AS_PLAIN_TEXT
from narrows.data.pretraining import (
    RAW_LAYOUTS,
    PackedRow,
    PackedRows,
    Piece,
    TokenizedPieces,
    hold_out,
    read_pieces,
    tokenize_pieces,
)
from narrows.data.retrieval import RetrievalData, read_retrieval
from narrows.data.spans import EncodedSpans, SpanEncoder, SpanFeature
from narrows.data.spread import evenly_spread
from narrows.data.squad import (
    Answer,
    QAExample,
    normalize_title,
    read_pairs,
    read_qamr,
    read_reqa_pairs,
    read_split,
    read_squad,
)
from narrows.data.summaries import SUMMARY_LAYOUTS, SummaryExample, read_summaries
from narrows.data.text_fields import read_text_fields
from narrows.data.token_cache import TokenCache, TokenizedTexts
from narrows.data.tokens import plain_tokens
from narrows.data.truncation import TRUNCATIONS, Truncation, TruncationReport, truncation
from narrows.data.windows import windows

__all__ = [
    "AS_PLAIN_TEXT",
    "CLASS_LAYOUTS",
    "LISTOPS_TOKENS",
    "MASKINGS",
    "PROBLEMS",
    "RAW_LAYOUTS",
    "SUMMARY_LAYOUTS",
    "TRUNCATIONS",
    "Answer",
    "Article",
    "ChoiceExample",
    "ClassExample",
    "ClassRow",
    "ClassRows",
    "EncodedSpans",
    "InputEncoder",
    "LabelledTexts",
    "ListOps",
    "LongInputs",
    "Masked",
    "PackedRow",
    "PackedRows",
    "PairLayout",
    "Piece",
    "QAExample",
    "RetrievalData",
    "SpanEncoder",
    "SpanFeature",
    "SummaryExample",
    "TokenCache",
    "TokenizedPieces",
    "TokenizedTexts",
    "TextExample",
    "Truncation",
    "TruncationReport",
    "WordsExample",
    "add_unanswerable_pairs",
    "bert_pairs",
    "byte_split",
    "cloze_examples",
    "collate_classes",
    "encode_classes",
    "equal_length_batches",
    "evaluate_listops",
    "evenly_spread",
    "generate_listops",
    "hold_out",
    "join_contexts",
    "label_names",
    "listops_tokens",
    "mask_tokens",
    "normalize_title",
    "pair_layout",
    "plain_tokens",
    "read_articles",
    "read_byte_text",
    "read_examples",
    "read_pieces",
    "read_labelled",
    "read_qamr",
    "read_pairs",
    "read_reqa_pairs",
    "read_retrieval",
    "read_split",
    "read_squad",
    "read_summaries",
    "read_text_fields",
    "restore",
    "shuffled_batches",
    "token_budget_batches",
    "tokenize_pieces",
    "truncation",
    "windows",
    "word_numbers",
    "word_numbers_of",
    "word_starts",
    "write_listops",
]
