"""A classifier on the command line: a learning rate is chosen, the choice is tested, and evaluated by hand."""

import json

import pytest
import yaml

from narrows.cli.evaluate_classes import _in_words
from narrows.cli.main import main

_PLACES = ("old mill", "gold road", "green island", "stone house", "white horse", "long river")


@pytest.fixture
def data(tmp_path):
    for name, start in (("train", 0), ("tune", 60), ("test", 90)):
        lines = [
            f"{'king' if n % 3 else 'boat'} of the {_PLACES[n % 6]} {n}\t{n % 3 and 1}"
            for n in range(start, start + 30)
        ]
        (tmp_path / f"{name}.tsv").write_text("\n".join(["sentence\tlabel", *lines]) + "\n")
    return tmp_path


@pytest.fixture
def sweep(data, tiny_bert):
    recipe = {
        "name": "tiny",
        "task": "classification",
        "model": {"checkpoint": str(tiny_bert)},
        "data": {
            **{part: [{"format": "sst-2", "file": f"{part}.tsv"}] for part in ("train", "tune", "test")},
            "max_tokens": 9,
            "truncate": True,
        },
        "optimiser": {"batch_tokens": 200, "epochs": 2, "dropout": 0},
    }
    (data / "tiny.yaml").write_text(yaml.safe_dump(recipe))
    over = {"optimiser.learning_rate": [1e-7, 3e-3], "optimiser.seed": [1, 2]}
    choose = {"keys": ["optimiser.learning_rate"], "repeats": ["optimiser.seed"], "score": "matthews"}
    whole = {"name": "rates", "recipe": "tiny.yaml", "over": over, "choose": choose}
    (data / "sweep.yaml").write_text(yaml.safe_dump(whole))
    return data / "sweep.yaml"


def _run(capsys, *arguments):
    code = main([*map(str, arguments)])
    shown = capsys.readouterr()
    return code, shown.out, " ".join(shown.err.split())


def test_a_rate_is_chosen_tested_once_and_the_model_is_evaluated(sweep, data, tmp_path, capsys, tiny_bert) -> None:
    call = ["sweep", sweep, "--data", data, "--runs", tmp_path / "runs", "-q"]
    code, out, _ = _run(capsys, *call, "--json")
    assert code == 0
    (choice,) = json.loads(out)["chosen"]
    means = {one["values"]["optimiser.learning_rate"]: one["mean"] for one in choice["tune"]}
    assert choice["chosen"]["optimiser.learning_rate"] == max(means, key=means.__getitem__)
    assert choice["test"]["accuracy"]["majority"] == pytest.approx(100 * 2 / 3)
    tested = [path.parent.name for path in (tmp_path / "runs" / "rates").glob("*/test.json")]
    assert len(tested) == 2
    code, out, _ = _run(capsys, *call)
    assert code == 0 and "chosen on tune data: optimiser.learning_rate" in out and "  test accuracy: mean " in out

    folder = tmp_path / "runs" / "rates"
    model = folder / tested[0] / "model"
    code, out, _ = _run(capsys, "evaluate", model, data / "test.tsv", "--task", "classification", "--json")
    assert code == 0
    figures = json.loads(out)
    kept = json.loads((folder / tested[0] / "test.json").read_text())
    assert figures["scores"] == kept["scores"] and figures["texts_cut"] == kept["truncated"] > 0
    assert figures["baseline"]["says"] == "1" and figures["baseline"]["commonest_of"] == "the training data"
    stored = model / "evaluation" / "test.tsv-classification.scores.json"
    assert json.loads(stored.read_text()) == figures
    call = ["evaluate", model, data / "test.tsv", "--task", "classification", "--against", model, "-q"]
    code, out, _ = _run(capsys, *call)
    assert code == 0 and "always 1, the commonest of the training data:" in out
    assert "accuracy over the other      +0.00  [+0.00, +0.00]" in out
    layout = "{format: sst-2, folds: 3, take: [2]}"
    code, out, _ = _run(
        capsys, "evaluate", model, data / "test.tsv", "--task", "classification", "--layout", layout, "--json"
    )
    assert json.loads(out)["rows"] < 30


@pytest.mark.parametrize(
    ("majority", "problem", "words"),
    [
        ("neg", "classes", "neg, the commonest"),
        ("O", "tags", "O, the commonest"),
        (0.0, "choices", "choice 1, the commonest"),
        (0.5474166666666668, "regression", "0.5474, the mean"),
    ],
)
def test_the_baseline_is_told_by_what_it_is(majority, problem, words) -> None:
    assert _in_words(majority, problem) == words


def test_options_that_do_not_go_together(data, tiny_bert, tiny_encoder, capsys) -> None:
    model = tiny_encoder("bert", labels=["0", "1"])
    call = ["evaluate", model, data / "test.tsv", "--task", "classification"]
    code, _, error = _run(capsys, *call)
    assert (
        code == 2
        and "expected --layout, since" in error
        and "does not say what it was trained on, got none; name one" in error
    )
    code, _, error = _run(capsys, *call, "--layout", "{format: rtee}")
    assert code == 2 and "expected --layout as a format, or as a part of a recipe" in error
    code, _, error = _run(capsys, *call, "--layout", "sst-2", "--max-input-tokens", 999)
    assert code == 2 and "expected --max-input-tokens of at most 128, the positions of" in error
    code, _, error = _run(capsys, *call, "--beams", 2)
    assert code == 2 and "expected --beams without --task classification only, got 2; leave it out" in error
    code, _, error = _run(capsys, "evaluate", model, data / "test.tsv", "--task", "probe", "--truncate")
    assert code == 2 and "expected --truncate beside --task classification only" in error
    code, out, _ = _run(capsys, *call, "--layout", "sst-2", "-q")
    assert code == 0 and "the commonest of this data:" in out
    code, _, error = _run(capsys, "evaluate", tiny_bert, data / "test.tsv", "--task", "classification")
    assert code == 1 and "expected a checkpoint with a head for classes, choices or tags, got" in error
