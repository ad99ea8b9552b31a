"""One vector a text: padding changes nothing, and sentence-transformers reads the saved folder."""

import json

import pytest
import torch
from torch.nn import functional
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from narrows import register_all
from narrows.errors import UsageError
from narrows.funnel.config import FunnelConfig
from narrows.funnel.heads import FunnelForEmbedding, FunnelForMaskedLM, save_sentence_modules
from narrows.funnel.model import FunnelBaseModel

SIZES = {"d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 24, "block_sizes": [1, 1, 1], "initializer_std": 0.3}


def build(kind=FunnelForEmbedding, **changes):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return kind(FunnelConfig(**{**SIZES, "vocab_size": 43, **changes})).eval()


@torch.no_grad()
@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_vector_is_the_same_alone_and_in_a_batch(pooling, side) -> None:
    model = build(embedding_pooling=pooling)
    for length in range(1, 14):
        ids = torch.randint(1, 43, (1, length), generator=torch.Generator().manual_seed(length))
        pads = (4, 0) if side == "left" else (0, 4)
        padded, mask = (functional.pad(each, pads) for each in (ids, torch.ones_like(ids)))
        alone = model(ids)
        torch.testing.assert_close(
            model(padded, attention_mask=mask).pooler_output, alone.pooler_output, atol=1e-5, rtol=1e-5
        )
        states = alone.last_hidden_state
        expected = {"mean": states.mean(1), "cls": states[:, 0], "max": states.amax(1)}[pooling]
        torch.testing.assert_close(alone.pooler_output, expected)


@torch.no_grad()
def test_a_row_without_tokens_is_zeros_or_finite() -> None:
    ids, mask = torch.ones(2, 6, dtype=torch.long), torch.tensor([[0] * 6, [1] * 6])
    for pooling in ("mean", "max"):
        assert not build(embedding_pooling=pooling)(ids, attention_mask=mask).pooler_output[0].any()
    assert build(embedding_pooling="cls")(ids, attention_mask=mask).pooler_output.isfinite().all()


def test_auto_classes_know_the_heads(tmp_path) -> None:
    register_all()
    for kind in (FunnelForEmbedding, FunnelBaseModel):
        build(kind).save_pretrained(tmp_path / kind.__name__)
        assert type(AutoModel.from_pretrained(tmp_path / kind.__name__)) is kind
    build(FunnelForMaskedLM).save_pretrained(tmp_path / "lm")
    assert type(AutoModelForMaskedLM.from_pretrained(tmp_path / "lm")) is FunnelForMaskedLM


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_sentence_transformers_gives_the_same_vectors(pooling, tiny_bert, tmp_path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    register_all()
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    model = build(embedding_pooling=pooling, vocab_size=len(tokenizer))
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    save_sentence_modules(tmp_path, model.config, max_tokens=32)
    texts = ["a short one", "the house by the river where the old bridge was", "bees"]
    encoder = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu")
    theirs = torch.from_numpy(encoder.encode(texts, batch_size=3, show_progress_bar=False))
    rows = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        ours = functional.normalize(model(rows["input_ids"], rows["attention_mask"]).pooler_output, dim=-1)
    # Its tokenizer also gives segments, all of one.
    torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=1e-5)
    assert encoder.max_seq_length == 32
    assert [module["idx"] for module in json.loads((tmp_path / "modules.json").read_text())] == [0, 1]


def test_a_text_has_at_least_a_token(tmp_path) -> None:
    with pytest.raises(UsageError, match="`max_tokens` must be at least 1, got 0; 512 is usual"):
        save_sentence_modules(tmp_path, FunnelConfig(), max_tokens=0)
