"""The plain records that go into a store and come out of it."""

from dataclasses import dataclass, field

import numpy as np

from narrows.store.codecs import Buffer
from narrows.store.fingerprint import Fingerprint


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredPassage:
    """One passage of a document with the states of its tokens.

    Args:
        passage_id: `f"{document_id}:{index}"`, the index counting from 0 inside the document.
        document_id: the document the passage is cut from.
        title: title of the document or section; may be empty.
        start: offset in characters of the passage's first character in the document.
        end: offset in characters behind its last one.
        text: the passage itself.
        token_ids: int32 array [tokens].
        states: the states of the tokens, encoded by the store's codec.
        vector: one vector [vector_width] for the whole passage; it is kept as float16, and it is None in a
            store without vectors.
    """

    passage_id: str
    document_id: str
    title: str
    start: int
    end: int
    text: str
    token_ids: np.ndarray
    states: bytes
    vector: np.ndarray | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class StoredDocument:
    """A document as the store sees it: an id, the sha256 of its source, and its passages in order."""

    document_id: str
    sha256: str
    title: str
    passages: list[StoredPassage]


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadedPassages:
    """Columns of the passages that an answer is looked for in, one entry a passage.

    `states` are views into the loaded columns, without a copy, to be given to the codec together with
    `lengths`.
    """

    ids: list[str]
    documents: list[str]
    titles: list[str]
    starts: list[int]
    ends: list[int]
    texts: list[str]
    token_ids: list[np.ndarray]
    states: list[Buffer]
    lengths: list[int]


@dataclass(frozen=True)
class Hit:
    """A passage found: its row in the snapshot that was searched, and its score (larger is better)."""

    row_id: int
    score: float


@dataclass(frozen=True, kw_only=True)
class StoreInfo:
    """What a store holds; sizes are in bytes."""

    path: str
    documents: int
    passages: int
    tokens: int
    bytes_on_disk: int
    bytes_states: int
    bytes_text: int
    codec: str
    fingerprint: Fingerprint
    vector_width: int
    version: int
    format_version: int


@dataclass(frozen=True)
class Damage:
    """One thing that is wrong in a store, said in one sentence; ids are None where they cannot be read."""

    passage_id: str | None
    document_id: str | None
    reason: str


@dataclass(frozen=True, kw_only=True)
class VerifyReport:
    """The result of reading every row of a store.

    Args:
        path: the store.
        documents: number of documents of which a passage could be read.
        passages: number of passages that could be read, damaged ones included.
        damages: everything that is wrong, a sentence each.
        remarks: what could not be looked at, since an older narrows has not written it.
        damaged_documents: ids of the documents to write anew, sorted.
        lost_documents: ids of further documents, whose passages can no longer be read, sorted.
        nameless_passages: number of passages of which not even their document's id can be read.
        unreadable_fragments: ids of the Lance fragments with rows that tell not even their id.
        changed_fragments: ids of the others whose file is not what was written; what is whole in them is to be copied.
        damaged_index: whether the full-text index has to be made anew.
        beyond_repair: whether no repair helps, since what says which passages there are is itself damaged.
    """

    path: str
    documents: int = 0
    passages: int = 0
    damages: list[Damage] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    damaged_documents: list[str] = field(default_factory=list)
    lost_documents: list[str] = field(default_factory=list)
    nameless_passages: int = 0
    unreadable_fragments: list[int] = field(default_factory=list)
    changed_fragments: list[int] = field(default_factory=list)
    damaged_index: bool = False
    beyond_repair: bool = False

    @property
    def ok(self) -> bool:
        """True when every row is what was written and every document is whole."""
        return not self.damages
