"""Sentence encoders: the vectors of sentence-transformers, whatever the batch, and kept in its layout."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from narrows import Embedder
from narrows.errors import ConversionError
from narrows.hf.encoders import Encoder
from narrows.hf.sentence_encoder import SentenceEncoder, load_sentence_encoder
from narrows.hf.sentence_layout import SentenceLayout, load_dense, read_layout, save_layout
from narrows.serving.batching import Batcher

_TEXTS = ("the king walked", "a", "the boat went down the river to the old mill", "")


def _vectors(embedder, texts, **options) -> np.ndarray:
    windows = embedder.windows(texts, wordless=True, **options)
    return np.stack([row.value for window in windows for row in window])


@pytest.fixture
def saved(tiny_bert, tmp_path):
    """A checkpoint with a pooling, and perhaps a linear layer."""

    def make(pooling="mean", dense=None, **fields):
        folder = tmp_path / f"{pooling}-{dense is not None}"
        shutil.copytree(tiny_bert, folder)
        layout = SentenceLayout(folder, **{"pooling": pooling, "normalize": True, "max_tokens": 64, **fields})
        save_layout(layout, width=24, dense=dense)
        return folder

    return make


@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "pooler_output"])
@pytest.mark.parametrize("projected", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
def test_the_vectors_are_those_of_sentence_transformers(pooling, projected, normalize, saved) -> None:
    peer = pytest.importorskip("sentence_transformers")
    torch.manual_seed(0)
    folder = saved(pooling, nn.Linear(24, 7, bias=pooling == "max") if projected else None, normalize=normalize)
    embedder = Embedder.from_pretrained(folder)
    assert (embedder.pooling, embedder.normalize, embedder.width) == (pooling, normalize, 7 if projected else 24)
    expected = peer.SentenceTransformer(str(folder), device="cpu").encode(list(_TEXTS))
    np.testing.assert_allclose(_vectors(embedder, _TEXTS), expected, atol=1e-5)


def test_a_layout_that_is_written_is_read_again(saved) -> None:
    prompts = {"prompts": {"query": "q: ", "document": ""}, "default_prompt_name": "query"}
    fields = {"prompts": prompts["prompts"], "default_prompt": "query", "lowercase": True, "pools_prompt": False}
    folder = saved("max", nn.Linear(24, 3), **fields)
    expected = SentenceLayout(folder, "max", folder / "2_Dense", True, 64, **fields)
    assert read_layout(folder) == expected
    assert read_layout(saved("cls", normalize=False))._replace(folder=folder) == SentenceLayout(
        folder, "cls", max_tokens=64
    )


def test_a_linear_layer_counts_in_what_vectors_depend_on(saved, tiny_bert) -> None:
    torch.manual_seed(0)
    folder = saved("mean", nn.Linear(24, 5))
    settings = Embedder.from_pretrained(folder).settings()
    shutil.rmtree(folder)
    assert settings["model"] != Embedder.from_pretrained(saved("mean", nn.Linear(24, 5))).settings()["model"]
    assert settings["model"] != Embedder.from_pretrained(tiny_bert).settings()["model"]


def test_a_vector_is_the_same_alone_as_in_a_batch(tiny_bert) -> None:
    embedder, narrow = (Embedder.from_pretrained(tiny_bert, normalize=True, batch_tokens=n) for n in (8192, 1))
    told = []
    together = _vectors(embedder, _TEXTS, on_tokens=told.append)
    alone = [_vectors(narrow, [text])[0] for text in _TEXTS]
    np.testing.assert_allclose(together, alone, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)
    assert sum(told) == sum(row.tokens for window in embedder.windows(_TEXTS, wordless=True) for row in window)


def test_a_model_with_a_head_gives_the_same_states_and_logits(tiny_bert) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    plain = AutoModel.from_pretrained(tiny_bert).eval()
    headed = AutoModelForMaskedLM.from_pretrained(tiny_bert).eval()
    batch = tokenizer(["the king", "a boat on the river"], padding=True, return_tensors="pt")
    with torch.inference_mode():
        ours = SentenceEncoder(plain, pooling="mean").read(batch, states=True)
        theirs = SentenceEncoder(headed, pooling="mean").read(batch, states=True)
        only_logits = SentenceEncoder(headed, pooling="cls").read(batch)
    torch.testing.assert_close(ours.embedding, theirs.embedding)
    assert len(ours.states) == len(theirs.states) == 6 and not only_logits.states
    assert ours.logits is None and theirs.logits is not None
    torch.testing.assert_close(theirs.logits, only_logits.logits)


class _Shorter(nn.Module):
    """An encoder that gives a state for every two tokens after the first, and says or does not say which are real."""

    class config:
        separate_cls = True
        hidden_size = 24
        model_type = "shorter"

    def __init__(self, model, says):
        super().__init__()
        self.model, self.says, self.device = model, says, torch.device("cpu")

    def forward(self, input_ids, attention_mask, **options):
        from narrows.core.pooling import window_means

        outputs = self.model(input_ids=input_ids, attention_mask=attention_mask)
        slots = 1 + input_ids.shape[1] // 2
        found = window_means(outputs.last_hidden_state, attention_mask != 0, slots=slots, separate_cls=True)
        outputs.last_hidden_state = found.means
        if self.says:
            outputs.pooled_attention_mask = found.real.long()
        return outputs


@pytest.mark.parametrize("says", [True, False])
def test_states_that_are_fewer_than_the_tokens_are_pooled_where_real(says, tiny_bert) -> None:
    shorter = _Shorter(AutoModel.from_pretrained(tiny_bert).eval(), says)
    encoder = Encoder("shorter", shorter, AutoTokenizer.from_pretrained(tiny_bert))
    embedder = Embedder(encoder, Batcher(encoder, max_tokens=128), pooling="mean", normalize=True)
    alone = np.concatenate([_vectors(embedder, [text]) for text in _TEXTS])
    np.testing.assert_allclose(_vectors(embedder, _TEXTS), alone, atol=1e-5)


def test_states_that_come_block_by_block_are_taken_in_a_row(tiny_bert) -> None:
    plain = AutoModel.from_pretrained(tiny_bert).eval()

    class InBlocks(nn.Module):
        config = plain.config

        def forward(self, input_ids, attention_mask, **options):
            outputs = plain(input_ids=input_ids, attention_mask=attention_mask, **options)
            outputs.hidden_states = (outputs.hidden_states[:3], outputs.hidden_states[3:])
            return outputs

    ids = torch.tensor([[2, 50, 60, 3]])
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with torch.inference_mode():
        found = SentenceEncoder(InBlocks(), pooling="mean").read(batch, states=True)
        expected = SentenceEncoder(plain, pooling="mean").read(batch, states=True)
    assert len(found.states) == 6
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(found.states, expected.states, strict=True))


def test_what_is_refused(saved) -> None:
    folder = saved()
    config = json.loads((folder / "1_Pooling" / "config.json").read_text())
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({**config, "pooling_mode_max_tokens": True}))
    with pytest.raises(
        ConversionError, match=r"expected a checkpoint with a pooling of cls, max, mean, got .*max\+mean"
    ):
        load_sentence_encoder(read_layout(folder), folder)
    assert load_sentence_encoder(read_layout(folder), folder, pooling="cls")[1].pooling == "cls"
    other = saved("cls", nn.Linear(24, 3))
    path = other / "2_Dense" / "config.json"
    fields = json.loads(path.read_text())
    for change, said in [
        ({"activation_function": "torch.nn.modules.activation.Tanh"}, "one with torch.nn.modules.activation.Tanh"),
        ({"use_residual": True}, "one with a residual"),
    ]:
        path.write_text(json.dumps({**fields, **change}))
        with pytest.raises(
            ConversionError, match=f"expected one linear layer without an activation after the pooling .*{said}"
        ):
            load_dense(read_layout(other))
    path.write_text(json.dumps(fields))
    weights = load_file(other / "2_Dense" / "model.safetensors")
    save_file({"linear.weight": weights["linear.weight"][:, :9].contiguous()}, other / "2_Dense" / "model.safetensors")
    with pytest.raises(ConversionError, match="expected a linear layer over the 24 numbers of .*, got one over 9 in"):
        load_sentence_encoder(read_layout(other), other)
    save_file({"weight.g": weights["linear.bias"]}, other / "2_Dense" / "model.safetensors")
    with pytest.raises(
        ConversionError, match=r"expected linear\.weight and perhaps linear\.bias in .*, got weight\.g; c"
    ):
        load_sentence_encoder(read_layout(other), other)
