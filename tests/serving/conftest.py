"""A tiny random reader and a tiny library in a store; its answers mean nothing, but are always the same."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

WORDS = (
    *("the", "river", "boat", "town", "clock", "night", "sea", "bird", "stone", "house", "father"),
    *("12", "1,250.5", "café", "light's", "naïvely"),
)


def _prose(seed: int, sentences: int) -> str:
    choice = random.Random(seed)
    return " ".join(f"The {' '.join(choice.choices(WORDS, k=7))}." for _ in range(sentences))


@pytest.fixture(scope="session")
def prose() -> Callable[[int, int], str]:
    """Makes a text from a seed and a number of sentences."""
    return _prose


@pytest.fixture(scope="session")
def tiny_reader_folder(tiny_bert, tmp_path_factory) -> Path:
    """A random split span model with its tokenizer; passages of at most 60 tokens."""
    from transformers import AutoTokenizer

    from narrows.deformer.convert import convert_checkpoint

    folder = tmp_path_factory.mktemp("tiny-reader")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model, _ = convert_checkpoint(
            tiny_bert, split_layer=3, task="question-answering", max_passage_tokens=60, max_answer_tokens=8
        )
        torch.nn.init.normal_(model.qa_outputs.weight, std=0.5)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(folder)
    return folder


@pytest.fixture
def reader(tiny_reader_folder):
    """A reader of its own for each test, so that a test may change its threshold."""
    from narrows.serving import Reader

    return Reader.from_pretrained(tiny_reader_folder)


@pytest.fixture(scope="session")
def tiny_library(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("tiny-library")
    for number in range(4):
        (root / f"note{number}.txt").write_text(_prose(number, 12), encoding="utf-8")
    (root / "page.md").write_bytes("# The river\r\n\r\nThe bōat wént 渡し船 down. 🙂 It rained.\r\n".encode())
    return root


@pytest.fixture(scope="session")
def tiny_store(tiny_reader_folder, tiny_library, tmp_path_factory) -> Path:
    """The library's passages with lossless states."""
    from narrows.serving.engine import Engine
    from narrows.serving.indexing import index_folder

    path = tmp_path_factory.mktemp("tiny-store") / "library.store"
    index_folder(tiny_library, path, Engine.from_pretrained(tiny_reader_folder), codec="fp32")
    return path


@pytest.fixture(scope="session")
def texts(tiny_library) -> dict[str, str]:
    """The text of every document by its id."""
    from narrows.documents import read_documents

    return {document.id: document.text for document in read_documents(tiny_library, lambda *_: None)}
