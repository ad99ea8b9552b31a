"""Where `narrows evaluate` keeps what it finds, and how it writes it."""

import json as json_module
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from narrows.errors import UsageError

__all__ = ["default_file", "device_name", "write_json"]


def default_file(model: str, data: Path, part: str | None) -> Path:
    """The predictions of a model on a part of some data: in its folder, or in `evaluation/` for a hub id."""
    stem = data.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".json") + (
        "" if part is None else f"-{part}"
    )
    folder = Path(model) if Path(model).is_dir() else Path("evaluation") / model.replace("/", "--")
    return folder / "evaluation" / f"{stem}.jsonl" if Path(model).is_dir() else folder / f"{stem}.jsonl"


def device_name(name: str) -> str:
    """The device that `--device` means.

    Raises:
        UsageError: a GPU where there is none.
    """
    import torch

    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("expected a GPU for --device cuda, got none that torch can see; use --device cpu")
    return ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file, whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json_module.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(partial, path)
