"""Recipes of distilled encoders: what goes together, and each mistake in one sentence."""

import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from narrows.errors import ConversionError, RecipeError, UsageError
from narrows.training.encoders.build import build_run
from narrows.training.encoders.objective import spread_layers
from narrows.training.recipe import load_recipe, save_recipe

_PATH = Path("r.yaml")
# As the authors' code, it leaves out the last token before each pooling.
_TRUNCATING = {
    "model_type": "funnel",
    "block_sizes": [1, 1],
    "block_repeats": [1, 1],
    "d_model": 16,
    "n_head": 2,
    "d_head": 8,
    "d_inner": 20,
    "architectures": ["FunnelBaseModel"],
}


def test_a_recipe_survives_saving(make_recipe, tmp_path) -> None:
    recipe = make_recipe(losses={"hidden": 1.0, "layers": [[1, 2]]})
    save_recipe(recipe, tmp_path / "r.yaml")
    assert load_recipe(tmp_path / "r.yaml") == recipe
    assert recipe.checkpoints() == (recipe.teacher.checkpoint,)
    assert make_recipe(model={"config": None, "checkpoint": "a"}).checkpoints() == ("a", recipe.teacher.checkpoint)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"checkpoint": "a"}}, "expected 'model.checkpoint' or 'model.config' in r.yaml, got both; keep one"),
        ({"model": {"config": None}}, "expected 'model.checkpoint' or 'model.config' in r.yaml, got neither; keep one"),
        (
            {"model": {"config": {"hidden_size": 3}}},
            "expected a 'model_type' in 'model.config' in r.yaml, got None; add",
        ),
        (
            {"losses": {"embedding": 0}},
            "expected a loss above 0 in r.yaml, got 0 for embedding, similarity, hidden and logits;",
        ),
        ({"losses": {"logits": 1}}, "expected 'head' and 'losses.logits' in r.yaml together, got None and 1.0; name"),
        ({"head": "masked-lm"}, "expected 'head' and 'losses.logits' in r.yaml together, got masked-lm and 0.0;"),
        (
            {"losses": {"layers": [[1, 2]]}},
            r"expected 'losses.layers' in r.yaml with 'losses.hidden' above 0, got \[\(1",
        ),
        (
            {"data": {"train": [{"format": "jsonl", "file": "a"}]}},
            r"expected `fields` for the format jsonl, and for no other, in r.yaml, got none for jsonl \(a\); mend",
        ),
        (
            {"data": {"tune": [{"format": "text", "file": "a", "fields": ["b"]}]}},
            r"expected `fields` for the format jsonl, and for no other, in r.yaml, got \['b'\] for text \(a\); mend",
        ),
        (
            {"data": {"train": [{"format": "squad", "file": "a", "split": "b"}]}},
            r"expected `split` and `part` together in r.yaml, and for the format squad alone, got b and None for squad",
        ),
        (
            {"data": {"train": [{"format": "pairs", "file": "a", "split": "b", "part": "c"}]}},
            r"expected `split` and `part` together in r.yaml, .* got b and c for pairs \(a\); give both or none",
        ),
        ({"optimiser": {"layer_decay": 0.5}}, "expected no 'optimiser.layer_decay' in r.yaml, got 0.5: the layers of"),
        (
            {"data": {"lengths": [400]}},
            r"expected 'data.lengths' in r.yaml from 3 to the 200 of .*, got \[400\]; change",
        ),
    ],
)
def test_what_does_not_go_together(changes, message, make_recipe) -> None:
    with pytest.raises(RecipeError, match=message):
        make_recipe(**changes).check(_PATH)


def test_layers_are_evenly_spread() -> None:
    assert spread_layers(6, 6) == [(n, n) for n in range(1, 7)]
    assert spread_layers(3, 12) == [(1, 4), (2, 8), (3, 12)]
    assert spread_layers(12, 6)[-1] == (12, 6) and spread_layers(12, 6)[0] == (1, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model": {"config": {"model_type": "brt"}}},
            "expected a 'model_type' that transformers or narrows knows .*'brt'",
        ),
        (
            {"model": {"config": {"model_type": "bert", "hiden_size": 4}}},
            "expected fields of a bert in 'model.config', got 'hiden_size'; did you mean 'hidden_size'?",
        ),
        (
            {"model": {"config": {"model_type": "bert", "hidden_size": 5, "num_attention_heads": 2}}},
            "expected fields of a bert that go together in 'model.config', got .*; change them",
        ),
        *(
            (
                {"model": {"config": {"model_type": "bert", **fields}}},
                "expected fields of a bert that go together in 'model.config', got .*; change them",
            )
            for fields in (
                {"hidden_size": "wide"},
                {"hidden_act": "nothing"},
                {"hidden_size": -4, "num_attention_heads": 1},
                {"max_position_embeddings": -1},
            )
        ),
        (
            {"model": {"config": {"model_type": "bert", "vocab_size": 3}}},
            "expected a vocab_size of at least the .* tokens of the tokenizer in 'model.config', got 3; leave it out",
        ),
        *(
            (
                {"model": {"config": {"model_type": kind}}},
                "expected a student that reads the 40 tokens of 'data.lengths', got .*; lower the lengths or choose",
            )
            for kind in ("t5", "clip")
        ),
        (
            {"losses": {"hidden": 1.0, "layers": [[3, 5]]}},
            "expected 'losses.layers' from 0 to 2 of the student and 0 to 5 of the teacher, got 3 and 5; change them",
        ),
        (
            {"losses": {"hidden": 1.0, "layers": [[2, 5]]}, "model": {"config": _TRUNCATING}},
            "expected states that pooling by 2 makes of 40 tokens, got 20 slots; compare with an encoder that pools so",
        ),
        (
            {"data": {"lengths": [100]}},
            "expected a student that reads the 100 tokens of 'data.lengths', got .*; lower the",
        ),
        (
            {"data": {"lengths": [150]}},
            "expected a teacher that reads the 150 tokens of 'data.lengths', got .*; lower the",
        ),
    ],
)
def test_models_that_cannot_be_built(changes, message, make_recipe, text_folder, tmp_path) -> None:
    with pytest.raises(UsageError, match=message):
        build_run(make_recipe(**changes), data=text_folder, output=tmp_path, quiet=True)


