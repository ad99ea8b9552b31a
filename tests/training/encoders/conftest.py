"""Raw text, tiny students and a recipe over them."""

import json

import pytest

from narrows.training.encoders.recipe import EncoderRecipe

_LINES = (
    "The king went to the old mill. A child found the gold road beside the water.",
    "Who built the boat? It was made of wood! The river is long and the mountain is high.",
    "Two birds sat on a stone. One of them was small.",
    "At night the house near the sea is white. In the morning it is green, and the wind is light.",
)

BERT = {
    "model_type": "bert",
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 64,
}


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory):
    """`train.txt` and `tune.txt` in the layout of WikiText, `plain.txt`, and `pairs.json`."""
    folder = tmp_path_factory.mktemp("text")
    for name, times in (("train", 12), ("tune", 3)):
        articles = [
            f" = {name} {n} = \n {_LINES[n % 4]} \n {_LINES[(n * 3 + 1) % 4]} year {n} . " for n in range(times)
        ]
        (folder / f"{name}.txt").write_text("\n".join(articles))
    (folder / "plain.txt").write_text("\n".join([_LINES[0], _LINES[1], "", _LINES[2], "", "", _LINES[3]]))
    pairs = {"question_ids": ["a", "b"], "questions": ["Who came?", "Where?"], "answers": [_LINES[0], _LINES[2]]}
    (folder / "pairs.json").write_text(json.dumps(pairs))
    return folder


@pytest.fixture
def make_recipe(tiny_bert):
    """A recipe of some steps; `sections` replace its own keys one by one."""

    def make(**sections) -> EncoderRecipe:
        raw = {
            "name": "tiny",
            "task": "encoder-distillation",
            "model": {"config": BERT},
            "teacher": {"checkpoint": str(tiny_bert)},
            "data": {
                "train": [{"format": "articles", "file": "train.txt"}],
                "tune": [{"format": "articles", "file": "tune.txt"}],
                "lengths": [12, 40],
            },
            "optimiser": {"epochs": 3, "batch_tokens": 200, "learning_rate": 3e-3, "seed": 3, "weight_decay": 0},
            "evaluate_every": 5,
        }
        for name, value in sections.items():
            raw[name] = {**raw[name], **value} if isinstance(raw.get(name), dict) else value
        return EncoderRecipe.model_validate(raw)

    return make
