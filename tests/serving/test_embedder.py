"""Vectors of texts: the same as a plain loop gives, in order, alone and in any batch, and each mistake a sentence."""

import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer, BertConfig

from narrows import Embedder
from narrows.core.pooling import pool
from narrows.documents.texts import Text
from narrows.errors import ConversionError, UsageError
from narrows.hf.encoders import Encoder
from narrows.serving.batching import Batcher

_SENTENCE = "the old mill near river was built by king and a boat went down to stone city in winter"
WORDS = _SENTENCE.split()


def _texts(number: int = 23, seed: int = 0) -> list[str]:
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, size=size)) for size in generator.integers(4, 60, size=number)]


@pytest.fixture
def bert(tiny_encoder) -> str:
    return str(tiny_encoder("bert"))


def _one_by_one(folder, texts, pooling: str) -> np.ndarray:
    """What anybody would write with transformers alone."""
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    found = []
    for text in texts:
        inputs = tokenizer(text, return_tensors="pt")
        if model.config.model_type in ("distilbert", "t5"):
            inputs.pop("token_type_ids", None)
        with torch.inference_mode():
            states = model(**inputs).last_hidden_state[0]
        found.append({"mean": states.mean(0), "cls": states[0], "max": states.amax(0)}[pooling].numpy())
    return np.stack(found)


KINDS = ["bert", "roberta", "distilbert", "electra", "albert", "funnel", "funnel-base", "fnet", "convbert"]


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_are_those_of_a_plain_loop(kind, tiny_encoder) -> None:
    extra = {"num_attention_heads": 4} if kind == "convbert" else {}
    folder, texts = tiny_encoder(kind, **extra), _texts()
    expected = _one_by_one(folder, texts, "mean")
    found = Embedder.from_pretrained(folder, batch_tokens=150).embed(texts)
    assert found.dtype == np.float32 and found.shape == (len(texts), 24)
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_poolings(pooling, bert) -> None:
    texts = _texts()
    embedder = Embedder.from_pretrained(bert, pooling=pooling, batch_tokens=150)
    np.testing.assert_allclose(embedder.embed(texts), _one_by_one(bert, texts, pooling), atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", ["mulla", "longt5", "tglobal", "t5"])
def test_encoders_of_t5s_are_embedders(kind, tiny_seq2seq) -> None:
    folder, texts = tiny_seq2seq(kind), _texts(9)
    embedder = Embedder.from_pretrained(folder, batch_tokens=200)
    model = embedder.encoder.model
    assert not any("decoder" in name for name in model.state_dict())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        expected = [
            model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0).numpy() for text in texts
        ]
    np.testing.assert_allclose(embedder.embed(texts), np.stack(expected), atol=1e-5, rtol=0)


def test_a_deformer_is_an_embedder(tiny_bert, tmp_path) -> None:
    from narrows.deformer.convert import convert_checkpoint

    model, _ = convert_checkpoint(tiny_bert, split_layer=0, task="question-answering", max_passage_tokens=60)
    model.save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(tmp_path)
    texts = [" ".join(text.split()[:20]) for text in _texts(8)]
    alone = np.concatenate([Embedder.from_pretrained(tmp_path).embed([text]) for text in texts[:3]])
    np.testing.assert_allclose(Embedder.from_pretrained(tmp_path).embed(texts)[:3], alone, atol=1e-5, rtol=0)


@given(lengths=st.lists(st.integers(1, 50), min_size=1, max_size=20), budget=st.integers(1, 300))
@settings(max_examples=10)
def test_alone_equals_batched_in_any_order(tiny_encoder, lengths, budget) -> None:
    embedder = Embedder.from_pretrained(tiny_encoder("bert"), batch_tokens=budget)
    texts = [" ".join(WORDS[(number + step) % len(WORDS)] for step in range(n)) for number, n in enumerate(lengths)]
    alone = np.concatenate([embedder.embed([text]) for text in texts])
    np.testing.assert_allclose(embedder.embed(texts), alone, atol=1e-5, rtol=0)
    np.testing.assert_allclose(embedder.embed(texts[::-1])[::-1], alone, atol=1e-5, rtol=0)


