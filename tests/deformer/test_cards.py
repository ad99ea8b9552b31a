"""The cards of the models that come with narrows: their figures are those of the results file."""

import json
import re
from fnmatch import filter as fitting

import pytest

from narrows.deformer.shipped import WEIGHTS, shipped_names


@pytest.fixture(scope="module")
def rows(request) -> dict[str, float]:
    file = request.config.rootpath / "benchmarks" / "results" / "deformer.json"
    return {name: row["value"] for name, row in json.loads(file.read_text(encoding="utf-8"))["rows"].items()}


def card(name: str) -> str:
    return (WEIGHTS / name / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", shipped_names())
def test_every_row_that_a_card_names_was_measured(name, rows) -> None:
    named = re.findall(r"`((?:f1|em|squad2|questions|bytes)-[\w*-]+)`", card(name))
    assert len(named) >= 4
    assert [pattern for pattern in named if not fitting(list(rows), pattern)] == []


@pytest.mark.parametrize("name", shipped_names())
def test_the_scores_of_a_card_are_those_of_its_rows(name, rows) -> None:
    lines = re.findall(r"^\| \d.* \| ([\d.]+) \| ([\d.]+|not measured) \| (.*) \|$", card(name), re.MULTILINE)
    assert len(lines) == 2
    for f1, exact, named in lines:
        shown = [value for value in (f1, exact) if value != "not measured"]
        assert shown == [f"{rows[row]:.2f}" for row in re.findall("`(.*?)`", named)]


@pytest.mark.parametrize("name", shipped_names())
def test_a_card_names_nothing_without_a_name(name) -> None:
    prose = re.sub(r"```.*?```", "", card(name), flags=re.DOTALL)
    assert "``" not in prose and "eval_" not in prose
