"""Parts of a recipe that make their own examples: questions out of raw text, contexts joined."""

import json

import pytest

from narrows.errors import RecipeError, UsageError
from narrows.training.recipe import load_recipe
from narrows.training.run import train
from narrows.training.spans.build import build_run, plan_run
from narrows.training.spans.data import read_part, read_parts
from narrows.training.spans.recipe import DataPart

# Each word but the names is among the commonest of the text, which answer nothing.
_FILLER = " ".join(f"w{number}" for number in range(200))


def _article(number: int) -> str:
    name, place = f"Castle{number}", f"River{number}"
    return (
        f"\n = Title {number} = \n\n {' '.join(f'w{n}' for n in range(60))} . "
        f"The {name} was built near the {place} by a king in the year {1900 + number} . "
        f"In {1900 + number} the {name} was sold to a man from the far north of the land . "
        f"The {place} is long and cold and there is a boat on the {place} near the {name} . \n"
    )


@pytest.fixture
def cloze_folder(squad_folder, tmp_path):
    """The squad folder's data and `wiki.txt`, out of which cloze questions are made."""
    for path in squad_folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    text = "".join(_article(number) for number in range(8)) + "\n = Words =\n" + f"\n {_FILLER} \n" * 30
    (tmp_path / "wiki.txt").write_text(text)
    return tmp_path


CLOZE = {"format": "cloze", "file": "wiki.txt"}
JOINED = {"format": "squad", "file": "train.json", "join": 2, "answers": "answerable"}


def test_cloze_questions_are_examples_like_others(cloze_folder) -> None:
    examples = read_part(DataPart(**CLOZE), cloze_folder, seed=0)
    assert len(examples) > 8
    assert examples == read_part(DataPart(**CLOZE), cloze_folder, seed=0)
    assert examples != read_part(DataPart(**CLOZE), cloze_folder, seed=1)
    for example in examples:
        assert all(example.context[a.start : a.end] == a.text for a in example.answers)
    (cloze_folder / "split.json").write_text(json.dumps({"mine": ["Title_3", "Title 5", "Words"]}))
    part = DataPart(**CLOZE, split="split.json", part="mine")
    assert {example.title for example in read_part(part, cloze_folder, seed=0)} == {"Title 3", "Title 5"}


def test_contexts_are_joined(cloze_folder) -> None:
    plain = read_part(DataPart(**{**JOINED, "join": 1}), cloze_folder, seed=0)
    joined = read_part(DataPart(**JOINED), cloze_folder, seed=0)
    assert [example.id for example in joined] == [example.id for example in plain]
    for before, after in zip(plain, joined, strict=True):
        assert before.context in after.context and len(after.context) > len(before.context)
        assert all(after.context[a.start : a.end] == a.text for a in after.answers)


def test_a_part_that_is_seen_twice_is_made_once(cloze_folder) -> None:
    once = read_parts([DataPart(**CLOZE)], cloze_folder, seed=0)
    assert read_parts([DataPart(**CLOZE, times=2), DataPart(**CLOZE)], cloze_folder, seed=0) == once * 2


def test_a_recipe_with_both_trains(make_recipe, cloze_folder, tmp_path) -> None:
    recipe = make_recipe(data={"train": [CLOZE, JOINED], "max_passage_tokens": 60}, optimiser={"epochs": 0.3})
    plan = plan_run(recipe, data=cloze_folder)
    assert plan.rows >= 24 + 8 and plan.steps >= 2
    model = train(recipe, data=cloze_folder, output=tmp_path / "out", quiet=True)
    assert model is not None and (model / "config.json").is_file()
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["steps"] == plan.steps


def test_parts_without_examples_are_refused(cloze_folder) -> None:
    (cloze_folder / "short.txt").write_text("A few words .\n")
    with pytest.raises(UsageError, match=r"expected examples in .*short\.txt, got none after the choice of titles"):
        read_part(DataPart(format="cloze", file="short.txt"), cloze_folder, seed=0)
    with pytest.raises(UsageError, match=r"expected examples in .*wiki\.txt, got none after"):
        read_part(DataPart(**CLOZE, answers="unanswerable"), cloze_folder, seed=0)
    (cloze_folder / "wiki.html").write_text("<p>")
    with pytest.raises(UsageError, match=r"expected articles in a \.txt, \.xml or \.json file"):
        read_part(DataPart(format="cloze", file="wiki.html"), cloze_folder, seed=0)
    with pytest.raises(UsageError, match=r"expected data at .*none\.txt, got no such file; pass --data DIR"):
        read_part(DataPart(format="cloze", file="none.txt"), cloze_folder, seed=0)


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("{format: squad, file: a, join: 0}", "expected a valid 'data.train.0.join' in .*, got 0; input should be"),
        ("{format: squad, file: a, joins: 2}", "got 'data.train.0.joins'; did you mean 'join'?"),
        ("{format: close, file: a}", "expected a valid 'data.train.0.format' in .*, got 'close'; .*'cloze'"),
        (
            "{format: squad, file: a, part: b}",
            "expected `split` and `part` together in .*, got one for a; give both or none",
        ),
        ("{format: squad, file: a, split: b}", "expected `split` and `part` together in .*, got one for a; give"),
        (
            "{format: qamr, file: a, split: b, part: c}",
            "expected no `split` in .* for the format qamr, which has no titles, got 'b'; leave it out",
        ),
        ("{format: pairs, file: a, split: b, part: c}", "expected no `split` in .* for the format pairs, which has"),
    ],
)
def test_wrong_keys_of_a_part_are_named(part, text, tmp_path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"name: a\nmodel: {{checkpoint: b, split_layer: 1}}\ndata: {{train: [{part}]}}\n")
    with pytest.raises(RecipeError, match=text):
        load_recipe(path)


def test_tune_data_that_cannot_be_scored_is_refused_before_the_first_step(make_recipe, squad_folder, tmp_path) -> None:
    tune = {"format": "squad", "file": "tune.json", "answers": "unanswerable"}
    recipe = make_recipe(data={"tune": [tune]})
    with pytest.raises(
        UsageError, match="expected questions with an answer in the tune data of tiny, .* got none; nam"
    ):
        build_run(recipe, data=squad_folder, output=tmp_path, quiet=True)
    content = json.loads((squad_folder / "tune.json").read_text())
    content["data"] += content["data"][:1]
    for name in ("train.json", "tune.json"):
        (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(UsageError, match="expected every id once, got 'q24' twice; give each record its own"):
        build_run(make_recipe(), data=tmp_path, output=tmp_path, quiet=True)
