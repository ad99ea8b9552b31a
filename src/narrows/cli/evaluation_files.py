"""Where `narrows evaluate` keeps what it finds, and how it writes it."""

import json as json_module
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["default_file", "write_json"]


def default_file(model: str, data: Path, part: str | None) -> Path:
    """The predictions of a model on a part of some data: in its folder, or in `evaluation/` for a hub id."""
    stem = data.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".json") + (
        "" if part is None else f"-{part}"
    )
    folder = Path(model) if Path(model).is_dir() else Path("evaluation") / model.replace("/", "--")
    return folder / "evaluation" / f"{stem}.jsonl" if Path(model).is_dir() else folder / f"{stem}.jsonl"


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file, whole or not at all."""
    from narrows.training.writing import written_whole

    with written_whole(path) as partial:
        partial.write_text(json_module.dumps(content, indent=2) + "\n", encoding="utf-8")
