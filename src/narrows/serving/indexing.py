"""A folder of documents into a passage store: only what is new or changed is read, a commit a group.

Memory does not grow with the folder nor with a document: a group holds about 16,000 tokens, and a large
document is cut into pieces, encoded and written piece by piece in one commit.
"""

import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from narrows._plural import count
from narrows.documents import Document, read_documents, scan
from narrows.errors import DocumentError, NarrowsError, UsageError
from narrows.serving.embedding import PassageEmbedder
from narrows.serving.engine import Engine
from narrows.serving.pieces import TokenizedPassage, is_large, tokenized_between, tokenized_passages
from narrows.serving.sources import claim_store, leave_no_empty_store, vanished
from narrows.serving.unknown import UnknownCounter, UnknownWords
from narrows.store import Store, StoredDocument, StoredPassage, Writer
from narrows.store.allocator import share_one_pool
from narrows.store.layout import dataset_uri, is_unborn

__all__ = [
    "Cutting",
    "IndexProgress",
    "IndexReport",
    "Skipped",
    "index_folder",
]

_GROUP_TOKENS = 16_384
# A commit makes a small file; tidied now and then so that a large folder neither opens thousands of them at
# its end nor keeps every version's list of them.
_COMMITS_PER_TIDYING = 64
_REMOVED_AT_ONCE = 1000
# About what a second cuts.
_PASSAGES_PER_TELLING = 500
_ENCODED_CHARACTERS = 200_000

OnProblem = Callable[[str, DocumentError], None]
_Item = tuple[Document, int, TokenizedPassage]


class Skipped(NamedTuple):
    """A file or record that is not in the store, and the sentence that says why."""

    name: str
    reason: str


class Cutting(NamedTuple):
    """How much of a large document's text, in bytes of UTF-8, is cut into passages before the first is written."""

    bytes_done: int
    bytes_total: int


class IndexProgress(NamedTuple):
    """How far indexing is.

    Attributes:
        documents: ids committed since the last call; a process killed after the call loses none of them.
        passages, tokens: written so far, in all.
        bytes_done, bytes_total: of the source files, unchanged ones included.
        seconds: since the start.
        cutting: of the large document at hand; None when it is written, and for all others.
    """

    documents: list[str]
    passages: int
    tokens: int
    bytes_done: int
    bytes_total: int
    seconds: float
    cutting: Cutting | None = None

    @property
    def seconds_left(self) -> float | None:
        """Time left at the rate so far; None before there is one, and when nothing is left."""
        left = self.bytes_total - self.bytes_done
        return self.seconds / self.bytes_done * left if self.bytes_done and left > 0 else None


@dataclass
class IndexReport:
    """What one run of `index_folder` did; passages and tokens count what was written in this run.

    `unknown` has the documents of which more than a tenth of the tokens stands for unknown words.
    """

    documents_read: int = 0
    documents_unchanged: int = 0
    documents_removed: int = 0
    passages: int = 0
    tokens: int = 0
    seconds: float = 0.0
    skipped: list[Skipped] = field(default_factory=list)
    unknown: list[UnknownWords] = field(default_factory=list)


def index_folder(
    folder: str | Path,
    store_path: str | Path,
    engine: Engine,
    *,
    codec: str = "int8",
    dense: bool = False,
    replace: bool = False,
    on_progress: Callable[[IndexProgress], None] | None = None,
    on_problem: OnProblem | None = None,
) -> IndexReport:
    """Bring a store up to date with a folder; a run that was killed is completed by the next.

    Args:
        folder: documents, or one file.
        store_path: the store; made when nothing is there.
        engine: encodes the passages.
        codec: of the stored states.
        dense: also store a vector a passage, for dense candidates.
        replace: let the folder take the place of another one, whose documents are then removed.
        on_progress: called after every commit, and within a large document: while it is cut, and as it is written.
        on_problem: called with name and error of whatever is skipped; it is in the report as well.

    Returns:
        What was done. A document that the folder no longer holds is removed, except when the file it was in
        could not be read this time.

    Raises:
        DocumentError: nothing in the folder can be read.
        StoreMismatchError: the store was written by another model or codec.
        StoreBusyError: another process writes to the store.
        UsageError: the store has vectors and `dense` is False, or the other way round; or it holds documents of
            another folder that would go, and `replace` is False; or Lance takes no such path.

    A run that raises before it has written a document leaves a store as it was, and makes none.

    Example:
        >>> index_folder("examples/library", "library.narrows", engine)  # doctest: +SKIP
    """
    share_one_pool()
    path = Path(store_path)
    dataset_uri(path)
    sources = scan(folder, on_problem=lambda name, error: None)
    sizes = {source.id: source.size for source in sources}
    embedder = PassageEmbedder(device=engine.device) if dense else None
    is_new = not path.exists() or is_unborn(path)
    made = [one for one in (path, *path.parents) if not one.exists()]
    # Of this run: another process may have been first.
    empty = False
    try:
        with _open(path, engine, codec, embedder) as store, store.writer() as writer:
            empty = is_new
            claim_store(store, folder, replace=replace)
            run = _Run(store, writer, engine, embedder, sizes, on_progress)
            run.read_all(folder, path, on_problem)
            run.remove_vanished()
            writer.finish()
            empty = False
    except NarrowsError:
        if empty:
            leave_no_empty_store(path, made)
        raise
    run.report.seconds = run.elapsed()
    return run.report


