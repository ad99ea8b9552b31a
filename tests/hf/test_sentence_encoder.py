"""Sentence encoders: the vectors of sentence-transformers, whatever the batch, and kept in its layout."""

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from narrows.errors import ConversionError, UsageError
from narrows.hf.sentence_encoder import (
    SentenceEncoder,
    embed_texts,
    load_sentence_encoder,
    longest_text,
    read_rows,
    save_modules,
)

_TEXTS = ("the king walked", "a", "the boat went down the river to the old mill", "")


@pytest.fixture
def saved(tiny_bert, tmp_path):
    """A checkpoint with a pooling, and perhaps a linear layer."""

    def make(pooling="mean", dense=None):
        folder = tmp_path / f"{pooling}-{dense is not None}"
        shutil.copytree(tiny_bert, folder)
        save_modules(folder, pooling=pooling, width=24, max_tokens=64, dense=dense)
        return folder

    return make


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("projected", [False, True])
def test_the_vectors_are_those_of_sentence_transformers(pooling, projected, saved) -> None:
    peer = pytest.importorskip("sentence_transformers")
    torch.manual_seed(0)
    folder = saved(pooling, nn.Linear(24, 7, bias=False) if projected else None)
    encoder, tokenizer = load_sentence_encoder(folder)
    assert encoder.pooling == pooling
    expected = peer.SentenceTransformer(str(folder), device="cpu").encode(list(_TEXTS))
    found = embed_texts(encoder, tokenizer, _TEXTS)
    np.testing.assert_allclose(found.vectors, expected, atol=1e-5)
    assert found.truncated == 0


def test_a_vector_is_the_same_alone_as_in_a_batch(tiny_bert) -> None:
    encoder, tokenizer = load_sentence_encoder(tiny_bert)
    told = []
    together = embed_texts(encoder, tokenizer, _TEXTS, on_texts=told.append).vectors
    alone = [embed_texts(encoder, tokenizer, [text], batch_tokens=1).vectors[0] for text in _TEXTS]
    np.testing.assert_allclose(together, alone, atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)
    assert sum(told) == 4
    assert embed_texts(encoder, tokenizer, []).vectors.shape[0] == 0


def test_texts_that_are_cut_are_counted(tiny_bert) -> None:
    encoder, tokenizer = load_sentence_encoder(tiny_bert)
    # 3, 5 and 6 tokens with the special ones.
    texts = ["king", "the old mill", "the old mill king"]
    assert embed_texts(encoder, tokenizer, texts, max_tokens=5).truncated == 1
    assert embed_texts(encoder, tokenizer, texts, max_tokens=4).truncated == 2


def test_a_model_with_a_head_gives_the_same_states_and_logits(tiny_bert) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    plain = AutoModel.from_pretrained(tiny_bert).eval()
    headed = AutoModelForMaskedLM.from_pretrained(tiny_bert).eval()
    batch = tokenizer(["the king", "a boat on the river"], padding=True, return_tensors="pt")
    inputs = batch["input_ids"], batch["attention_mask"]
    with torch.inference_mode():
        ours = read_rows(plain, *inputs, pooling="mean", states=True)
        theirs = read_rows(headed, *inputs, pooling="mean", states=True)
        only_logits = read_rows(headed, *inputs, pooling="cls")
    torch.testing.assert_close(ours.embedding, theirs.embedding)
    assert len(ours.states) == len(theirs.states) == 6 and not only_logits.states
    assert ours.logits is None and theirs.logits is not None
    torch.testing.assert_close(theirs.logits, only_logits.logits)


class _Shorter(nn.Module):
    """An encoder that gives a state for every two tokens after the first, and says or does not say which are real."""

    class config:
        separate_cls = True

    def __init__(self, model, says):
        super().__init__()
        self.model, self.says = model, says

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
    plain, tokenizer = load_sentence_encoder(tiny_bert)
    encoder = SentenceEncoder(_Shorter(plain.model, says), pooling="mean").eval()
    encoder.model.config.max_position_embeddings = 128
    together = embed_texts(encoder, tokenizer, _TEXTS, max_tokens=128).vectors
    alone = np.stack([embed_texts(encoder, tokenizer, [text], max_tokens=128).vectors[0] for text in _TEXTS])
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_states_that_come_block_by_block_are_taken_in_a_row(tiny_bert) -> None:
    plain = AutoModel.from_pretrained(tiny_bert).eval()

    class InBlocks(nn.Module):
        config = plain.config

        def forward(self, **inputs):
            outputs = plain(**inputs)
            outputs.hidden_states = (outputs.hidden_states[:3], outputs.hidden_states[3:])
            return outputs

    ids = torch.tensor([[2, 50, 60, 3]])
    with torch.inference_mode():
        found = read_rows(InBlocks(), ids, torch.ones_like(ids), pooling="mean", states=True)
        expected = read_rows(plain, ids, torch.ones_like(ids), pooling="mean", states=True)
    assert len(found.states) == 6
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(found.states, expected.states, strict=True))


def test_what_is_refused(saved, tiny_seq2seq) -> None:
    folder = saved()
    config = json.loads((folder / "1_Pooling" / "config.json").read_text())
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({**config, "pooling_mode_max_tokens": True}))
    with pytest.raises(
        ConversionError, match="expected mean or cls as the pooling of .*, got mean_tokens and max_tokens"
    ):
        load_sentence_encoder(folder)
    assert load_sentence_encoder(folder, pooling="cls")[0].pooling == "cls"
    with pytest.raises(
        ConversionError, match="expected an encoder in .*, got a model that writes text; choose a model"
    ):
        load_sentence_encoder(tiny_seq2seq("t5"))
    other = saved("cls", nn.Linear(24, 3))
    fields = json.loads((other / "2_Dense" / "config.json").read_text())
    fields["activation_function"] = "torch.nn.modules.activation.Tanh"
    (other / "2_Dense" / "config.json").write_text(json.dumps(fields))
    with pytest.raises(
        ConversionError, match="expected one linear layer without an activation after the pooling .*Tanh"
    ):
        load_sentence_encoder(other)
    limitless = SimpleNamespace(config=SimpleNamespace(), model_max_length=10**30)
    with pytest.raises(UsageError, match="expected a longest text, since neither the encoder nor its tokenizer names"):
        longest_text(limitless, limitless)  # type: ignore[arg-type]
