"""What a run left behind beside its model, read again: another program, a full disk or a hand may have damaged it."""

import json
from pathlib import Path
from typing import Any

from narrows._text import UNREADABLE_JSON
from narrows.errors import UsageError

__all__ = ["read_summary", "read_test"]


def read_summary(run: Path) -> dict[str, Any] | None:
    """The summary of a run in its folder; None where there is none.

    Raises:
        UsageError: it is damaged.
    """
    path = run / "summary.json"
    content = _read(path) if path.exists() else None
    if content is None and not path.exists():
        return None
    if content is None or not isinstance(content.get("tune"), dict):
        raise UsageError(
            f"expected the summary of a run in {path}, got something else; remove the folder {run}, and the same "
            "command trains it again"
        )
    return content


def read_test(run: Path) -> dict[str, Any] | None:
    """What a run said of the test data; None where it was not scored.

    Raises:
        UsageError: it is damaged.
    """
    path = run / "test.json"
    if not path.exists():
        return None
    content = _read(path)
    if content is None or not _is_scored(content):
        raise UsageError(
            f"expected the test scores of a run in {path}, got something else; remove the file, and the same command "
            "scores the run again"
        )
    return content


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (*UNREADABLE_JSON, IsADirectoryError):
        return None
    return content if isinstance(content, dict) else None


def _is_scored(content: dict[str, Any]) -> bool:
    parts = [content.get("scores"), content.get("baseline")]
    if not all(isinstance(part, dict) for part in parts) or not isinstance(content.get("rows"), int):
        return False
    found = [score for part in parts if part is not None for score in part.values()]
    return all(isinstance(score, dict) and isinstance(score.get("mean"), int | float) for score in found)
