"""A tiny Funnel with the tokenizer of its kind, and a recipe over the made-up questions."""

from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, FunnelTokenizer

from narrows.funnel import FunnelConfig, FunnelModel
from narrows.funnel.authors import with_segments
from narrows.training.spans.recipe import SpanRecipe

_SPECIAL = {"[PAD]": "<pad>", "[UNK]": "<unk>", "[CLS]": "<cls>", "[SEP]": "<sep>", "[MASK]": "<mask>"}


@pytest.fixture(scope="session")
def tiny_funnel(tmp_path_factory: pytest.TempPathFactory, tiny_bert: Path) -> Path:
    """A random Funnel of two blocks and a decoder, without a head, whose tokenizer gives [cls] a segment of its own."""
    folder = tmp_path_factory.mktemp("tiny-funnel")
    words = AutoTokenizer.from_pretrained(tiny_bert).get_vocab()
    vocabulary = {_SPECIAL.get(word, word): number for word, number in words.items()}
    vocabulary |= {"<s>": len(vocabulary), "</s>": len(vocabulary) + 1}
    tokenizer = with_segments(FunnelTokenizer(vocab=vocabulary, do_lower_case=True))
    tokenizer.save_pretrained(folder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = FunnelConfig(
            vocab_size=len(tokenizer),
            block_sizes=[2, 1],
            num_decoder_layers=1,
            d_model=24,
            n_head=3,
            d_head=8,
            d_inner=40,
            # With so few units, small weights would hide a wrong one.
            initializer_std=0.2,
            pad_token_id=tokenizer.pad_token_id,
        )
        FunnelModel(config).eval().save_pretrained(folder)
    return folder


@pytest.fixture
def encoder_recipe(tiny_funnel: Path):
    """A recipe of 12 steps or so; `sections` replace its own keys one by one."""

    def make(**sections) -> SpanRecipe:
        raw = {
            "name": "tiny",
            "model": {"checkpoint": str(tiny_funnel)},
            "data": {
                "train": [{"format": "squad", "file": "train.json"}],
                "tune": [{"format": "squad", "file": "tune.json"}],
                "max_question_tokens": 12,
                "max_passage_tokens": 24,
                "overlap": 8,
                "max_answer_tokens": 4,
            },
            "optimiser": {"epochs": 2, "batch_tokens": 300, "learning_rate": 1e-3, "seed": 3},
            "evaluate_every": 5,
        }
        for name, value in sections.items():
            raw[name] = {**raw[name], **value} if isinstance(raw.get(name), dict) else value
        return SpanRecipe.model_validate(raw)

    return make
