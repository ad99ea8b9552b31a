"""The authors' two checkpoint layouts: their configs, what is in them, and our models written back as theirs."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor
from transformers import FunnelTokenizer

from narrows._optional import require
from narrows._plural import count
from narrows.errors import ConversionError, UsageError
from narrows.funnel.config import FunnelConfig
from narrows.funnel.heads import FunnelForElectraPreTraining
from narrows.funnel.model import FunnelPreTrainedModel
from narrows.funnel.rules import Entry, tensorflow_table, torch_table
from narrows.hf.conversion import load_tensors

__all__ = [
    "config_of_authors",
    "export_tensors",
    "layout_of",
    "net_config",
    "net_config_of",
    "read_arrays",
    "table_for",
    "task_of",
    "tokenizer_of",
    "with_segments",
]

_INPUT_NAMES = ("input_ids", "token_type_ids", "attention_mask")
_CONFIG_FILES = ("net_config.pytorch.json", "net_config.json")
_ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu", "tanh": "tanh"}
_ATTENTION = {"rel_shift": "relative_shift", "factorized": "factorized", "null": "relative_shift"}
# Ours and theirs, where only the name differs.
_FIELDS = {
    "vocab_size": "vocab_size",
    "d_embed": "d_embed",
    "d_model": "d_model",
    "n_head": "n_head",
    "d_head": "d_head",
    "d_inner": "d_inner",
    "hidden_dropout": "dropout",
    "attention_dropout": "dropatt",
    "activation_dropout": "dropact",
    "pooling_type": "pooling_type",
    "pooling_size": "pooling_size",
    "pool_q_only": "pool_q_only",
    "separate_cls": "separate_cls",
    "truncate_seq": "truncate_seq",
}
_NEEDED = ("block_size", "vocab_size", "d_model", "n_head", "d_head", "d_inner")
_SUMMARY = "model/sequnece_summary/"
_CLASSES = re.compile(r"model/([^/]+)/logit/(kernel|bias)")
# Tensors that say what a TensorFlow checkpoint was trained for, the most telling first.
_TENSORFLOW_TASKS = (
    ("generator/", "electra"),
    ("model/binary_proj/", "replaced-token-detection"),
    ("model/lm_proj/", "masked-lm"),
    ("model/race/", "multiple-choice"),
    (_SUMMARY, "sequence-classification"),
    ("model/end_logits/dense_0/", "conditional-question-answering"),
    ("model/decoder/", "full"),
)


def config_of_authors(fields: Mapping[str, Any], **changes: Any) -> FunnelConfig:
    """Their net_config as our config.

    Args:
        fields: of their JSON file.
        changes: fields of `FunnelConfig` in the place of theirs.

    Raises:
        ConversionError: a field is missing, or has a value that their code does not know.

    Example:
        >>> theirs = {"block_size": "6_3x2_3x2", "vocab_size": 9, "d_model": 8, "n_head": 2, "d_head": 4, "d_inner": 16}
        >>> config_of_authors(theirs).block_repeats
        [1, 2, 2]
    """
    missing = [name for name in _NEEDED if name not in fields]
    if missing:
        raise ConversionError(
            f"expected a net_config of the Funnel-Transformer's authors with {', '.join(_NEEDED)}, "
            f"got none of {', '.join(missing)}; copy it again from their checkpoint"
        )
    sizes, repeats = _depths(str(fields["block_size"]))
    ours: dict[str, Any] = {name: fields[theirs] for name, theirs in _FIELDS.items() if theirs in fields}
    ours |= {"block_sizes": sizes, "block_repeats": repeats, "num_decoder_layers": 0}
    decoder, times = _depths(str(fields.get("decoder_size", "0")))
    if decoder != [0]:
        ours |= {"num_decoder_layers": decoder[0], "decoder_repeats": [times[0]] * decoder[0]}
    attention = fields.get("rel_attn_type", fields.get("attn_type", "rel_shift"))
    activation = fields.get("ff_activation", "gelu")
    if attention not in _ATTENTION or activation not in _ACTIVATIONS:
        raise ConversionError(
            f"expected an attention of {', '.join(_ATTENTION)} and an activation of {', '.join(_ACTIVATIONS)} in the "
            f"authors' net_config, got {attention!r} and {activation!r}; it is of another model"
        )
    ours |= {"attention_type": _ATTENTION[attention], "hidden_act": _ACTIVATIONS[activation]}
    ours["position_type"] = "absolute" if attention == "null" else "relative"
    return FunnelConfig(**{**ours, **changes})


def net_config_of(config: FunnelConfig) -> dict[str, Any]:
    """Our config as their net_config: the inverse of `config_of_authors`.

    Raises:
        UsageError: their code has no place for a field.
    """
    repeats: Any = config.decoder_repeats
    activations = {ours: theirs for theirs, ours in _ACTIVATIONS.items()}
    for name, fits, expected in (
        ("hidden_act", config.hidden_act in activations, ", ".join(activations)),
        ("pooling_type", config.pooling_type != "top_attention", "mean or max"),
        ("decoder_repeats", len(set(repeats)) <= 1, "equal for all layers of the decoder"),
        ("cls_token_type_id", config.cls_token_type_id == 2, "2"),
    ):
        if not fits:
            raise UsageError(
                f"`{name}` must be {expected} for the authors' code, got {getattr(config, name)!r}; "
                "it cannot be written as theirs"
            )
    attention = {"relative_shift": "rel_shift", "factorized": "factorized"}[config.attention_type]
    blocks = zip(config.block_sizes, config.block_repeats or [], strict=True)
    return {
        **{theirs: getattr(config, ours) for ours, theirs in _FIELDS.items()},
        "block_size": "_".join(_depth(size, times) for size, times in blocks),
        "decoder_size": _depth(config.num_decoder_layers, repeats[0] if repeats else 1),
        "rel_attn_type": "null" if config.position_type == "absolute" else attention,
        "ff_activation": activations[config.hidden_act],
    }


def net_config(folder: Path) -> dict[str, Any] | None:
    """The authors' config in a folder; None: there is none.

    Raises:
        ConversionError: it cannot be read.
    """
    for name in _CONFIG_FILES:
        if (folder / name).is_file():
            try:
                fields = json.loads((folder / name).read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise ConversionError(
                    f"expected a JSON object in {folder / name}, got a file that cannot be read; copy it again"
                ) from error
            if not isinstance(fields, dict):
                raise ConversionError(f"expected a JSON object in {folder / name}, got other JSON; copy it again")
            return fields
    return None


def tokenizer_of(folder: Path) -> FunnelTokenizer:
    """The tokenizer of an authors' checkpoint, from its `vocab.uncased.txt` or `vocab.cased.txt`.

    Raises:
        ConversionError: there is no vocabulary.
    """
    for name, lower_case in (("vocab.uncased.txt", True), ("vocab.cased.txt", False), ("vocab.txt", True)):
        if (folder / name).is_file():
            words = (folder / name).read_text(encoding="utf-8").splitlines()
            return _tokenizer(words, lower_case)
    raise ConversionError(
        f"expected vocab.uncased.txt in the authors' checkpoint {folder}, got none; copy it from their archive"
    )


def with_segments(tokenizer: Any) -> Any:
    """The same tokenizer, which also gives segments if it is Funnel's: transformers' own leaves them out since v5."""
    if isinstance(tokenizer, FunnelTokenizer):
        tokenizer.model_input_names = list(_INPUT_NAMES)
        tokenizer.init_kwargs["model_input_names"] = list(_INPUT_NAMES)
    return tokenizer


def layout_of(tensors: Mapping[str, Any]) -> str:
    """Whose names tensors have: `torch` or `tensorflow` of the authors, `transformers`, or `unknown`."""
    if "input_layer.0.lookup_table" in tensors:
        return "torch"
    if "model/input/word_embedding/lookup_table" in tensors:
        return "tensorflow"
    known = ("embeddings.word_embeddings.weight", "funnel.embeddings.word_embeddings.weight")
    return "transformers" if any(name in tensors for name in known) else "unknown"


def task_of(tensors: Mapping[str, Any]) -> str:
    """What a checkpoint of the authors was trained for."""
    if layout_of(tensors) == "torch":
        return "sequence-classification" if "cls_head.0.weight" in tensors else "encoder"
    for start, task in _TENSORFLOW_TASKS:
        if any(name.startswith(start) for name in tensors):
            return task
    return "encoder"


def read_arrays(folder: Path) -> dict[str, Tensor]:
    """All tensors of an authors' checkpoint: safetensors, `.npz`, `.pt` or `.bin`, or TensorFlow's files by an extra.

    Optimiser states are left out, and names of older checkpoints are brought up to date.

    Raises:
        ConversionError: no weights, or a file that cannot be read.
        MissingExtraError: TensorFlow's files without TensorFlow.
    """
    named: Mapping[str, Any]
    indices, files = sorted(folder.glob("*.index")), [*sorted(folder.glob("*.npz")), *sorted(folder.glob("*.pt"))]
    if files:
        named = _read_file(files[0])
    elif indices:
        named = _read_tensorflow(indices[0].with_suffix(""))
    else:
        named = load_tensors(folder)
    kept = {name: named[name] for name in named if not _of_training(name)}
    return {_name_of_today(name): torch.as_tensor(tensor) for name, tensor in kept.items()}


def table_for(tensors: Mapping[str, Tensor], config: FunnelConfig, *, task: str) -> list[Entry]:
    """The table for tensors in one of the authors' layouts, into a model of a task."""
    if layout_of(tensors) == "torch":
        return torch_table(config, task=task)
    from narrows.funnel.heads import generator_config

    generator = generator_config(config) if task == "electra" else None
    entries = tensorflow_table(config, task=task, generator=generator)
    scopes = {match[1] for match in map(_CLASSES.fullmatch, tensors) if match}
    if len(scopes) == 1:
        # The scope of their classes is the name of a data set.
        entries = [e._replace(theirs=e.theirs.replace("model/classes/", f"model/{min(scopes)}/")) for e in entries]
    return entries


