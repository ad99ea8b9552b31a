"""Recipes of a tiny BERT over a little raw text."""

from collections.abc import Callable
from pathlib import Path

import pytest

from narrows.training.pretraining.recipe import PretrainingRecipe


@pytest.fixture
def pretraining_recipe(tiny_bert: Path) -> Callable[..., PretrainingRecipe]:
    """A recipe of 30 steps; `sections` replace its own keys one by one."""

    def make(**sections) -> PretrainingRecipe:
        raw = {
            "name": "tiny",
            "task": "masked-lm",
            "model": {
                "family": "bert",
                "tokenizer": str(tiny_bert),
                "config": {
                    "hidden_size": 24,
                    "num_hidden_layers": 2,
                    "num_attention_heads": 3,
                    "intermediate_size": 48,
                    "max_position_embeddings": 64,
                },
            },
            "data": {"train": [{"file": "train-*.txt"}], "tune": [{"file": "tune.txt"}], "length": 32},
            "optimiser": {"steps": 30, "batch_tokens": 256, "learning_rate": 1e-2, "warmup": 0.1, "seed": 3},
            "evaluate": {"limit": 8},
            "evaluate_every": 10,
        }
        for name, value in sections.items():
            raw[name] = {**raw[name], **value} if isinstance(raw.get(name), dict) else value
        return PretrainingRecipe.model_validate(raw)

    return make
