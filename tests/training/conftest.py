"""A small made-up data set in the SQuAD layout, and a recipe over it."""

import json
import resource
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import TrainerCallback

from narrows.training import run as run_module
from narrows.training.sections import Recipe
from narrows.training.spans.recipe import SpanRecipe

_PLACES = (
    "north wall",
    "old mill",
    "gold road",
    "green island",
    "stone house",
    "white horse",
    "long river",
    "fire mountain",
)


def _paragraph(number: int) -> dict:
    place = _PLACES[number % len(_PLACES)]
    start = "the king " * (number % 4)
    context = f"{start}in the year {number} a child found the {place} beside the water and built a boat there."
    answer = {"text": place, "answer_start": context.index(place)}
    asked = {"id": f"q{number}", "question": f"what was found in the year {number}?", "answers": [answer]}
    unknown = {
        "id": f"u{number}",
        "question": "who read the book?" + " why?" * (number % 3),
        "answers": [],
        "is_impossible": True,
    }
    return {"context": context, "qas": [asked, unknown] if number % 2 else [asked]}


@contextmanager
def _no_larger_file(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def full_disk() -> Callable[[int], AbstractContextManager[None]]:
    """Lets no file grow beyond some bytes: writing fails as on a full disk, whoever writes."""
    return _no_larger_file


@pytest.fixture(scope="session")
def squad_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`train.json` (36 questions), `tune.json` (9) and `pairs.json` (4 pairs without labels)."""
    folder = tmp_path_factory.mktemp("squad")
    for name, numbers in (("train", range(24)), ("tune", range(24, 30))):
        articles = [{"title": f"{name} {n}", "paragraphs": [_paragraph(n)]} for n in numbers]
        (folder / f"{name}.json").write_text(json.dumps({"version": "2.0", "data": articles}))
    pairs = {
        "question_ids": list("abcd"),
        "questions": [f"where is the {place}?" for place in _PLACES[:4]],
        "answers": [f"the {place} is near the sea." for place in _PLACES[:4]],
    }
    (folder / "pairs.json").write_text(json.dumps(pairs))
    return folder


@pytest.fixture
def make_recipe(tiny_bert: Path):
    """A recipe of 12 steps or so; `sections` replace its own keys one by one."""

    def make(**sections) -> SpanRecipe:
        raw = {
            "name": "tiny",
            "model": {"checkpoint": str(tiny_bert), "split_layer": 3},
            "data": {
                "train": [{"format": "squad", "file": "train.json"}],
                "tune": [{"format": "squad", "file": "tune.json"}],
                "max_passage_tokens": 40,
                "overlap": 8,
            },
            "optimiser": {"epochs": 2, "batch_tokens": 300, "learning_rate": 1e-3, "dropout": 0.1, "seed": 3},
            "evaluate_every": 5,
        }
        for name, value in sections.items():
            raw[name] = {**raw[name], **value} if isinstance(raw.get(name), dict) else value
        return SpanRecipe.model_validate(raw)

    return make


class _StopAt(TrainerCallback):
    """The process gets SIGTERM in the middle of a step."""

    def __init__(self, step: int):
        self._step = step

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self._step:
            signal.raise_signal(signal.SIGTERM)


@pytest.fixture
def stop_at(monkeypatch: pytest.MonkeyPatch):
    """Let the next runs stop at a step; None lets them run through."""

    build_run = run_module.build_run

    def install(step: int | None) -> None:
        def build(*args, **kwargs):
            run = build_run(*args, **kwargs)
            if step is not None:
                run.trainer.add_callback(_StopAt(step))
            return run

        monkeypatch.setattr(run_module, "build_run", build)

    return install


@pytest.fixture
def resumes_exactly(stop_at, tmp_path: Path) -> Callable[..., Path]:
    """Checks that a run which was stopped after some steps leaves the weights of one that was not, all of its files."""

    def check(recipe: Recipe, data: Path, *, stops: Sequence[int]) -> Path:
        straight, stopped = tmp_path / "straight", tmp_path / "stopped"
        stop_at(None)
        assert run_module.train(recipe, data=data, output=straight, quiet=True) == straight / "model"
        for step in stops:
            stop_at(step)
            assert run_module.train(recipe, data=data, output=stopped, quiet=True) is None
        stop_at(None)
        assert run_module.train(recipe, data=data, output=stopped, quiet=True) == stopped / "model"
        names = sorted(path.relative_to(straight) for path in straight.glob("model/**/*.safetensors"))
        assert names
        for name in names:
            expected, found = load_file(straight / name), load_file(stopped / name)
            assert expected.keys() == found.keys()
            assert all(torch.equal(expected[key], found[key]) for key in expected)
        return stopped

    return check


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
