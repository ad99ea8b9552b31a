"""Recipes of pretraining: their defaults are the paper's, and each mistake is one sentence."""

import pytest
import yaml

from narrows.errors import RecipeError
from narrows.training.pretraining.model import build_config
from narrows.training.pretraining.parts import arguments_of
from narrows.training.recipe import load_recipe, save_recipe

GOOD = """
name: x
task: masked-lm
model: {family: bert, tokenizer: a, config: {hidden_size: 24, num_hidden_layers: 30}}
data: {train: [{file: a.txt}]}
"""


def test_defaults_are_the_papers(tmp_path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(GOOD)
    recipe = load_recipe(path)
    assert (recipe.data.length, recipe.masking.predicted(512), recipe.masking.strategy) == (512, 85, "single_token")
    assert (recipe.masking.as_mask, recipe.masking.as_random) == (0.8, 0.1)
    save_recipe(recipe, tmp_path / "saved.yaml")
    assert load_recipe(tmp_path / "saved.yaml") == recipe


@pytest.mark.parametrize(
    ("layers", "given", "rate"), [(12, None, 1e-4), (24, None, 1e-4), (30, None, 8e-5), (30, 1e-3, 1e-3)]
)
def test_the_learning_rate_falls_with_depth(layers, given, rate, pretraining_recipe, tiny_bert, tmp_path) -> None:
    from transformers import AutoTokenizer

    recipe = pretraining_recipe(
        model={"config": {"num_hidden_layers": layers, "attention_probs_dropout_prob": 0.3}},
        optimiser={"learning_rate": given, "dropout": 0.2, "beta2": 0.98},
    )
    config = build_config(recipe, AutoTokenizer.from_pretrained(tiny_bert))
    # What the recipe's config names is not changed by the dropout of all.
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.2, 0.3)
    arguments = arguments_of(recipe, config, tmp_path, steps=30, quiet=True)
    assert (arguments.learning_rate, arguments.adam_beta2) == (rate, 0.98)
    assert (arguments.metric_for_best_model, arguments.greater_is_better) == ("loss", False)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"model": {}}, "expected one of model.checkpoint, model.family and model.preset in .*, got none; name one of"),
        ({"model": {"checkpoint": "a", "family": "b"}}, "expected one of model.checkpoint, .*, got checkpoint and fam"),
        (
            {"model": {"preset": "a", "family": "b"}},
            "expected one of model.checkpoint, .*, got family and preset; name",
        ),
        ({"model": {"preset": "b"}}, "expected model.tokenizer in .* beside model.preset, got none; name one"),
        ({"model": {"family": "b"}}, "expected model.tokenizer in .* beside model.family, got none; name one"),
        ({"model": {"checkpoint": "a", "config": {"x": 1}}}, "expected no model.config in .* beside model.checkpoint"),
        ({"model": {"checkpoint": "a", "tokenizer": "b"}}, "expected no model.tokenizer in .* beside model.checkpoint"),
        (
            {"data": {"tune": [{"file": "b"}], "tune_share": 0.1}},
            "expected data.tune or data.tune_share in .*, got both",
        ),
        ({"data": {"segments": 3}}, "expected a valid 'data.segments' in .*, got 3"),
        ({"data": {"trane": 3}}, "got 'data.trane'; did you mean 'train'?"),
        (
            {"optimiser": {"steps": 1, "epochs": 1}},
            "expected optimiser.steps or optimiser.epochs in .*, got both; leave",
        ),
        ({"optimiser": {"batch_tokens": 511}}, "expected optimiser.batch_tokens in .* of at least a row, 512, got 511"),
        (
            {"masking": {"as_mask": 0.95}},
            "expected masking.as_mask and masking.as_random in .* of 1 together at most, got",
        ),
        ({"masking": {"num_predict": 511}}, "expected masking.num_predict in .* of at most 510, the text of a row of"),
        ({"masking": {"strategy": "words"}}, "expected a valid 'masking.strategy' in .*, got 'words'"),
    ],
)
def test_a_mistake_is_one_sentence(changes, text, tmp_path) -> None:
    raw = yaml.safe_load(GOOD)
    for name, value in changes.items():
        raw[name] = value if name == "model" else {**raw.get(name, {}), **value}
    path = tmp_path / "a.yaml"
    path.write_text(yaml.safe_dump(raw))
    with pytest.raises(RecipeError, match=text):
        load_recipe(path)


@pytest.mark.parametrize(
    ("given", "steps", "share"), [(None, 2_000, 0.1), (None, 1_000_000, 0.01), (0.0, 2_000, 0.0), (0.3, 10**6, 0.3)]
)
def test_the_warm_up_is_ten_thousand_steps_or_a_tenth(given, steps, share, pretraining_recipe, tmp_path) -> None:
    recipe = pretraining_recipe(optimiser={"warmup": given})
    assert arguments_of(recipe, None, tmp_path, steps=steps, quiet=True).warmup_steps == share
