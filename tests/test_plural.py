"""Counts in the right number, everywhere."""

import re
from pathlib import Path

import pytest

from narrows._plural import count

# A number in braces before a fixed plural; a rate or a share has digits behind the point ("0.5 passages/s").
_NOUNS = "passage|document|token|model|row|layer|byte|character|tensor|step|position|vector|buffer|run"
_FIXED = re.compile(rf"\{{[^{{}}]*(?<!f)\}} (?:{_NOUNS})s\b")


@pytest.mark.parametrize(
    ("number", "noun", "shown"),
    [(0, "passage", "0 passages"), (1, "document", "1 document"), (2000, "token", "2,000 tokens")],
)
def test_counts(number, noun, shown) -> None:
    assert count(number, noun) == shown


def test_no_message_has_a_fixed_plural(repository_root: Path) -> None:
    found = []
    for path in sorted((repository_root / "src" / "narrows").rglob("*.py")):
        # Sizes of a measurement are constants, and none of them is 1.
        if path.parent.name == "bench":
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if _FIXED.search(line):
                found.append(f"{path.name}:{number}: {line.strip()}")
    assert not found, "\n".join(found)
