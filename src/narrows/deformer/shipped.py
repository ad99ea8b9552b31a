"""The models that come with narrows: deltas on the default checkpoint, a folder each under `weights/`."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from transformers import AutoTokenizer

from narrows.deformer.config import FITTED_FIELDS, DeformerConfig
from narrows.deformer.convert import convert_checkpoint
from narrows.deformer.delta import apply_delta
from narrows.deformer.model import DeformerForQuestionAnswering
from narrows.errors import UsageError
from narrows.hf.checkpoints import DEFAULT_CHECKPOINT, checkpoint_folder

__all__ = ["WEIGHTS", "load_shipped", "shipped_fields", "shipped_names"]

WEIGHTS = Path(str(files("narrows.deformer"))) / "weights"
# What a delta's config.json says beyond the base checkpoint's own.
_FIELDS = ("split_layer", "max_question_tokens", "max_passage_tokens", "max_answer_tokens", *FITTED_FIELDS)


def shipped_fields(config: DeformerConfig) -> dict[str, Any]:
    """What a shipped model's `config.json` holds: the fields that the base checkpoint does not tell."""
    return {field: getattr(config, field) for field in _FIELDS}


def shipped_names() -> list[str]:
    """Names of the models that come with narrows.

    Example:
        >>> "reader" in shipped_names()
        True
    """
    return sorted(path.parent.name for path in WEIGHTS.glob("*/delta.safetensors"))


def load_shipped(name: str) -> tuple[DeformerForQuestionAnswering, Any]:
    """A shipped span model and its tokenizer.

    Args:
        name: `reader` (split) or `teacher` (joint).

    Raises:
        UsageError: no model of that name.
        ConversionError: the default checkpoint is not here (install the extra `reader`) or is not the one named.
    """
    if name not in shipped_names():
        raise UsageError(f"expected one of {', '.join(shipped_names())}, got {name!r}; choose one of them")
    folder = WEIGHTS / name
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    base = checkpoint_folder(DEFAULT_CHECKPOINT)
    # A field that came after the weights were shipped keeps its default.
    fields = {field: config[field] for field in _FIELDS if field in config}
    model, _ = convert_checkpoint(base, task="question-answering", **fields)
    model.load_state_dict(apply_delta(model.state_dict(), load_file(folder / "delta.safetensors")))
    return model.eval(), AutoTokenizer.from_pretrained(base)