def test_a_stream_reads_no_further_than_its_window(bert) -> None:
    read = []

    def texts():
        for number in range(100_000):
            read.append(number)
            yield f"boat {number}"

    rows = Embedder.from_pretrained(bert, batch_tokens=64).stream(texts())
    first = [next(rows) for _ in range(3)]
    assert [row.text.id for row in first] == [1, 2, 3] and first[0].tokens == 4
    assert len(read) < 1000


def test_vectors_may_have_length_one(bert) -> None:
    plain = Embedder.from_pretrained(bert).embed(_texts(4))
    unit = Embedder.from_pretrained(bert, normalize=True).embed(_texts(4))
    np.testing.assert_allclose(unit, plain / np.linalg.norm(plain, axis=1, keepdims=True), atol=1e-6)


def test_no_texts_are_no_rows(bert) -> None:
    assert Embedder.from_pretrained(bert).embed([]).shape == (0, 24)


def test_a_texts_own_special_token_is_text(bert) -> None:
    embedder = Embedder.from_pretrained(bert)
    assert next(embedder.stream(["a [SEP] b"])).tokens > 5


def test_long_texts_are_refused_or_cut_and_told(bert) -> None:
    embedder = Embedder.from_pretrained(bert)
    long = " ".join(["boat"] * 300)
    assert embedder.max_tokens == 128
    with pytest.raises(UsageError, match=r"expected texts of at most 128 tokens, got 302 in 2; pass truncate \(--tr"):
        embedder.embed(["boat", long])
    rows = list(embedder.stream(["boat", long], truncate=True))
    assert [(row.tokens, row.tokens_not_read) for row in rows] == [(3, 0), (128, 174)]
    np.testing.assert_allclose(rows[1].value, embedder.embed([" ".join(["boat"] * 126)])[0], atol=1e-6)
    assert Embedder.from_pretrained(bert, max_tokens=10).max_tokens == 10


def test_robertas_positions_begin_behind_its_padding(tiny_encoder) -> None:
    folder = tiny_encoder("roberta")
    embedder = Embedder.from_pretrained(folder)
    assert embedder.encoder.positions == 128
    assert embedder.embed([" ".join(["boat"] * 126)]).shape == (1, 24)


class _Halving(torch.nn.Module):
    """An encoder whose states are the means of two neighbouring real tokens, as the Funnel family will have them."""

    def __init__(self, vocabulary: int, *, tells: bool):
        super().__init__()
        self.config = BertConfig(vocab_size=vocabulary, hidden_size=4)
        self.table, self.tells, self.device = torch.nn.Embedding(vocabulary, 4), tells, torch.device("cpu")

    def forward(self, input_ids, attention_mask):
        if input_ids.shape[1] % 2:
            input_ids, attention_mask = (torch.nn.functional.pad(x, (0, 1)) for x in (input_ids, attention_mask))
        real = attention_mask.unflatten(1, (-1, 2)).unsqueeze(-1)
        states = (self.table(input_ids).unflatten(1, (-1, 2)) * real).sum(2) / real.sum(2).clamp_min(1)
        pooled = attention_mask.unflatten(1, (-1, 2)).amax(2)
        return SimpleNamespace(last_hidden_state=states, **({"pooled_attention_mask": pooled} if self.tells else {}))


def _halving(bert: str, *, tells: bool) -> Embedder:
    tokenizer = AutoTokenizer.from_pretrained(bert)
    encoder = Encoder("halving", _Halving(len(tokenizer), tells=tells), tokenizer)
    return Embedder(encoder, Batcher(encoder, max_tokens=None), pooling="mean", normalize=False)


