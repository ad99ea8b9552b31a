"""Checkpoints of the T5 family into LongT5-Mullas: LongT5 (local and transient-global), T5, T5 v1.1, Flan-T5, mT5."""

from functools import reduce
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor, nn
from transformers import AutoConfig, GenerationConfig, PreTrainedConfig

from narrows.errors import ConversionError, NarrowsError, UsageError
from narrows.hf.checkpoints import checkpoint_folder, require_finite
from narrows.hf.conversion import ConversionReport, Drop, New, Rename, apply_rules, load_tensors
from narrows.mulla.config import MullaT5Config
from narrows.mulla.model import (
    MullaT5EncoderModel,
    MullaT5ForConditionalGeneration,
    MullaT5ForEmbedding,
    MullaT5ForQuestionAnswering,
    MullaT5ForSequenceClassification,
    MullaT5PreTrainedModel,
)
from narrows.mulla.register import register
from narrows.mulla.rules import LEVEL_TABLES, inspect_source, t5_rules

__all__ = ["TASKS", "convert_checkpoint", "mulla_config"]

TASKS: dict[str, type[MullaT5PreTrainedModel]] = {
    "generation": MullaT5ForConditionalGeneration,
    "encoder": MullaT5EncoderModel,
    "question-answering": MullaT5ForQuestionAnswering,
    "sequence-classification": MullaT5ForSequenceClassification,
    "embedding": MullaT5ForEmbedding,
}

_SOURCES = ("longt5", "t5", "mt5")

_HEADS = ("qa_outputs", "classification_head")

# Fields that a Mulla has under the same name as its source.
_SHARED_FIELDS = (
    "vocab_size",
    "d_model",
    "d_kv",
    "d_ff",
    "num_layers",
    "num_decoder_layers",
    "num_heads",
    "local_radius",
    "relative_attention_num_buckets",
    "relative_attention_max_distance",
    "dropout_rate",
    "layer_norm_epsilon",
    "initializer_factor",
    "feed_forward_proj",
    "classifier_dropout",
    "scale_decoder_outputs",
    "bos_token_id",
    "pad_token_id",
    "eos_token_id",
    "decoder_start_token_id",
    "id2label",
    "label2id",
    "problem_type",
)


def convert_checkpoint(
    checkpoint: str | Path,
    *,
    variant: str = "dynamic",
    pooling_rate: int | None = None,
    num_levels: int | None = None,
    local_radius: int | None = None,
    new_tables: str = "local",
    task: str | None = None,
    **overrides: Any,
) -> tuple[MullaT5PreTrainedModel, ConversionReport]:
    """A LongT5-Mulla with a checkpoint's weights, and the report of every tensor.

    Weights that are safetensors are mapped into memory, not copied. fp16, in which the model must not run, becomes
    fp32.

    Args:
        checkpoint: a folder or a hub id: LongT5 (local or transient-global), T5, T5 v1.1, Flan-T5 or mT5, whole or
            the encoder alone.
        variant: `dynamic` or `fixed`, see `MullaT5Config`.
        pooling_rate: None: the variant's own.
        num_levels: of the fixed variant; None: its own.
        local_radius: None: the source's, or 127 where it attends to everything.
        new_tables: what the tables of the fixed variant's pooled levels start from: `local`, the table of the source's
            attention to single tokens, or `global`, a transient-global LongT5's table for its global tokens.
        task: `generation`, `encoder`, `question-answering`, `sequence-classification` or `embedding`; None:
            `generation` if the checkpoint has a decoder, else `encoder`. Heads start random, since those of T5 read its
            decoder.
        overrides: other fields of `MullaT5Config`.

    Raises:
        ConversionError: the checkpoint is of another kind, or its tensors do not fit.
        UsageError: an unknown task, variant, table or field, or a number out of its range.

    Example:
        `model, report = convert_checkpoint("google/long-t5-tglobal-base", variant="dynamic", pooling_rate=8)`
    """
    folder = checkpoint_folder(checkpoint)
    source_config = _source_config(folder)
    if task is not None and task not in TASKS:
        raise UsageError(f"`task` must be one of {', '.join(TASKS)}, got {task!r}; choose one of them")
    given = {"variant": variant, "pooling_rate": pooling_rate, "num_levels": num_levels, "local_radius": local_radius}
    # Before the weights, so that a mistake is told at once.
    config = _config(source_config, {name: value for name, value in given.items() if value is not None} | overrides)
    _check_new_tables(new_tables, source_config, config)
    tensors = _one_dtype(load_tensors(folder))
    require_finite(tensors, checkpoint)
    source = inspect_source(tensors)
    if task is None:
        task = "generation" if source.has_decoder else "encoder"
    config.tie_word_embeddings = source.tied
    config.dtype = tensors[source.table].dtype
    with torch.device("meta"):
        model = TASKS[task](config)
    report = _fill(model, tensors, t5_rules(source, config, task=task, new_tables=new_tables))
    if isinstance(model, MullaT5ForConditionalGeneration):
        model.generation_config = _generation_config(folder, source_config)
    return model.eval(), report


