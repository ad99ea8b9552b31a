"""The arrows between the rooms, and what no file of the repository may say."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOP_FOLDERS = (".ci", "benchmarks", "docs", "examples", "recipes", "src", "tests")

# Put together from parts, so that this file does not hold what it looks for.
_PRIVATE_FOLDERS = "|".join(("work", "root", "home", "Users"))
FORBIDDEN = re.compile(
    rf"(?<![\w.~-])/(?:{_PRIVATE_FOLDERS})/|\.\./{'sha'}red|\b(?:{'clau'}de|{'anthro'}pic|{'open'}ai)\b",
    re.IGNORECASE,
)


def _text_files(root: Path) -> list[tuple[Path, str]]:
    files = [path for path in root.iterdir() if path.is_file()]
    for folder in TOP_FOLDERS:
        files += (path for path in (root / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    texts = []
    for path in sorted(files):
        content = path.read_bytes()
        if b"\0" not in content[:8192]:
            texts.append((path, content.decode("utf-8", errors="replace")))
    return texts


def test_imports_keep_the_contracts(repository_root: Path) -> None:
    program = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("needs import-linter; install narrows[dev]")
    result = subprocess.run(
        [program, "--no-cache", "--no-logo"], cwd=repository_root, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_no_file_names_a_private_path_or_a_tool(repository_root: Path) -> None:
    texts = _text_files(repository_root)
    assert len(texts) > 10
    found = [
        f"{path.relative_to(repository_root)}:{number}: {line.strip()[:100]}"
        for path, text in texts
        for number, line in enumerate(text.splitlines(), start=1)
        if FORBIDDEN.search(line)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("line", "matches"),
    [
        ("data lies in /" + "work/shared", True),
        ("cache: /" + "root/.cache", True),
        ("see .." + "/shared/data", True),
        ("a hub id such as team/" + "work/model", False),
        ("pooling over the roots", False),
    ],
)
def test_the_pattern_finds_what_it_is_for(line: str, matches: bool) -> None:
    assert bool(FORBIDDEN.search(line)) is matches
