"""YAML files: what PyYAML takes without a word, and what would fill the memory, is refused in one sentence."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from narrows.errors import RecipeError
from narrows.training.recipe import read_yaml
from narrows.training.yaml_files import load_strict

_BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{after}: &{after} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, after in zip("abcdefgh", "bcdefghi", strict=True)
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("ab: #é", max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(_VALUES)
def test_other_files_are_read_as_ever(value) -> None:
    text = yaml.safe_dump(value)
    assert load_strict(text) == yaml.safe_load(text) == value


def test_aliases_and_merges_are_read() -> None:
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: [*a, *a]\n"
    assert load_strict(text) == yaml.safe_load(text)
    assert load_strict("") is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: {x: 1}\nb: 2\na: 3\n", "the key 'a' twice in one section, line 3"),
        ("v:\n  x: {a: 1}\n  x: {a: 2}\n", "the key 'x' twice in one section, line 3"),
        ("a: &a [*a]\n", "an alias of the value that it stands in, line 1"),
        (_BOMB, "more than 100,000 values with every alias written out, line"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(RecipeError, match=f"expected YAML in .*a.yaml, got {problem}.*; mend that place"):
        read_yaml(path)


def test_a_path_with_a_zero_byte() -> None:
    with pytest.raises(RecipeError, match="got a file that cannot be read .*null byte.*; check the path"):
        read_yaml(Path("a\0b"))