def mulla_config(checkpoint: str | Path, **changes: Any) -> MullaT5Config:
    """The config of a LongT5-Mulla, or that which a LongT5, T5, Flan-T5 or mT5 would be converted to.

    Args:
        checkpoint: a folder or a hub id.
        changes: fields in the place of the checkpoint's.

    Raises:
        ConversionError: the checkpoint is of another kind.
        UsageError: a value out of its range.
    """
    folder = checkpoint_folder(checkpoint)
    source = _read_config(folder)
    if isinstance(source, MullaT5Config):
        fields = {name: getattr(source, name) for name in MullaT5Config.__dataclass_fields__}
        return MullaT5Config(**{**fields, **changes})
    return _config(_of_t5(source), changes)


def _source_config(folder: Path) -> PreTrainedConfig:
    return _of_t5(_read_config(folder))


def _read_config(folder: Path) -> PreTrainedConfig:
    # So that a Mulla is refused as what it is, and not as an unknown model.
    register()
    try:
        return AutoConfig.from_pretrained(folder)
    except NarrowsError:
        raise
    except (OSError, ValueError, StrictDataclassError) as error:
        # The sentence is in the last line of what strict fields say, in the first of the others.
        line = -1 if isinstance(error, StrictDataclassError) else 0
        raise ConversionError(
            f"expected a config.json of a known model in {folder}, got none that can be read "
            f"({str(error).strip().splitlines()[line].strip()}); pass a checkpoint's folder"
        ) from error


def _of_t5(source: PreTrainedConfig) -> PreTrainedConfig:
    if source.model_type not in _SOURCES:
        raise ConversionError(
            f"expected a checkpoint of the T5 family ({', '.join(_SOURCES)}), got model type {source.model_type!r}; "
            "convert a LongT5, T5, Flan-T5 or mT5"
        )
    return source


def _config(source: PreTrainedConfig, changes: dict[str, Any]) -> MullaT5Config:
    unknown = sorted(set(changes) - set(MullaT5Config.__dataclass_fields__))
    if unknown:
        raise UsageError(
            f"expected fields of MullaT5Config, got {', '.join(unknown)}; see its documentation for their names"
        )
    fields = {name: getattr(source, name) for name in _SHARED_FIELDS if hasattr(source, name)}
    return MullaT5Config(**{**fields, **changes})


def _check_new_tables(new_tables: str, source: PreTrainedConfig, config: MullaT5Config) -> None:
    if new_tables not in ("local", "global"):
        raise UsageError(f"`new_tables` must be 'local' or 'global', got {new_tables!r}; choose one of them")
    if new_tables == "local":
        return
    if getattr(source, "encoder_attention_type", None) != "transient-global":
        raise UsageError(
            "`new_tables` must be 'local' for a checkpoint without global tokens, got 'global'; "
            "only a transient-global LongT5 has a table for them"
        )
    if config.num_bias_tables == 1:
        raise UsageError(
            "`new_tables` must be 'local' where one table serves all levels, got 'global'; "
            "leave it out, or choose the fixed variant with at least 2 levels"
        )


def _one_dtype(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """All in the widest of their dtypes, and in no fp16; untouched, and so still mapped, where they are already."""
    floating = {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}
    wide = reduce(torch.promote_types, floating, torch.bfloat16)
    return {name: tensor.to(wide) if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}


def _fill(
    model: MullaT5PreTrainedModel, tensors: dict[str, Tensor], rules: list[Rename | Drop | New]
) -> ConversionReport:
    """Put the weights into a model without any; what is new gets memory and its first values."""
    wanted = {name: tensor for name, tensor in model.state_dict().items() if name not in model.all_tied_weights_keys}
    filled, report = apply_rules(tensors, wanted, rules)
    # The table that the new ones start from: the last that the source gave.
    origin = filled[max(name for name in report.used.values() if name.startswith(LEVEL_TABLES))]
    for name in report.new:
        if name.startswith(LEVEL_TABLES):
            filled[name] = origin.clone()
        elif name == "encoder.level_scales":
            filled[name] = torch.ones(filled[name].shape, dtype=origin.dtype)
        else:
            filled.pop(name)
    model.load_state_dict(filled, assign=True, strict=False)
    model.tie_weights()
    for name in _HEADS:
        if any(new.startswith(f"{name}.") for new in report.new):
            _start_afresh(model, model.get_submodule(name), origin.dtype)
    return report


def _start_afresh(model: MullaT5PreTrainedModel, head: nn.Module, dtype: torch.dtype) -> None:
    head.to(dtype).to_empty(device="cpu")
    for module in (*head.children(), head):
        model._init_weights(module)


def _generation_config(folder: Path, source: PreTrainedConfig) -> GenerationConfig:
    """The checkpoint's own; older ones keep it in config.json."""
    if not (folder / "generation_config.json").is_file():
        return GenerationConfig.from_model_config(source)
    try:
        return GenerationConfig.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise ConversionError(
            f"expected options of generation in {folder / 'generation_config.json'}, got a file that cannot be read; "
            "copy the checkpoint again"
        ) from error
