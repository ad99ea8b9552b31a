"""Sweeps in which a setting would be lost without a word, or a run could not be named or kept."""

from pathlib import Path

import pytest

from narrows.errors import RecipeError
from narrows.training.sweep import cells_of, load_sweep

_RECIPE = "name: a\nmodel: {checkpoint: b, split_layer: 1}\ndata: {train: [{format: squad, file: c}]}\n"


def _cells(folder: Path, text: str):
    (folder / "a.yaml").write_text(_RECIPE)
    path = folder / "s.yaml"
    path.write_text(f"name: s\nrecipe: a.yaml\n{text}\n")
    return cells_of(load_sweep(path), path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("variants: {v: {}}\nover: {variant: [1]}", "leave 'variant' out of `over`, as the sweep sets it"),
        ("over: {name: [q, r]}", "leave 'name' out of `over`, as the sweep sets it"),
        ("variants: {v: {name: q}}", "leave 'name' out of `settings` and `variants`, as the sweep names its runs"),
        ("settings: {name: q}\nvariants: {v: {}}", "leave 'name' out of `settings` and `variants`"),
        (
            "over: {optimiser.seed: [1, 2], optimiser: [{epochs: 2}]}",
            "leave 'optimiser.seed' out of `over`, or the section that it is a key of",
        ),
        (
            "variants: {v: {optimiser.seed: 1}}\nover: {optimiser: [{epochs: 2}]}",
            "leave 'optimiser' out of `over` or of the variants",
        ),
        ("over: {optimiser: [{seed: 2020-01-01}]}", "give 'optimiser' numbers, texts, lists or sections, and quote"),
        (
            f"over: {{optimiser.seed: {list(range(101))}, optimiser.epochs: {list(range(1, 101))}}}",
            "give values of at most 10,000 combinations",
        ),
        (f"variants: {{{'v' * 300}: {{}}}}", "shorten it to 255 bytes, as it is the name of a folder"),
        (f"over: {{licence: [{'漢' * 100}]}}", "shorten it to 255 bytes, as it is the name of a folder"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(RecipeError, match=f"expected a valid .*{problem}"):
        _cells(tmp_path, text)


def test_a_section_is_set_before_its_keys_and_a_variant_after_the_settings(tmp_path: Path) -> None:
    # In the order of the file, the section would take away the key that was set before it.
    text = "settings: {optimiser.seed: 5}\nvariants: {v: {optimiser.seed: 7, optimiser: {epochs: 2}}}"
    (cell,) = _cells(tmp_path, text)
    assert (cell.recipe.optimiser.seed, cell.recipe.optimiser.epochs) == (7, 2)
    text = "settings: {optimiser.seed: 5}\nvariants: {v: {optimiser: {epochs: 2}}}\nover: {optimiser.warmup: [0.5]}"
    (cell,) = _cells(tmp_path, text)
    assert (cell.recipe.optimiser.seed, cell.recipe.optimiser.epochs, cell.recipe.optimiser.warmup) == (0, 2, 0.5)
