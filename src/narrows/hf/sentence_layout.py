"""What a sentence-transformers folder says of its vectors, read and written. Without that library."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from safetensors.torch import save_file
from torch import nn

from narrows.errors import ConversionError
from narrows.hf.conversion import load_tensors

__all__ = ["OWN_VECTOR", "POOLINGS", "SentenceLayout", "load_dense", "pooling_of", "read_layout", "save_layout"]

POOLINGS = ("cls", "max", "mean")

OWN_VECTOR = "pooler_output"
"""The pooling of a model that gives a vector itself, in the output of this name."""

_MODULES, _MODEL, _GENERAL = "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"
# As sentence-transformers names what it makes an object of.
_TYPES = "sentence_transformers.models."
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
        dense: folder of the linear layer after the pooling; None: there is none.
        normalize: whether vectors have length 1.
        max_tokens: longest text, special tokens included; None: the model's own limit.
        prompts: texts that stand before the text, by name.
        default_prompt: the name of the one that is used where none is asked for.
        pools_prompt: whether a prompt's tokens count in the pooling.
        lowercase: whether texts are read in lower case.
    """

    folder: Path
    pooling: str | None = None
    dense: Path | None = None
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
    if not (folder / _MODULES).is_file():
        return SentenceLayout(folder)
    modules = _read(folder / _MODULES, list)
    kinds = [str(module["type"]).rsplit(".", 1)[-1] for module in modules]
    inner = folder / modules[0]["path"] if modules else folder
    model = next((_read(path) for path in sorted(inner.glob("sentence_*_config.json"))), {})
    own = model.get("modality_config", {}).get("text", {}).get("method_output_name") == OWN_VECTOR
    begin = ["Transformer"] if own else ["Transformer", "Pooling"]
    rest = kinds[len(begin) :]
    if kinds[: len(begin)] != begin or rest not in ([], ["Dense"], ["Normalize"], ["Dense", "Normalize"]):
        raise ConversionError(
            f"expected the modules Transformer, Pooling and perhaps Dense and Normalize in {folder / _MODULES}, got "
            f"{', '.join(kinds) or 'none'}; use a checkpoint without the others"
        )
    pooling = {} if own else _read(folder / modules[1]["path"] / "config.json")
    general = _read(folder / _GENERAL) if (folder / _GENERAL).is_file() else {}
    return SentenceLayout(
        folder=inner,
        pooling=OWN_VECTOR if own else _pooling(pooling),
        dense=folder / modules[len(begin)]["path"] if "Dense" in rest else None,
        normalize="Normalize" in rest,
        max_tokens=model.get("max_seq_length"),
        prompts=general.get("prompts") or {},
        default_prompt=general.get("default_prompt_name"),
        pools_prompt=pooling.get("include_prompt", True),
        lowercase=bool(model.get("do_lower_case", False)),
    )


def pooling_of(layout: SentenceLayout, checkpoint: str | Path) -> str | None:
    """The pooling of a layout: one of `POOLINGS`, `OWN_VECTOR`, or None where it is not said.

    Raises:
        ConversionError: it is another one.
    """
    if layout.pooling not in (None, OWN_VECTOR, *POOLINGS):
        raise ConversionError(
            f"expected a checkpoint with a pooling of {', '.join(POOLINGS)}, got {checkpoint} with {layout.pooling}; "
            "name another checkpoint, or choose a pooling (--pooling)"
        )
    return layout.pooling


def load_dense(layout: SentenceLayout) -> nn.Linear | None:
    """The linear layer of a layout in fp32; None: it has none.

    Raises:
        ConversionError: it has an activation or a residual, or its weights cannot be read or do not fit.
    """
    if layout.dense is None:
        return None
    fields = _read(layout.dense / "config.json")
    activation = str(fields.get("activation_function", "torch.nn.modules.activation.Tanh"))
    if not activation.endswith("Identity") or fields.get("use_residual"):
        got = f"one with {activation}" if not activation.endswith("Identity") else "one with a residual"
        raise ConversionError(
            f"expected one linear layer without an activation after the pooling in {layout.dense}, got {got}; choose "
            "another encoder"
        )
    tensors = {name.removeprefix("linear."): tensor.float() for name, tensor in load_tensors(layout.dense).items()}
    weight = tensors.get("weight")
    if weight is None or weight.ndim != 2 or tensors.keys() - {"weight", "bias"}:
        raise ConversionError(
            f"expected linear.weight and perhaps linear.bias in {layout.dense}, got {', '.join(sorted(tensors))}; copy "
            "the checkpoint again"
        )
    dense = nn.Linear(weight.shape[1], weight.shape[0], bias="bias" in tensors)
    dense.load_state_dict(tensors)
    return dense


def save_layout(layout: SentenceLayout, *, width: int, dense: nn.Linear | None = None) -> None:
    """Write beside a checkpoint what makes a sentence encoder of it, for sentence-transformers and for us.

    Args:
        layout: of the folder to write to, with its pooling and its longest text.
        width: of the pooled vector.
        dense: of the pooled vector, in the place of the layout's `dense`.
    """
    own = layout.pooling == OWN_VECTOR
    kinds = ["Transformer", *([] if own else ["Pooling"])]
    kinds += ["Dense"] if dense is not None else []
    kinds += ["Normalize"] if layout.normalize else []
    paths = ["", *(f"{number}_{kind}" for number, kind in enumerate(kinds) if number)]
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": _TYPES + kind}
        for number, (path, kind) in enumerate(zip(paths, kinds, strict=True))
    ]
    for path in paths:
        (layout.folder / path).mkdir(exist_ok=True)
    model: dict[str, Any] = {"max_seq_length": layout.max_tokens, "do_lower_case": layout.lowercase}
    if own:
        model["modality_config"] = {"text": {"method": "forward", "method_output_name": OWN_VECTOR}}
        model["module_output_name"] = "sentence_embedding"
    else:
        modes = {key: name == layout.pooling for key, name in _LEGACY.items() if name in POOLINGS}
        fields = {"word_embedding_dimension": width, **modes, "include_prompt": layout.pools_prompt}
        _write(layout.folder / "1_Pooling" / "config.json", fields)
    if dense is not None:
        _write_dense(layout.folder / paths[kinds.index("Dense")], dense)
    general: dict[str, Any] = {"similarity_fn_name": "cosine"}
    if layout.prompts:
        general |= {"prompts": dict(layout.prompts), "default_prompt_name": layout.default_prompt}
    _write(layout.folder / _GENERAL, general)
    _write(layout.folder / _MODEL, model)
    _write(layout.folder / _MODULES, modules)


def _write_dense(folder: Path, dense: nn.Linear) -> None:
    fields = {
        "in_features": dense.in_features,
        "out_features": dense.out_features,
        "bias": dense.bias is not None,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    _write(folder / "config.json", fields)
    tensors = {f"linear.{name}": tensor.detach().cpu().contiguous() for name, tensor in dense.state_dict().items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def _pooling(config: dict[str, Any]) -> str:
    named = config.get("pooling_mode")
    if named is None:
        named = [name for key, name in _LEGACY.items() if config.get(key)]
    return "+".join([named] if isinstance(named, str) else named) or "mean"


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


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
