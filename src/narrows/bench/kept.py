"""Files of findings: JSON that a sweep writes at its end, over an older one of the same kind and over nothing else."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from narrows._text import UNREADABLE_JSON
from narrows.errors import UsageError
from narrows.training.writing import written_whole

__all__ = ["check_report", "load_report", "save_report"]


def check_report(path: Path, part: str, sweeps: Iterable[Path]) -> None:
    """Refuse, before hours of training, a file that findings could not or should not be written to after them.

    Args:
        path: the file, which need not be there.
        part: of the findings, by which an older file of them is known, such as `tasks`.
        sweeps: folders of sweeps, whose files are theirs.

    Raises:
        UsageError: no folder to write to, one without permission, a folder or device at that name, another file there,
            or a place inside a sweep's folder.
    """
    if not path.parent.is_dir():
        raise UsageError(f"expected a folder to write to, got {path.parent}, which is none; make it first")
    inside = next((folder for folder in sweeps if path.resolve().is_relative_to(folder.resolve())), None)
    if inside is not None:
        raise UsageError(f"expected --report outside of the runs in {inside}, got {path}; choose another place")
    if path.exists() and not path.is_file():
        raise UsageError(
            f"expected a file to write with --report, got {path}, which is a folder or device; name a file"
        )
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise UsageError(f"expected a folder to write to, got {path.parent} without permission; choose another")
    if path.is_file() and path.stat().st_size:
        load_report(path, part)


def load_report(path: Path, part: str) -> dict[str, Any]:
    """The content of a file of findings.

    Raises:
        UsageError: it is something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refused)
        if not (isinstance(content["run"], dict) and isinstance(content[part], list)):
            raise TypeError
    except (*UNREADABLE_JSON, KeyError, TypeError) as error:
        raise UsageError(
            f"expected findings of `narrows sweep --report` with {part!r} in {path}, got something else; move that "
            "file away or name another"
        ) from error
    return content


def save_report(path: Path, content: dict[str, Any]) -> None:
    """Write findings, whole or not at all.

    Raises:
        OutputError: the disk is full or cannot be written; an older file is left as it was.
    """
    with written_whole(path) as partial:
        partial.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _refused(name: str) -> float:
    raise ValueError(f"{name} is no number")
