"""Recipes of classifiers: what goes together, and each mistake in one sentence."""

from pathlib import Path

import pytest
import yaml

from narrows.errors import RecipeError
from narrows.training.recipe import load_recipe, save_recipe

_GOOD = """
name: x
task: classification
model: {checkpoint: some/model}
data: {train: [{format: rte, file: a.tsv}]}
"""


@pytest.fixture
def load(tmp_path):
    def make(changes):
        raw = yaml.safe_load(_GOOD)
        for key, value in changes.items():
            raw[key] = {**raw[key], **value} if isinstance(raw.get(key), dict) else value
        (tmp_path / "r.yaml").write_text(yaml.safe_dump(raw))
        return load_recipe(tmp_path / "r.yaml")

    return make


def test_a_recipe_survives_saving_and_has_a_metric(load, tmp_path) -> None:
    recipe = load({"metric": "matthews", "labels": ["b", "a"]})
    save_recipe(recipe, tmp_path / "again.yaml")
    assert load_recipe(tmp_path / "again.yaml") == recipe
    assert recipe.checkpoints() == ("some/model",) and recipe.chosen_metric == "matthews"
    assert load({"problem": "regression"}).chosen_metric == "pearson"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"problem": "tags"}, "expected data for the problem 'tags' in .*, got the format rte; change one of them"),
        (
            {"data": {"train": [{"format": "rtee", "file": "a"}]}},
            "expected a valid 'data.train.0.format' .*'rtee'; choo",
        ),
        (
            {"data": {"train": [{"format": "rte", "file": "a", "folds": 3}]}},
            r"expected 'folds' and 'take' in .* together, got 3 and \[\] for a; give both or neither",
        ),
        (
            {"metric": "pearson"},
            r"expected a metric of classes in .* \(accuracy, f1, matthews\), got 'pearson'; choose",
        ),
        ({"problem": "regression", "labels": ["a"]}, r"expected no 'labels' in .* for regression, .*\['a'\]; remove"),
        (
            {"data": {"max_tokens": 9999}},
            "expected 'optimiser.batch_tokens' in .* of at least .*, 9999, got 4096; raise",
        ),
    ],
)
def test_a_mistake_is_one_sentence(changes, message, load) -> None:
    with pytest.raises(RecipeError, match=message) as caught:
        load(changes)
    assert "\n" not in str(caught.value)


def test_the_shipped_recipes_read_the_published_data(repository_root: Path, shared_data: Path) -> None:
    from narrows.training.classification.build import _read

    sizes = {
        "funnel-rte": (2127, 363, 277),
        "funnel-cola": (7250, 1301, 1043),
        "funnel-movie-reviews": (1600, 200, 200),
        "funnel-sst2": (60614, 6735, 872),
    }
    for name, expected in sizes.items():
        recipe = load_recipe(repository_root / "recipes" / f"{name}.yaml")
        data = recipe.data  # type: ignore[attr-defined]
        found = [_read(recipe, parts, shared_data) for parts in (data.train, data.tune, data.test)]
        assert tuple(map(len, found)) == expected, name
        texts = [{(one.text, one.pair) for one in part} for part in found]
        # A few sentences stand twice in the published sets.
        assert len(texts[2] & (texts[0] | texts[1])) <= 0.02 * len(texts[2]), name