def test_states_that_got_fewer_are_pooled_by_their_own_mask(bert) -> None:
    embedder, texts = _halving(bert, tells=True), _texts(7)
    alone = np.concatenate([embedder.embed([text]) for text in texts])
    np.testing.assert_allclose(embedder.embed(texts), alone, atol=1e-6)
    # Without padding every state is a real one.
    np.testing.assert_allclose(_halving(bert, tells=False).embed(["boat boat"]).shape, (1, 4))
    with pytest.raises(ConversionError, match="expected a state for each token of halving, or a pooled_attention_mask"):
        _halving(bert, tells=False).embed(["boat", "the old boat near the mill"])


def test_pooling_of_a_row_without_tokens_is_zero() -> None:
    states, mask = torch.ones(2, 3, 4), torch.tensor([[0, 0, 0], [1, 0, 0]])
    for how in ("mean", "max"):
        assert pool(states, mask, how).tolist() == [[0.0] * 4, [1.0] * 4]


def test_padding_that_is_not_finite_does_not_matter() -> None:
    states = torch.tensor([[[1.0], [float("nan")]]])
    for how in ("mean", "max"):
        assert pool(states, torch.tensor([[1, 0]]), how).tolist() == [[1.0]]


def test_bfloat16_is_near(bert) -> None:
    wide, narrow = Embedder.from_pretrained(bert), Embedder.from_pretrained(bert, dtype="bfloat16")
    assert narrow.embed(_texts(3)).dtype == np.float32
    np.testing.assert_allclose(narrow.embed(_texts(3)), wide.embed(_texts(3)), atol=0.1)
    assert wide.settings() != narrow.settings()


@pytest.mark.parametrize(
    "head", ["FunnelModel", "FunnelBaseModel", "FunnelForEmbedding", "FunnelForSequenceClassification"]
)
@pytest.mark.parametrize("semantics", ["exact", "hf"])
def test_our_funnel(tiny_bert, tmp_path, head, semantics) -> None:
    heads = pytest.importorskip("narrows.funnel.heads", reason="needs the Funnel family")
    models = pytest.importorskip("narrows.funnel", reason="needs the Funnel family")
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    config = models.FunnelConfig(
        vocab_size=len(tokenizer),
        block_sizes=[1, 1, 1],
        n_head=3,
        d_head=8,
        d_inner=30,
        d_model=24,
        semantics=semantics,
    )
    made = getattr(heads if "For" in head else models, head)
    _saved(made(config).eval(), str(tiny_bert), tmp_path)
    embedder, texts = Embedder.from_pretrained(tmp_path, batch_tokens=150), _texts(9)
    assert embedder.pooling == ("pooler_output" if head == "FunnelForEmbedding" else "mean")
    alone = np.concatenate([embedder.embed([text]) for text in texts])
    np.testing.assert_allclose(embedder.embed(texts), alone, atol=1e-5, rtol=0)


def test_what_is_no_text_is_refused(bert) -> None:
    embedder = Embedder.from_pretrained(bert)
    for texts, said in [
        (["boat", ""], "expected words in text 2, got nothing; leave it out"),
        ([" \n"], "expected words in text 1, got only spaces; leave it out"),
        ("boat", "expected several texts, got one; pass a list"),
        ([3], "expected a string or a pair of them as text 1, got int; pass a text"),
        (["boat", "caf\udce9"], "expected text 2 in Unicode, but its character 3 is a byte that is not UTF-8 or half"),
        ([("a", "\ud83d")], "expected text 1 in Unicode, but its character 0 is a byte that is not UTF-8 or half of a"),
        (["boat", ("a", "b")], "expected texts only, or pairs only, got both; pass them apart"),
    ]:
        with pytest.raises(UsageError, match=said):
            embedder.embed(texts)
    with pytest.raises(UsageError, match="expected a prompt in Unicode, but its character 3 is a byte that is not"):
        Embedder.from_pretrained(bert, prompt="caf\udce9")
    with pytest.raises(UsageError, match="expected words in text 'a.txt', got nothing"):
        embedder.embed([Text("a.txt", "")])


