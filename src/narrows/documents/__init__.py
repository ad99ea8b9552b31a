"""Files into text with exact offsets, and text into passages.

`scan` lists what can be read, `read_documents` streams it, `split_passages` cuts a text along its paragraphs
and sentences, and `sentence_around` shows a span in its sentence. All offsets count characters of
`Document.text`, so `document.text[start:end]` is always what was meant.
"""

from narrows.documents.decoding import UnsupportedEncoding
from narrows.documents.passages import Passage, PassageSpan, sentence_around, split_passages
from narrows.documents.reading import Document, read_documents
from narrows.documents.sources import SUFFIXES, Source, UnsupportedSuffix, scan

__all__ = [
    "SUFFIXES",
    "Document",
    "Passage",
    "PassageSpan",
    "Source",
    "UnsupportedEncoding",
    "UnsupportedSuffix",
    "read_documents",
    "scan",
    "sentence_around",
    "split_passages",
]