def _bytes_of(text: str) -> int:
    """Size in UTF-8, without a copy of the whole."""
    if text.isascii():
        return len(text)
    step = _ENCODED_CHARACTERS
    return sum(len(text[at : at + step].encode()) for at in range(0, len(text), step))


def _open(path: Path, engine: Engine, codec: str, embedder: PassageEmbedder | None) -> Store:
    fingerprint = engine.fingerprint(codec)
    if not path.exists() or is_unborn(path):
        return Store.create(path, fingerprint, vector_width=embedder.width if embedder else 0)
    store = Store.open(path, expect=fingerprint)
    wanted = embedder.width if embedder else 0
    if store.vector_width != wanted:
        there = store.vector_width
        store.close()
        raise UsageError(
            f"expected a store with vectors of width {wanted}, but {path} has width {there} (0: none); "
            f"index {'with' if there else 'without'} --dense, or into a new store"
        )
    return store


class _Run:
    """One run over a folder: what is pending, what was done."""

    def __init__(
        self,
        store: Store,
        writer: Writer,
        engine: Engine,
        embedder: PassageEmbedder | None,
        sizes: dict[str, int],
        on_progress: Callable[[IndexProgress], None] | None,
    ):
        self.report = IndexReport()
        self._store, self._writer, self._engine, self._embedder = store, writer, engine, embedder
        self._sizes, self._on_progress = sizes, on_progress
        self._known = store.documents()
        self._seen: set[str] = set()
        self._unreadable: set[str] = set()
        self._pending: list[tuple[Document, list[TokenizedPassage]]] = []
        self._pending_tokens = 0
        self._commits = 0
        self._unknown = UnknownCounter(engine.tokenizer.unk_token_id)
        self._source = ""
        self._bytes_before = self._bytes_within = self._bytes_last = 0
        self._started = time.monotonic()

    def elapsed(self) -> float:
        return time.monotonic() - self._started

    def read_all(self, folder: str | Path, store_path: Path, on_problem: OnProblem | None) -> None:
        """Write every document that is new or changed."""
        root, inside = Path(folder).resolve(), store_path.resolve()
        own = f"{inside.relative_to(root).as_posix()}/" if inside.is_relative_to(root) else None

        def skip(name: str, error: DocumentError) -> None:
            if own is None or not name.startswith(own):
                self.report.skipped.append(Skipped(name, str(error)))
                if on_problem is not None:
                    on_problem(name, error)

        def skip_unreadable(name: str, error: DocumentError) -> None:
            self._unreadable.add(name)
            skip(name, error)

        for document in read_documents(folder, skip_unreadable):
            try:
                self._read(document)
            except DocumentError as error:
                skip(document.id, error)
        self._commit()
        # A file takes more bytes than the text that it holds, and files that were skipped are behind us too.
        self._bytes_before, self._source = sum(self._sizes.values()), ""
        self._tell([], 0)

    def remove_vanished(self) -> None:
        """Remove documents that the folder no longer holds, but none whose file could not be read."""
        gone = vanished(self._known, self._seen, self._unreadable)
        for start in range(0, len(gone), _REMOVED_AT_ONCE):
            self._writer.remove(gone[start : start + _REMOVED_AT_ONCE])
        self.report.documents_removed = len(gone)

    def _read(self, document: Document) -> None:
        if document.id in self._seen:
            raise DocumentError(f"expected every document once, but {document.id} comes twice; rename one of them")
        self._count_bytes(document)
        if self._known.get(document.id) == document.sha256:
            self._seen.add(document.id)
            self.report.documents_unchanged += 1
            return
        if is_large(document):
            self._commit()
            self._write_large(document)
            return
        passages = list(tokenized_passages(self._engine, document))
        if not passages:
            raise _no_words(document)
        self._seen.add(document.id)
        self._pending.append((document, passages))
        self._pending_tokens += sum(len(passage.ids) for passage in passages)
        if self._pending_tokens >= _GROUP_TOKENS:
            self._commit()

    def _count_bytes(self, document: Document) -> None:
        source = document.id if document.id in self._sizes else document.id.partition("#")[0]
        if source != self._source:
            self._bytes_before += self._sizes.get(self._source, 0)
            self._source, self._bytes_within = source, 0
        self._bytes_last = _bytes_of(document.text)
        self._bytes_within += self._bytes_last

    def _commit(self) -> None:
        """Encode and write what is pending, in one commit."""
        if not self._pending:
            return
        flat = [
            (document, index, passage) for document, passages in self._pending for index, passage in enumerate(passages)
        ]
        stored = iter(self._encode(flat))
        documents = [
            _stored_document(document, [next(stored) for _ in passages]) for document, passages in self._pending
        ]
        self._writer.put(documents)
        self._pending, self._pending_tokens = [], 0
        self._committed([document.document_id for document in documents])

    def _write_large(self, document: Document) -> None:
        """Encode and write a document that is too large to hold its states, in one commit.

        It is cut first, for each row says how many there are; of its passages only their borders are kept.
        """
        borders = array("q")
        for number, passage in enumerate(tokenized_passages(self._engine, document)):
            if number % _PASSAGES_PER_TELLING == 0:
                self._tell_cutting(document, passage.start)
            borders.extend((passage.start, passage.end))
        if not borders:
            raise _no_words(document)
        groups = self._encoded_groups(document, borders)
        self._writer.put_large(_stored_document(document, []), len(borders) // 2, groups)
        self._seen.add(document.id)
        self._committed([document.id])

    def _encoded_groups(self, document: Document, borders: "array[int]") -> Iterator[list[StoredPassage]]:
        group: list[_Item] = []
        tokens = 0
        within = self._bytes_within - self._bytes_last
        for index, passage in enumerate(tokenized_between(self._engine, document, borders)):
            group.append((document, index, passage))
            tokens += len(passage.ids)
            if tokens >= _GROUP_TOKENS:
                yield self._encode(group)
                self._tell([], within + round(passage.end / len(document.text) * self._bytes_last))
                group, tokens = [], 0
        if group:
            yield self._encode(group)

    def _encode(self, passages: Sequence[_Item]) -> list[StoredPassage]:
        """Passages with their states as bytes, a group of tokens at a time."""
        stored: list[StoredPassage] = []
        for group in _groups(passages):
            states = self._engine.encode_passages([passage.ids for _, _, passage in group])
            texts = [document.text[passage.start : passage.end] for document, _, passage in group]
            vectors = [None] * len(group) if self._embedder is None else list(self._embedder.embed(texts))
            for (document, index, passage), text, state, vector in zip(group, texts, states, vectors, strict=True):
                stored.append(
                    StoredPassage(
                        passage_id=f"{document.id}:{index}",
                        document_id=document.id,
                        title=document.title,
                        start=passage.start,
                        end=passage.end,
                        text=text,
                        token_ids=np.asarray(passage.ids, dtype=np.int32),
                        states=self._store.codec.encode(state),
                        vector=vector,
                    )
                )
                self.report.tokens += len(passage.ids)
                self._unknown.add(document.id, passage.ids)
        self.report.passages += len(stored)
        return stored

    def _committed(self, ids: list[str]) -> None:
        self.report.documents_read += len(ids)
        self.report.unknown += self._unknown.close(ids)
        self._commits += 1
        self._tell(ids, self._bytes_within)
        if self._commits % _COMMITS_PER_TIDYING == 0:
            self._writer.tidy()

    def _tell_cutting(self, document: Document, place: int) -> None:
        cutting = Cutting(round(place / len(document.text) * self._bytes_last), self._bytes_last)
        self._tell([], self._bytes_within - self._bytes_last, cutting)

    def _tell(self, ids: list[str], bytes_within: int, cutting: Cutting | None = None) -> None:
        if self._on_progress is not None:
            within = min(bytes_within, self._sizes.get(self._source, 0))
            done, total = self._bytes_before + within, sum(self._sizes.values())
            passages, tokens = self.report.passages, self.report.tokens
            self._on_progress(IndexProgress(ids, passages, tokens, done, total, self.elapsed(), cutting))


def _groups(passages: Sequence[_Item]) -> Iterator[list[_Item]]:
    group: list[_Item] = []
    tokens = 0
    for item in passages:
        group.append(item)
        tokens += len(item[-1].ids)
        if tokens >= _GROUP_TOKENS:
            yield group
            group, tokens = [], 0
    if group:
        yield group


def _stored_document(document: Document, passages: list[StoredPassage]) -> StoredDocument:
    return StoredDocument(document_id=document.id, sha256=document.sha256, title=document.title, passages=passages)


def _no_words(document: Document) -> DocumentError:
    return DocumentError(
        f"expected words in {document.id}, but the tokenizer finds none in {count(len(document.text), 'character')}; "
        "leave it out"
    )