def test_settings_that_cannot_be(bert, tiny_encoder) -> None:
    for fields, said in [
        ({"pooling": "last"}, "expected a pooling of cls, max, mean, got 'last'; choose one of them"),
        ({"dtype": "float16"}, "expected a dtype of float32 or bfloat16, got 'float16'; choose one of them"),
        ({"batch_tokens": 0}, "expected batch_tokens of at least 1, got 0; pass a larger budget"),
        ({"max_tokens": 2}, r"expected max_tokens \(--max-tokens\) of more than 2, the special tokens, got 2; pass"),
        ({"max_tokens": 129}, r"expected max_tokens \(--max-tokens\) of at most 128, the positions of .*, got 129; p"),
    ]:
        with pytest.raises(UsageError, match=said):
            Embedder.from_pretrained(bert, **fields)
    if not torch.cuda.is_available():
        with pytest.raises(
            UsageError, match="expected a GPU for the device cuda, got none that torch can see; use cpu"
        ):
            Embedder.from_pretrained(bert, device="cuda")
    with pytest.raises(
        UsageError, match="expected texts of at least 5 tokens for .*, got 3 in 1; leave it out, or name"
    ):
        Embedder.from_pretrained(tiny_encoder("funnel")).embed(["boat"])


def _saved(model, bert: str, folder) -> str:
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(bert).save_pretrained(folder)
    return str(folder)


def test_what_is_no_encoder_is_refused(bert, tmp_path) -> None:
    from transformers import BartConfig, BartModel, GPT2Config, GPT2Model

    bart = BartModel(
        BartConfig(
            vocab_size=600, d_model=8, encoder_layers=1, decoder_layers=1, encoder_attention_heads=1,
            decoder_attention_heads=1, encoder_ffn_dim=8, decoder_ffn_dim=8,
        )
    )  # fmt: skip
    with pytest.raises(ConversionError, match="expected an encoder, got .* of type 'bart', an encoder with a decoder;"):
        Embedder.from_pretrained(_saved(bart, bert, tmp_path / "bart"))
    gpt = GPT2Model(GPT2Config(vocab_size=600, n_embd=8, n_layer=1, n_head=1))
    with pytest.raises(ConversionError, match="expected an encoder, got .* of type 'gpt2', which reads from left to r"):
        Embedder.from_pretrained(_saved(gpt, bert, tmp_path / "gpt"))


def test_a_checkpoint_that_is_not_whole_is_refused(bert, tmp_path) -> None:
    folder = tmp_path / "broken"
    shutil.copytree(bert, folder)
    weights = load_file(folder / "model.safetensors")
    name = "encoder.layer.1.attention.self.query.weight"
    save_file({key: value for key, value in weights.items() if key != name}, folder / "model.safetensors")
    with pytest.raises(
        ConversionError, match=f"expected all weights of .*, got none for {name}; the checkpoint is inc"
    ):
        Embedder.from_pretrained(folder)
    save_file({**weights, name: torch.zeros(3, 3)}, folder / "model.safetensors")
    with pytest.raises(ConversionError, match=rf"expected {name} of .* in the shape \[24, 24\] .*, got \[3, 3\]; copy"):
        Embedder.from_pretrained(folder)
    save_file(weights, folder / "model.safetensors")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens([f"word{number}" for number in range(9)])
    tokenizer.save_pretrained(folder)
    with pytest.raises(ConversionError, match="expected at least .* embeddings in .*, one for each of its tokenizer's"):
        Embedder.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(bert)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(folder)
    with pytest.raises(ConversionError, match="expected a tokenizer with pad_token in .*, got none; add it to token"):
        Embedder.from_pretrained(folder)
    (folder / "config.json").write_text('{"model_type": "nothing"}')
    with pytest.raises(ConversionError, match=r"expected a config\.json of a known model in .*, got none that can be"):
        Embedder.from_pretrained(folder)
