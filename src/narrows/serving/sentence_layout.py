"""What a sentence-transformers folder says of its vectors: pooling, length, prompts. Without that library."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from narrows.errors import ConversionError

__all__ = ["POOLINGS", "SentenceLayout", "read_layout"]

POOLINGS = ("cls", "max", "mean")

_LEGACY = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


class SentenceLayout(NamedTuple):
    """How vectors are made from a model's states.

    Attributes:
        folder: where the model itself lies.
        pooling: `mean`, `cls` or `max`; another name is one that cannot be computed here.
        normalize: whether vectors have length 1.
        max_tokens: longest text, special tokens included; None: the model's own limit.
        prompts: texts that stand before the text, by name.
        default_prompt: the name of the one that is used where none is asked for.
        pools_prompt: whether a prompt's tokens count in the pooling.
        lowercase: whether texts are read in lower case.
    """

    folder: Path
    pooling: str = "mean"
    normalize: bool = False
    max_tokens: int | None = None
    prompts: Mapping[str, str] = MappingProxyType({})
    default_prompt: str | None = None
    pools_prompt: bool = True
    lowercase: bool = False


def read_layout(folder: Path) -> SentenceLayout:
    """The layout of a checkpoint; of one that is no sentence-transformers folder: the mean, as it is.

    Args:
        folder: of the checkpoint.

    Raises:
        ConversionError: its vectors pass through a module that is not known here, or a file of it cannot be read.

    Source: sentence-transformers, `modules.json` and the files it names, versions 2 to 6.
    """
    if not (folder / "modules.json").is_file():
        return SentenceLayout(folder)
    modules = _read(folder / "modules.json", list)
    kinds = [str(module["type"]).rsplit(".", 1)[-1] for module in modules]
    if kinds not in (["Transformer"], ["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise ConversionError(
            f"expected the modules Transformer, Pooling and perhaps Normalize in {folder / 'modules.json'}, got "
            f"{', '.join(kinds) or 'none'}; use a checkpoint without the others"
        )
    inner = folder / modules[0]["path"]
    model = next((_read(path) for path in sorted(inner.glob("sentence_*_config.json"))), {})
    pooling = _read(folder / modules[1]["path"] / "config.json") if len(modules) > 1 else {}
    known = folder / "config_sentence_transformers.json"
    general = _read(known) if known.is_file() else {}
    return SentenceLayout(
        folder=inner,
        pooling=_pooling(pooling),
        normalize="Normalize" in kinds,
        max_tokens=model.get("max_seq_length"),
        prompts=general.get("prompts") or {},
        default_prompt=general.get("default_prompt_name"),
        pools_prompt=pooling.get("include_prompt", True),
        lowercase=bool(model.get("do_lower_case", False)),
    )


def _pooling(config: dict[str, Any]) -> str:
    named = config.get("pooling_mode")
    if named is None:
        named = [name for key, name in _LEGACY.items() if config.get(key)]
    return "+".join([named] if isinstance(named, str) else named) or "mean"


def _read(path: Path, kind: type = dict) -> Any:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ConversionError(
            f"expected JSON in {path}, got none that can be read; copy the checkpoint again"
        ) from error
    if not isinstance(content, kind):
        raise ConversionError(
            f"expected a JSON {kind.__name__} in {path}, got a {type(content).__name__}; copy the checkpoint again"
        )
    return content
