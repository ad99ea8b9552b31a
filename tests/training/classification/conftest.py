"""A made-up rule over short texts, tiny encoders, and a recipe over them."""

import json
import random

import pytest
import torch
from transformers import AutoTokenizer

from narrows.funnel import FunnelBaseModel, FunnelConfig
from narrows.training.classification.recipe import ClassRecipe

_WORDS = ("king", "river", "old", "mill", "gold", "road", "stone", "house", "boat", "mountain", "animal", "morning")
_TAGS = {"king": "B-PER", "river": "B-LOC", "mill": "B-LOC"}


def _sentence(draw: random.Random) -> list[str]:
    return [draw.choice(_WORDS) for _ in range(draw.randint(2, 9))]


def _write(folder, name: str, seed: int, rows: int) -> None:
    draw = random.Random(seed)
    texts, pairs, numbers, words, articles = [], [], [], [], []
    for _ in range(rows):
        body = _sentence(draw)
        # The rule: what the text begins with; of a pair, whether both begin alike.
        good = draw.random() < 0.4
        first = "green" if good else "white"
        texts.append({"text": " ".join([first, *body]), "label": "good" if good else "bad"})
        other = first if draw.random() < 0.5 else "small"
        pairs.append(
            {"text_a": f"{first} boat", "text_b": " ".join([other, *body]), "label": "same" if other == first else "no"}
        )
        numbers.append({"text": " ".join([first, *body]), "label": 3.5 if good else 1.0})
        words += [f"{word} {_TAGS.get(word, 'O')}" for word in body] + [""]
        options = ["green", "white", "small"]
        draw.shuffle(options)
        articles.append((" ".join(body), options, "ABC"[options.index("green")]))
    for kind, records in (("texts", texts), ("pairs", pairs), ("numbers", numbers)):
        (folder / f"{name}-{kind}.jsonl").write_text("\n".join(map(json.dumps, records)) + "\n")
    (folder / f"{name}-words.txt").write_text("\n".join(words) + "\n")
    (folder / f"{name}-race").mkdir()
    for number, (article, options, answer) in enumerate(articles):
        record = {"article": article, "questions": ["the hill is _ ."], "options": [options], "answers": [answer]}
        (folder / f"{name}-race" / f"{number}.txt").write_text(json.dumps(record))


@pytest.fixture(scope="session")
def rule_folder(tmp_path_factory):
    """`train-…` and `tune-…` of texts, pairs, numbers, words (CoNLL) and choices (RACE)."""
    folder = tmp_path_factory.mktemp("rule")
    _write(folder, "train", 1, 160)
    _write(folder, "tune", 2, 40)
    return folder


@pytest.fixture(scope="session")
def tiny_funnel(tmp_path_factory, tiny_bert):
    """A random Funnel of two blocks with the tokenizer of the tiny BERT."""
    folder = tmp_path_factory.mktemp("tiny-funnel")
    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
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
            initializer_std=0.15,
            pad_token_id=tokenizer.pad_token_id,
        )
        FunnelBaseModel(config).eval().save_pretrained(folder)
    return folder


FILES = {"classes": "texts.jsonl", "regression": "numbers.jsonl", "choices": "race", "tags": "words.txt"}
FORMATS = {"classes": "jsonl", "regression": "jsonl", "choices": "race", "tags": "conll"}


@pytest.fixture
def make_recipe(tiny_bert):
    """A recipe of some steps; `sections` replace its own keys one by one."""

    def make(problem: str = "classes", file: str | None = None, **sections) -> ClassRecipe:
        name = file or FILES[problem]
        part = {"format": FORMATS[problem]}
        raw = {
            "name": "tiny",
            "task": "classification",
            "problem": problem,
            "model": {"checkpoint": str(tiny_bert)},
            "data": {
                "train": [{**part, "file": f"train-{name}"}],
                "tune": [{**part, "file": f"tune-{name}"}],
                "test": [{**part, "file": f"tune-{name}"}],
                "max_tokens": 40,
            },
            "optimiser": {"epochs": 2, "batch_tokens": 200, "learning_rate": 3e-3, "seed": 3},
            "evaluate_every": 10,
        }
        for key, value in sections.items():
            raw[key] = {**raw[key], **value} if isinstance(raw.get(key), dict) else value
        return ClassRecipe.model_validate(raw)

    return make
