"""README's examples do what they show."""

import re
import shlex
from pathlib import Path

import pytest

from narrows.cli.main import main


@pytest.fixture(scope="module")
def readme(request) -> str:
    return (request.config.rootpath / "README.md").read_text(encoding="utf-8")


def shell_blocks(text: str) -> list[str]:
    return re.findall(r"^```\n(\$ .*?)^```", text, re.DOTALL | re.MULTILINE)


def python_blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def said(block: str) -> list[str]:
    """What the comments behind `print(…)  # …` promise."""
    return re.findall(r"^print\(.*\)  # (.*)$", block, re.MULTILINE)


def test_every_pipeline_is_made_after_it_was_registered(repository_root) -> None:
    pages = [repository_root / "README.md", *(repository_root / "docs").glob("*.md")]
    found = 0
    for page in pages:
        for block in python_blocks(page.read_text(encoding="utf-8")):
            if 'pipeline("question-answering"' in block:
                found += 1
                before = block.partition('pipeline("question-answering"')[0]
                assert "narrows.register_all()" in before and "narrows.register_pipeline()" in before, page.name
    assert found


def test_the_pipeline_works_as_typed(readme, tmp_path, monkeypatch, capsys) -> None:
    from narrows.training import ship

    monkeypatch.chdir(tmp_path)
    [command] = [block for block in shell_blocks(readme) if "training.ship" in block]
    python, flag, module, *arguments = shlex.split(command.removeprefix("$ "))
    assert (python, flag, module) == ("python", "-m", "narrows.training.ship")
    with pytest.raises(SystemExit) as caught:
        ship.main(arguments)
    assert caught.value.code == 0
    [block] = [block for block in python_blocks(readme) if "pipeline(" in block]
    capsys.readouterr()
    exec(compile(block, "README.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == said(block) != []


@pytest.mark.slow
def test_questions_of_the_readme_are_answered_with_the_text_shown(
    readme, repository_root, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("examples").symlink_to(repository_root / "examples")
    [block] = [block for block in shell_blocks(readme) if "narrows ask library.narrows" in block]
    first, *asked = [part.partition("\n") for part in block.split("$ ")[1:]]
    assert main([*shlex.split(first[0], comments=True)[1:], "--quiet"]) == 0
    capsys.readouterr()
    assert len(asked) == 2
    for command, _, shown in asked:
        assert main(shlex.split(command)[1:]) == 0
        *lines, last = capsys.readouterr().out.splitlines()
        assert lines == shown.splitlines() and last.startswith("Read ")
    # The Python example asks the same store, and a text of the reader's own.
    Path("report.txt").write_text("The dam broke in 1929. It was repaired by Ida Brandt in 1931.")
    [block] = [block for block in python_blocks(readme) if "open_store" in block]
    exec(compile(block, "README.md", "exec"), {})
    out = capsys.readouterr().out
    assert out.startswith("Ida Brandt 0.") and "'document': 'harbour-festival-faq.md'" in out
