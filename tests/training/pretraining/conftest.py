"""A little raw text, and recipes of a tiny BERT over it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from narrows.training.pretraining.recipe import PretrainingRecipe

_PLACES = ("north wall", "old mill", "gold road", "green island", "stone house", "white horse", "long river")


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`train-1.txt` and `train-2.txt` (120 documents of two lines), `tune.txt` (20)."""
    folder = tmp_path_factory.mktemp("text")
    for name, numbers in (("train-1", range(60)), ("train-2", range(60, 120)), ("tune", range(120, 140))):
        documents = [
            f"in the year {n} the {_PLACES[n % 7]} was near the water .\na child found the {_PLACES[n % 7]} there .\n"
            for n in numbers
        ]
        (folder / f"{name}.txt").write_text("\n".join(documents))
    return folder


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