def export_tensors(model: FunnelPreTrainedModel, *, layout: str, task: str) -> dict[str, Tensor]:
    """A model's tensors under the authors' names, in their shapes: the inverse of reading them.

    Args:
        model: a funnel.
        layout: `torch` or `tensorflow`.
        task: see `narrows.funnel.convert.TASKS`; `torch` has encoders and classes of texts only.

    Raises:
        UsageError: another layout, or a tensor that the layout has no place for.
    """
    if layout not in ("torch", "tensorflow"):
        raise UsageError(f"`layout` must be 'torch' or 'tensorflow', got {layout!r}; choose one of them")
    config: FunnelConfig = model.config
    generator = model.generator.config if isinstance(model, FunnelForElectraPreTraining) else None
    table = (
        torch_table(config, task=task)
        if layout == "torch"
        else tensorflow_table(config, task=task, generator=generator)
    )
    ours = {name: tensor for name, tensor in model.state_dict().items() if name not in model.all_tied_weights_keys}
    placed = {entry.ours: entry for entry in table}
    homeless = sorted(name for name in ours if name not in placed)
    if homeless:
        raise UsageError(
            f"expected a model that the authors' {layout} code has, got one with {homeless[0]}, "
            f"{count(len(homeless), 'tensor')} in all that it lacks; export an encoder, or choose the other layout"
        )
    heads = {True: generator.n_head if generator is not None else 0, False: config.n_head}
    return {
        placed[name].theirs: placed[name].to_theirs(tensor, heads[name.startswith("generator.")])
        for name, tensor in ours.items()
    }


