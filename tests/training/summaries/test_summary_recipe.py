"""Recipes of summarisers: defaults are T5's, and each mistake is one sentence that says where."""

import subprocess
import sys

import pytest

from narrows.data import SUMMARY_LAYOUTS
from narrows.errors import RecipeError
from narrows.training.recipe import load_recipe, save_recipe
from narrows.training.summaries.recipe import DataPart, SummaryRecipe

_RECIPE = """
name: a
task: summarization
model: {checkpoint: b}
data: {train: [{format: jsonl, file: c}]}
"""


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text(_RECIPE)
    return file


def test_the_defaults_are_t5s(path, tmp_path) -> None:
    recipe = load_recipe(path)
    assert isinstance(recipe, SummaryRecipe)
    optimiser = recipe.optimiser
    assert (optimiser.optimizer, optimiser.schedule, optimiser.learning_rate) == ("adafactor", "constant", 1e-3)
    assert (optimiser.warmup, optimiser.dropout, optimiser.dtype, optimiser.max_grad_norm) == (0.0, 0.1, "bfloat16", 0)
    assert recipe.generation.options() == {"num_beams": 1, "max_new_tokens": 512, "do_sample": False}
    assert recipe.data.stages() == [(8192, 1.0)]
    assert recipe.checkpoints() == ("b",)
    save_recipe(recipe, tmp_path / "saved.yaml")
    assert load_recipe(tmp_path / "saved.yaml") == recipe


def test_generation_has_what_was_asked_for(path) -> None:
    settings = {"num_beams": "4", "length_penalty": "2.0", "min_new_tokens": "5", "no_repeat_ngram_size": "3"}
    recipe = load_recipe(path, settings={f"generation.{name}": value for name, value in settings.items()})
    assert recipe.generation.options() == {
        **{"num_beams": 4, "max_new_tokens": 512, "do_sample": False},
        **{"min_new_tokens": 5, "no_repeat_ngram_size": 3, "length_penalty": 2.0},
    }


def test_every_layout_of_summaries_can_be_named() -> None:
    for layout in SUMMARY_LAYOUTS:
        assert DataPart(format=layout, file="a").format == layout


def test_reading_a_recipe_imports_no_transformers() -> None:
    code = "import sys, narrows.training.recipe; sys.exit('transformers' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