def test_a_head_that_is_not_trained_teaches_nothing(make_recipe, text_folder, tmp_path) -> None:
    recipe = make_recipe(head="sequence-classification", losses={"logits": 1.0})
    with pytest.raises(
        ConversionError, match="expected a teacher with a trained head for sequence-classification, got .* w"
    ):
        build_run(recipe, data=text_folder, output=tmp_path, quiet=True)


@pytest.fixture
def other_words(tiny_bert, tmp_path):
    """The tiny BERT with a tokenizer that knows one word less."""
    import json

    folder = tmp_path / "other"
    shutil.copytree(tiny_bert, folder)
    rules = json.loads((folder / "tokenizer.json").read_text())
    del rules["model"]["vocab"]["young"]
    (folder / "tokenizer.json").write_text(json.dumps(rules))
    assert "young" not in AutoTokenizer.from_pretrained(folder).get_vocab()
    return str(folder)


def test_vectors_are_learnt_across_tokenizers_and_states_are_not(
    other_words, make_recipe, text_folder, tmp_path
) -> None:
    model = {"config": None, "checkpoint": other_words}
    run = build_run(make_recipe(model=model), data=text_folder, output=tmp_path / "a", quiet=True)
    batch = run.trainer._collate([run.trainer.train_dataset[0]])  # type: ignore[index]
    assert "teacher_ids" in batch
    loss = run.trainer._objective(run.trainer.model, batch, run.trainer._objective.counts([batch]))  # type: ignore[arg-type]
    assert bool(torch.isfinite(loss))
    with pytest.raises(
        UsageError, match="expected a student with the tokenizer of .*, since states and tokens are comp"
    ):
        build_run(make_recipe(model=model, losses={"hidden": 1.0}), data=text_folder, output=tmp_path / "b", quiet=True)


def test_heads_and_layers_of_other_sizes(tiny_bert, make_recipe, text_folder, tmp_path) -> None:
    from torch import nn
    from transformers import BertForSequenceClassification

    from narrows.hf.sentence_layout import SentenceLayout, save_layout

    folders = {}
    for labels in (2, 3):
        folders[labels] = tmp_path / f"labels-{labels}"
        BertForSequenceClassification.from_pretrained(tiny_bert, num_labels=labels).save_pretrained(folders[labels])
        AutoTokenizer.from_pretrained(tiny_bert).save_pretrained(folders[labels])
    recipe = make_recipe(
        head="sequence-classification",
        losses={"logits": 1.0},
        teacher={"checkpoint": str(folders[3])},
        model={"config": None, "checkpoint": str(folders[2])},
    )
    with pytest.raises(
        UsageError, match="expected a student with the teacher's 3 classes or tokens, got 2; choose models"
    ):
        build_run(recipe, data=text_folder, output=tmp_path / "a", quiet=True)
    shutil.copytree(tiny_bert, tmp_path / "dense")
    save_layout(
        SentenceLayout(tmp_path / "dense", pooling="mean", normalize=True, max_tokens=64),
        width=24,
        dense=nn.Linear(24, 7),
    )
    recipe = make_recipe(model={"config": None, "checkpoint": str(tmp_path / "dense")})
    with pytest.raises(
        UsageError, match="expected a student whose linear layer gives the teacher's 24 numbers, got 7;"
    ):
        build_run(recipe, data=text_folder, output=tmp_path / "b", quiet=True)


def test_the_recipe_of_the_documentation_loads(repository_root, tmp_path) -> None:
    page = (repository_root / "docs" / "training.md").read_text(encoding="utf-8")
    example = next(part for part in page.split("```") if part.startswith("yaml") and "encoder-distillation" in part)
    path = tmp_path / "my-encoder.yaml"
    path.write_text(example.removeprefix("yaml"), encoding="utf-8")
    recipe = load_recipe(path)
    assert (recipe.name, recipe.task) == ("my-encoder", "encoder-distillation")