def _tokenizer(words: list[str], lower_case: bool) -> FunnelTokenizer:
    vocabulary = {word: number for number, word in enumerate(words)}
    return with_segments(FunnelTokenizer(vocab=vocabulary, do_lower_case=lower_case))


def _read_file(path: Path) -> Mapping[str, Any]:
    try:
        if path.suffix == ".npz":
            return dict(np.load(path, allow_pickle=False))
        return torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, BadZipFile, UnpicklingError) as error:
        raise ConversionError(
            f"expected weights in {path}, got a file that cannot be read ({error}); fetch it again"
        ) from error


def _read_tensorflow(path: Path) -> dict[str, Any]:
    tensorflow: Any = require("tensorflow", extra="tensorflow", purpose=f"read the TensorFlow checkpoint {path}")
    reader = tensorflow.train.load_checkpoint(str(path))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def _of_training(name: str) -> bool:
    return name.startswith("global_step") or "adam" in name.lower()


def _name_of_today(name: str) -> str:
    name = name.replace("/transformer_xl/", "/encoder/")
    return re.sub(r"^(model|generator)/layer_", r"\1/decoder/layer_", name)


def _depths(text: str) -> tuple[list[int], list[int]]:
    blocks = [block.split("x") for block in text.split("_")]
    if not all(part.isdigit() for block in blocks for part in block) or any(len(block) > 2 for block in blocks):
        raise ConversionError(
            f"expected layers of blocks such as 6_3x2_3x2 in the authors' net_config, got {text!r}; copy it again"
        )
    return [int(block[0]) for block in blocks], [int(block[1]) if len(block) > 1 else 1 for block in blocks]


def _depth(size: int, times: int) -> str:
    return str(size) if times == 1 else f"{size}x{times}"
