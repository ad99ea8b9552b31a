"""Small documents with random states, reproducible from their id and their content number."""

import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from narrows.store import Fingerprint, Store, StoredDocument, StoredPassage, get_codec

WIDTH = 16


def build_document(
    document_id: str,
    texts: list[str] | None = None,
    *,
    sha256: str = "1" * 64,
    codec: str = "int8",
    vector_width: int = 0,
    tokens: int | None = None,
    width: int = WIDTH,
) -> StoredDocument:
    """A document of one passage a text; `sha256` seeds the states, so that other content has other bytes."""
    texts = ["the harbour festival", "a clock that runs"] if texts is None else texts
    seed = zlib.crc32(f"{document_id}{sha256}".encode("utf-8", "surrogatepass"))
    generator = torch.Generator().manual_seed(seed)
    numbers = np.random.default_rng(seed)
    passages = []
    for index, text in enumerate(texts):
        count = tokens or 1 + (seed + 3 * index) % 9
        passages.append(
            StoredPassage(
                passage_id=f"{document_id}:{index}",
                document_id=document_id,
                title=f"Title of {document_id}",
                start=100 * index,
                end=100 * index + len(text),
                text=text,
                token_ids=numbers.integers(0, 30_000, count).astype(np.int32),
                states=get_codec(codec).encode(torch.randn(count, width, generator=generator)),
                vector=numbers.standard_normal(vector_width).astype(np.float16) if vector_width else None,
            )
        )
    return StoredDocument(document_id=document_id, sha256=sha256, title="Title", passages=passages)


@pytest.fixture
def document() -> Callable[..., StoredDocument]:
    return build_document


@pytest.fixture
def fingerprint() -> Fingerprint:
    return Fingerprint(weights="a" * 64, tokenizer="b" * 64, split_layer=4, layout="joint", width=WIDTH, codec="int8")


@pytest.fixture
def store(tmp_path: Path, fingerprint: Fingerprint):
    with Store.create(tmp_path / "library.store", fingerprint) as store:
        yield store


@pytest.fixture
def data_files() -> Callable[[Store], list[Path]]:
    """The Lance data files of a store, oldest first."""
    return lambda store: sorted(
        (store.path / "passages.lance" / "data").iterdir(), key=lambda path: path.stat().st_mtime_ns
    )
