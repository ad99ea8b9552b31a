"""Shipping: what is refused before anything is written, and the way back to a checkpoint."""

import shutil

import pytest

from narrows.errors import ConversionError, UsageError
from narrows.training.ship import export, main, ship


def test_only_a_trained_deformer_under_a_plain_name_is_shipped(tiny_bert, tmp_path) -> None:
    weights = tmp_path / "weights"
    for name in ("../evil", "", "Reader", "a/b"):
        with pytest.raises(UsageError, match="expected a name of small letters, digits, - and _, got"):
            ship(tiny_bert, name, weights=weights)
    with pytest.raises(UsageError, match="expected a model's folder, got .*none' without config.json"):
        ship(tmp_path / "none", "mine", weights=weights)
    with pytest.raises(ConversionError, match="expected a DeFormer to ship, got .* of type 'bert'"):
        ship(tiny_bert, "mine", weights=weights)
    damaged = tmp_path / "damaged"
    shutil.copytree(tiny_bert, damaged)
    (damaged / "config.json").write_text("{")
    with pytest.raises(ConversionError, match="expected a JSON object in .*config.json"):
        ship(damaged, "mine", weights=weights)
    assert not weights.exists()


@pytest.mark.parametrize("name", ["teacher", "reader"])
def test_an_exported_model_is_the_shipped_one_where_recipes_look_for_it(name, tmp_path, capsys) -> None:
    import torch
    from transformers import AutoTokenizer

    from narrows.deformer.shipped import load_shipped
    from narrows.evaluation.run import load_span_model
    from narrows.hf.tokenizers import tokenizer_digest
    from narrows.training.tasks import find_checkpoint

    folder = tmp_path / "runs" / f"shipped-{name}" / "model"
    with pytest.raises(SystemExit) as caught:
        main(["--export", name, str(folder)])
    assert caught.value.code == 0 and f"{folder}: the shipped {name}" in capsys.readouterr().err
    found = find_checkpoint(f"shipped-{name}/model", tmp_path / "runs")
    exported, _ = load_span_model(found)
    shipped, tokenizer = load_shipped(name)
    for key, value in shipped.state_dict().items():
        torch.testing.assert_close(exported.state_dict()[key], value, rtol=0, atol=0)
    assert exported.config.split_layer == shipped.config.split_layer
    assert exported.config.store_no_answer_scale == shipped.config.store_no_answer_scale
    assert tokenizer_digest(AutoTokenizer.from_pretrained(found)) == tokenizer_digest(tokenizer)
    assert (folder / "README.md").is_file()
    with pytest.raises(UsageError, match="expected a new folder to write to, got .*, which is there; choose another"):
        export(name, folder)


@pytest.mark.parametrize(
    "arguments", [[], ["run"], ["run", "mine", "--export", "teacher", "x"], ["r", "--export", "a", "b"]]
)
def test_shipping_and_exporting_are_two_things(arguments, capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "expected RUN and NAME, or --export NAME DIR, got neither or both; give one" in capsys.readouterr().err


def test_an_unknown_model_is_not_exported(tmp_path, capsys) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--export", "writer", str(tmp_path / "x")])
    assert caught.value.code == 2 and "expected one of reader, teacher, got 'writer'" in capsys.readouterr().err


def test_the_page_of_training_exports_what_recipes_start_from(repository_root) -> None:
    import re

    page = (repository_root / "docs" / "training.md").read_text(encoding="utf-8")
    written = set(re.findall(r"training\.ship --export \w+ runs/(\S+)", page))
    wanted = {
        name
        for recipe in (repository_root / "recipes").rglob("*.yaml")
        for name in re.findall(r"\bshipped-\w+/model\b", recipe.read_text(encoding="utf-8"))
    }
    assert wanted and wanted <= written
