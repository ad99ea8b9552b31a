"""A small made-up data set of documents and summaries, and recipes over it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from narrows.training.summaries.recipe import SummaryRecipe

_PLACES = ("north wall", "old mill", "gold road", "green island", "stone house", "white horse", "long river")


def _record(number: int) -> dict:
    place = _PLACES[number % len(_PLACES)]
    told = "the king walked in the night . " * (number % 5)
    return {
        "id": f"r{number}",
        "documents": [f"{told}a child found the {place} beside the water .", "they built a boat there ."],
        "query": "what was found ?" if number % 2 else None,
        "summary": [f"a child found the {place} .", f"the {place} was found ."],
    }


@pytest.fixture(scope="session")
def summaries_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`train.jsonl` (21 records), `tune.jsonl` (5), `split.json` and a plain `text.txt`."""
    folder = tmp_path_factory.mktemp("summaries")
    for name, numbers in (("train", range(21)), ("tune", range(21, 26))):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(_record(n)) + "\n" for n in numbers))
    (folder / "split.json").write_text(json.dumps({"few": ["r1", "r4"], "none": ["x"]}))
    lines = [f"in the year {n} the {_PLACES[n % 7]} was near the water and the boat was old .\n" for n in range(60)]
    (folder / "text.txt").write_text("".join(lines))
    return folder


@pytest.fixture
def summary_recipe(tiny_seq2seq) -> Callable[..., SummaryRecipe]:
    """A recipe of a few steps; `sections` replace its own keys one by one."""

    def make(**sections) -> SummaryRecipe:
        raw = {
            "name": "tiny",
            "task": "summarization",
            "model": {"checkpoint": str(tiny_seq2seq("mulla"))},
            "data": {
                "train": [{"format": "jsonl", "file": "train.jsonl"}],
                "tune": [{"format": "jsonl", "file": "tune.jsonl"}],
                "max_input_tokens": 32,
                "max_output_tokens": 12,
            },
            "optimiser": {"epochs": 2, "batch_tokens": 200, "dtype": "float32", "seed": 3},
            "generation": {"max_new_tokens": 6},
            "evaluate": {"limit": 3, "batch_tokens": 128},
            "evaluate_every": 4,
        }
        for name, value in sections.items():
            raw[name] = {**raw[name], **value} if isinstance(raw.get(name), dict) else value
        return SummaryRecipe.model_validate(raw)

    return make


@pytest.fixture
def corruption_recipe(summary_recipe) -> Callable[..., SummaryRecipe]:
    """A recipe of span corruption."""

    def make(**sections) -> SummaryRecipe:
        data = {
            "train": [{"format": "text", "file": "text.txt"}],
            "tune": [{"format": "text", "file": "text.txt"}],
            "max_output_tokens": 40,
        }
        return summary_recipe(
            **{"objective": "span-corruption", **sections, "data": {**data, **sections.get("data", {})}}
        )

    return make