_SCRATCH = {"model.scratch.tokenizer": "t", "model.checkpoint": "null"}
_CORRUPT = {"objective": "span-corruption", "data.train": "[{format: text, file: c}]"}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"optimiser.dtype": "float16"}, "got 'float16'; expected a dtype of .*, in which T5's unscaled attention"),
        ({"optimiser.dtype": "fp16"}, "in which T5's unscaled attention scores overflow; use bfloat16"),
        ({"optimiser.dtype": "torch.float16"}, "in which T5's unscaled attention scores overflow; use bfloat16"),
        ({"optimiser.dtype": "int8"}, "got 'int8'; input should be 'float32' or 'bfloat16'"),
        ({"optimiser.layer_decay": "0.9"}, "expected a valid 'optimiser.layer_decay'"),
        ({"optimiser.optimiser": "adamw"}, "got 'optimiser.optimiser'; did you mean 'optimizer'?"),
        ({"optimiser.optimizer": "sgd"}, "got 'sgd'; input should be 'adafactor' or 'adamw'"),
        ({"objective": "denoising"}, "input should be 'summaries' or 'span-corruption'"),
        ({"data.truncation": "{name: hed}"}, "expected a truncation .*, got 'hed'; did you mean 'head'"),
        ({"data.truncation": "{name: head, overlap: 3}"}, "'head' with no options, got 'overlap'; leave it out"),
        ({"data.truncation": "{nam: head}"}, "got 'data.truncation.nam'; did you mean 'name'?"),
        ({"generation.length_penalty": "2.0"}, "expected a length_penalty with num_beams above 1 only; leave it out"),
        ({"generation.min_new_tokens": "600"}, "expected min_new_tokens of at most max_new_tokens; lower it"),
        ({"data.train": "[{format: squalty, file: c}]"}, "got 'squalty'; input should be 'jsonl', 'squality'"),
        ({"model.checkpoint": "null"}, "expected model.checkpoint or model.scratch in .*, got neither; name one"),
        ({"model.scratch.tokenizer": "t"}, "expected model.checkpoint or model.scratch in .*, got both; name one"),
        ({"model.scratch.width": "3"}, "got 'model.scratch.width'; known keys are"),
        (_SCRATCH, "expected model.family in .* beside model.scratch, got none; name one such as mulla"),
        ({"model.family": "t5"}, "expected model.family to be mulla or none in .* beside a checkpoint, got 't5'"),
        ({"model.pooling_rate": "4"}, "expected no model.pooling_rate in .* where no model that has it is made, got 4"),
        ({**_SCRATCH, "model.family": "mulla", "model.new_tables": "global"}, "expected no model.new_tables in"),
        ({**_SCRATCH, "model.family": "t5", "model.local_radius": "9"}, "expected no model.local_radius in"),
        ({**_SCRATCH, "model.family": "longt5-local", "model.variant": "fixed"}, "expected no model.variant in"),
        (
            {"data.train": "[{format: text, file: c}]"},
            "expected `format` to be a layout of summaries in .*, got 'text'",
        ),
        (
            {"data.train": "[{format: jsonl, file: c, part: d}]"},
            "expected `split` and `part` together in .*, got one of",
        ),
        (
            {**_CORRUPT, "data.train": "[{format: text, file: c, split: s, part: d}]"},
            "expected no `split` of plain text in .*, got 's'; leave it out",
        ),
        ({**_CORRUPT, "data.truncation": "{name: windows}"}, "expected no data.truncation in .* for span corruption"),
        ({**_CORRUPT, "data.prefix": "'summarize: '"}, "expected no data.prefix in .* for span corruption, got 'summ"),
        (_CORRUPT, "expected data.max_output_tokens of at least 1330 in .*, got 512; raise it"),
        (
            {"data.lengths": "[4096]"},
            "expected data.lengths in .* to grow from 8 or more to max_input_tokens, 8192, got",
        ),
        ({"data.lengths": "[8192, 4096, 8192]"}, "expected data.lengths in"),
        ({"data.lengths": "[2, 8192]"}, "expected data.lengths in"),
        (
            {"data.shares": "[1.0]"},
            "expected data.shares in .* above 0, one for each of the 0 lengths, with a sum of 1",
        ),
        ({"data.lengths": "[4096, 8192]", "data.shares": "[0.5, 0.6]"}, "expected data.shares in"),
        ({"data.lengths": "[4096, 8192]", "data.shares": "[1.0, 0.0]"}, "expected data.shares in"),
        ({"evaluate.words": "german"}, "input should be 'english-stemmed', 'english' or 'unicode'"),
    ],
)
def test_a_mistake_is_one_sentence(settings, text, path) -> None:
    with pytest.raises(RecipeError, match=text) as caught:
        load_recipe(path, settings=settings)
    assert "\n" not in str(caught.value)


def test_the_card_says_what_the_model_is(path) -> None:
    text = load_recipe(path, settings={"model.family": "mulla"}).card_text()
    assert text.family == "mulla" and "a LongT5-Mulla, with inputs of up to 8,192 tokens" in text.about
    assert text.data == "- train: `c` (jsonl)"
    settings = {**_CORRUPT, "data.max_output_tokens": "2000"}
    assert "trained on span corruption" in load_recipe(path, settings=settings).card_text().about
    split = {"data.train": "[{format: jsonl, file: c, split: s, part: d}]"}
    assert load_recipe(path, settings=split).card_text().data == "- train: `c` (jsonl, part `d` of `s`)"
