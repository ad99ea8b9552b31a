"""Recipes of a tiny GPT-2 over bytes, and a tokenizer of subwords for others."""

import bz2
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from narrows.training.language.recipe import LanguageRecipe

_TEXT = "".join(f"in the year {n} a child found the old mill, no. {n * n % 97}.\n" for n in range(120))


@pytest.fixture(scope="session")
def byte_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`train.xml.bz2` (6 KB of lines), `tune.txt` and `test.txt` (a tenth of it each)."""
    folder = tmp_path_factory.mktemp("bytes")
    (folder / "train.xml.bz2").write_bytes(bz2.compress(_TEXT.encode()))
    (folder / "tune.txt").write_text(_TEXT[600:1200])
    (folder / "test.txt").write_text(_TEXT[1200:1800])
    return folder


@pytest.fixture
def language_recipe() -> Callable[..., LanguageRecipe]:
    """A recipe of 12 steps; `sections` replace its own keys one by one."""

    def make(**sections) -> LanguageRecipe:
        raw = {
            "name": "tiny",
            "task": "causal-lm",
            "model": {
                "family": "gpt2",
                "tokenizer": "bytes",
                "config": {"n_layer": 2, "n_embd": 16, "n_head": 2, "n_positions": 64},
            },
            "data": {"train": [{"file": "train.xml.bz2"}], "split": [0.8, 0.1, 0.1], "length": 32},
            "optimiser": {"steps": 12, "batch_tokens": 256, "learning_rate": 1e-2, "dropout": 0.1, "seed": 3},
            "evaluate": {"stride": 16, "limit": 0.5},
            "evaluate_every": 5,
        }
        for name, value in sections.items():
            raw[name] = {**raw[name], **value} if isinstance(raw.get(name), dict) else value
        return LanguageRecipe.model_validate(raw)

    return make


@pytest.fixture(scope="session")
def subwords(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a byte-level tokenizer of 259 ids whose pieces are bytes and two words, with an end of text."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {piece: number for number, piece in enumerate([*letters, "th", "the", "<|endoftext|>"])}
    tokenizer = Tokenizer(BPE(vocabulary, [("t", "h"), ("th", "e")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    folder = tmp_path_factory.mktemp("subwords")
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>").save_pretrained(folder)
    return folder
