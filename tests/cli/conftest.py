"""A tiny random reader and a folder of two documents, for what the command line does with them."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def checkpoint(tiny_bert, tmp_path_factory) -> Path:
    """A split span model with its tokenizer; tests leave it as it is."""
    from transformers import AutoTokenizer

    from narrows.deformer.convert import convert_checkpoint

    folder = tmp_path_factory.mktemp("tiny-deformer")
    model, _ = convert_checkpoint(tiny_bert, split_layer=3, task="question-answering", max_passage_tokens=60)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(tmp_path) -> Path:
    root = tmp_path / "library"
    root.mkdir()
    (root / "river.txt").write_text("The boat went down the river. The clock stood still.")
    (root / "birds.md").write_text("# Birds\n\nTwo birds sat on a stone.\n")
    return root
