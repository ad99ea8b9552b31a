"""The size that is foretold and the size that comes."""

import random
from pathlib import Path

import pytest
import torch

from narrows.deformer import DeformerConfig, DeformerForQuestionAnswering
from narrows.errors import DocumentError, UsageError
from narrows.serving import pieces
from narrows.serving.engine import Engine
from narrows.serving.estimate import estimate_folder
from narrows.serving.indexing import index_folder
from narrows.store import Store


@pytest.fixture(scope="module")
def engine(tiny_bert) -> Engine:
    """Wide enough that the states outweigh the rest, as they do in earnest, and one layer to be quick."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    torch.manual_seed(0)
    config = DeformerConfig(
        vocab_size=len(tokenizer),
        split_layer=1,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_passage_tokens=100,
    )
    return Engine(DeformerForQuestionAnswering(config), tokenizer)


def compare(tmp_path: Path, engine: Engine, folder: Path, codec: str) -> None:
    estimate = estimate_folder(folder, engine, codec=codec)
    report = index_folder(folder, tmp_path / codec, engine, codec=codec)
    with Store.open(tmp_path / codec, expect=None) as store:
        info = store.info()
    assert (estimate.documents, estimate.passages) == (info.documents, info.passages)
    assert (estimate.tokens, estimate.bytes_text) == (report.tokens, info.bytes_text)
    assert estimate.bytes == pytest.approx(info.bytes_on_disk, rel=0.05)
    assert estimate.seconds > 0 and estimate.tokens_per_second > 0


@pytest.mark.parametrize("codec", ["int8", "fp32"])
def test_an_estimate_of_the_example_library_is_within_five_percent(tmp_path, engine, repository_root, codec) -> None:
    compare(tmp_path, engine, repository_root / "examples" / "library", codec)


def test_an_estimate_of_many_small_documents_is_within_five_percent(tmp_path, engine, monkeypatch) -> None:
    monkeypatch.setattr(pieces, "_PIECE_CHARACTERS", 5000)
    words = (Path(__file__).parents[1] / "conftest.py").read_text().split('_WORDS = """')[1].split('"""')[0].split()
    choice = random.Random(0)
    folder = tmp_path / "library"
    folder.mkdir()
    for number in range(60):
        count = 2000 if number == 30 else choice.randrange(20, 300)
        (folder / f"{number}.txt").write_text(" ".join(choice.choices(words, k=count)))
    compare(tmp_path, engine, folder, "int8")


def test_what_is_skipped_is_told(tmp_path, engine) -> None:
    (tmp_path / "a.txt").write_text("The boat.")
    (tmp_path / "b.txt").write_bytes(b"\x00")
    (tmp_path / "c.txt").write_text("\u200b")
    told: list[str] = []
    estimate = estimate_folder(tmp_path, engine, on_document=told.append)
    assert told == ["a.txt", "c.txt"] and (estimate.documents, estimate.passages) == (1, 1)
    assert [name for name, _ in estimate.skipped] == ["b.txt"]


def test_an_unknown_codec_and_an_empty_folder(tmp_path, engine) -> None:
    with pytest.raises(UsageError, match="a codec is one of"):
        estimate_folder(tmp_path, engine, codec="int4")
    with pytest.raises(DocumentError, match="holds none"):
        estimate_folder(tmp_path, engine)
