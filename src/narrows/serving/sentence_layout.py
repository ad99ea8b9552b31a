"""What a sentence-transformers folder says of its vectors: pooling, length, prompts. Without that library."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from narrows.errors import ConversionError

__all__ = ["OWN_VECTOR", "POOLINGS", "SentenceLayout", "read_layout"]

POOLINGS = ("cls", "max", "mean")

OWN_VECTOR = "pooler_output"
"""The pooling of a model that gives a vector itself, in the output of this name."""

_CHAINS = (
    ["Transformer", "Pooling"],
    ["Transformer", "Pooling", "Normalize"],
)
_CHAINS_OF_OWN_VECTORS = (["Transformer"], ["Transformer", "Normalize"])
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
        pooling: `mean`, `cls`, `max` or `pooler_output`, the model's own vector; another name is one that cannot be
            computed here. None: it is not said.
        normalize: whether vectors have length 1.
        max_tokens: longest text, special tokens included; None: the model's own limit.
        prompts: texts that stand before the text, by name.
        default_prompt: the name of the one that is used where none is asked for.
        pools_prompt: whether a prompt's tokens count in the pooling.
        lowercase: whether texts are read in lower case.
    """

    folder: Path
    pooling: str | None = None
    normalize: bool = False
    max_tokens: int | None = None
    prompts: Mapping[str, str] = MappingProxyType({})
    default_prompt: str | None = None
    pools_prompt: bool = True
    lowercase: bool = False


def read_layout(folder: Path) -> SentenceLayout:
    """The layout of a checkpoint; of one that is no sentence-transformers folder, nothing is said.

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
    inner = folder / modules[0]["path"] if modules else folder
    model = next((_read(path) for path in sorted(inner.glob("sentence_*_config.json"))), {})
    own = model.get("modality_config", {}).get("text", {}).get("method_output_name") == OWN_VECTOR
    if kinds not in (_CHAINS_OF_OWN_VECTORS if own else _CHAINS):
        raise ConversionError(
            f"expected the modules Transformer, Pooling and perhaps Normalize in {folder / 'modules.json'}, got "
            f"{', '.join(kinds) or 'none'}; use a checkpoint without the others"
        )
    pooling = {} if own else _read(folder / modules[1]["path"] / "config.json")
    known = folder / "config_sentence_transformers.json"
    general = _read(known) if known.is_file() else {}
    return SentenceLayout(
        folder=inner,
        pooling=OWN_VECTOR if own else _pooling(pooling),
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
