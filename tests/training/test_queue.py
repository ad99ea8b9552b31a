"""A queue of recipes, of which one starts from what another writes."""

from pathlib import Path

import pytest

from narrows.errors import UsageError
from narrows.training.queue import read_queue
from narrows.training.recipe import load_recipe

SPANS = """
name: NAME
model: {checkpoint: START, split_layer: 0}
data:
  train: [{format: squad, file: train.json}]
"""
_OTHER = """
name: NAME
task: {task}
model: {{checkpoint: START}}
data:
  train: [{{format: {format}, file: train}}]
"""
SUMMARIES = _OTHER.format(task="summarization", format="jsonl")
CLASSES = _OTHER.format(task="classification", format="rte")
RAW = """
name: NAME
task: masked-lm
model: {family: bert, tokenizer: START}
data:
  train: [{file: text.txt}]
"""


def _read(recipes, runs):
    return read_queue({recipe.name: recipe for recipe in recipes}, runs)


@pytest.fixture
def recipe(tmp_path):
    def make(name: str, start: str, text: str = SPANS, **more: str):
        path = tmp_path / f"{name}.yaml"
        path.write_text(text.replace("NAME", name).replace("START", start))
        return load_recipe(path, settings=more)

    return make


def test_a_recipe_waits_for_the_one_that_writes_its_checkpoint(recipe, tmp_path) -> None:
    a, b, c = recipe("a", "some/model"), recipe("b", "a/model"), recipe("c", str(tmp_path / "runs" / "b" / "model"))
    queue = _read([a, b, c], tmp_path / "runs")
    assert [list(queued.awaits.values()) for queued in queue] == [[], ["a"], ["b"]]
    # Counted with the tokenizer of the first of them, and otherwise as it is.
    counted = [queued.counted for queued in queue if queued.counted is not None]
    assert [one.checkpoints() for one in counted] == [("some/model",)] * 3
    assert [one.name for one in counted] == ["a", "b", "c"]
    assert [queued.recipe for queued in queue] == [a, b, c]


def test_a_teacher_is_waited_for_too(recipe, tmp_path) -> None:
    a, b = recipe("a", "x/y"), recipe("b", "some/model", teacher="a/model")
    awaited = _read([a, b], tmp_path)[1]
    assert awaited.awaits == {"a/model": "a"} and awaited.counted == b


def test_what_is_there_is_not_waited_for(recipe, tmp_path) -> None:
    (tmp_path / "a" / "model").mkdir(parents=True)
    b = recipe("b", "a/model")
    for queued in _read([recipe("a", "some/model"), b], tmp_path):
        assert queued.awaits == {} and queued.counted == queued.recipe
    assert _read([recipe("c", "nobody/model")], Path("runs"))[0].awaits == {}


def test_orders_and_tasks_that_do_not_go_together(recipe, tmp_path) -> None:
    a, b = recipe("a", "some/model"), recipe("b", "a/model")
    with pytest.raises(UsageError, match="expected 'a/model', which 'b' starts from, to be there or .* recipe first"):
        _read([b, a], tmp_path)
    with pytest.raises(UsageError, match="got 'b' no earlier than 'b'; name its recipe first"):
        _read([recipe("b", "b/model")], tmp_path)
    with pytest.raises(UsageError, match="a run of its own task, summarization, got 'a' of question-answering; name"):
        _read([a, recipe("s", "a/model", SUMMARIES)], tmp_path)


def test_a_pretrained_encoder_starts_a_classifier_which_cannot_be_counted_before(recipe, tmp_path) -> None:
    words, classes = recipe("words", "some/tokenizer", RAW), recipe("classes", "words/model", CLASSES)
    more = recipe("more", "classes/model", CLASSES)
    assert [(queued.awaits, queued.counted) for queued in _read([words, classes, more], tmp_path)] == [
        ({}, words),
        ({"words/model": "words"}, None),
        ({"classes/model": "classes"}, None),
    ]


def test_runs_lie_in_folders_of_their_own(recipe, tmp_path) -> None:
    queue = {"first/a": recipe("a", "some/model"), "second/a": recipe("a", "first/a/model")}
    assert [queued.awaits for queued in read_queue(queue, tmp_path)] == [{}, {"first/a/model": "first/a"}]
