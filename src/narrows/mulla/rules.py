"""What becomes of each tensor of a T5 or LongT5 when it is made a Mulla."""

import re
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from narrows.errors import ConversionError
from narrows.hf.conversion import Drop, New, Rename
from narrows.mulla.config import MullaT5Config

__all__ = ["LEVEL_TABLES", "Source", "inspect_source", "t5_rules"]

LEVEL_TABLES = "encoder.relative_attention_bias"

_ENCODER_ATTENTION = ("SelfAttention", "LocalSelfAttention", "TransientGlobalSelfAttention")
_PROJECTIONS = ("q", "k", "v", "o")
_FEED_FORWARD = ("wi", "wi_0", "wi_1", "wo")
# A classifier of T5 has its encoder and decoder under a name of their own.
_PREFIXES = ("", "transformer.")
_TABLE_NAMES = tuple(
    f"{prefix}{name}.weight"
    for prefix in _PREFIXES
    for name in ("shared", "encoder.embed_tokens", "decoder.embed_tokens")
)

_Rules = list[Rename | Drop | New]


class Source(NamedTuple):
    """What the rules need to know of a checkpoint's tensors."""

    table: str
    """Name of the embeddings."""
    copies: tuple[str, ...]
    """Other names under which the same embeddings are stored."""
    has_decoder: bool
    tied: bool
    """Whether the output layer is the embeddings."""


def inspect_source(tensors: Mapping[str, Tensor]) -> Source:
    """Find the embeddings, which a checkpoint may hold under several names.

    Raises:
        ConversionError: there are none, or encoder and decoder have different ones.
    """
    names = [name for name in _TABLE_NAMES if name in tensors]
    if not names:
        raise ConversionError(
            f"expected a tensor of embeddings, {_TABLE_NAMES[0]}, got none among {len(tensors)}; "
            "it is incomplete or of another architecture"
        )
    table, copies = tensors[names[0]], names[1:]
    for name in copies:
        if not torch.equal(tensors[name], table):
            raise ConversionError(
                f"expected one table of embeddings for encoder and decoder, got {names[0]} and {name}, which differ; "
                "this checkpoint is no T5"
            )
    output = tensors.get("lm_head.weight")
    tied = output is None or torch.equal(output, table)
    has_decoder = any(name.removeprefix("transformer.").startswith("decoder.block.") for name in tensors)
    return Source(names[0], tuple(copies), has_decoder, tied)


def t5_rules(source: Source, config: MullaT5Config, *, task: str, new_tables: str) -> _Rules:
    """The table of rules, names with and without `transformer.`.

    Args:
        source: of `inspect_source`.
        config: of the Mulla.
        task: one of `narrows.mulla.convert.TASKS`.
        new_tables: see `convert_checkpoint`.
    """
    generation = task == "generation"
    rules: _Rules = [Rename(source.table, "shared.weight")]
    rules += [Drop(re.escape(copy), f"a copy of {source.table}") for copy in source.copies]
    for prefix in _PREFIXES:
        rules += _encoder_rules(prefix, new_tables, one_table=config.num_bias_tables == 1)
        rules += _decoder_rules(prefix) if generation else [_drop_decoder(prefix)]
    if not generation:
        rules.append(Drop(r"lm_head\.weight", "the output layer of the decoder"))
    elif source.tied:
        rules.append(Drop(r"lm_head\.weight", f"a copy of {source.table}"))
    else:
        rules.append(Rename("lm_head.weight", "lm_head.weight"))
    rules.append(Drop(r"(qa_outputs|classification_head|classifier)\..*", "a head of another kind"))
    if config.num_levels is not None:
        # With `global`, the source's own table is that of the second level and must be there.
        first = "[2-9]" if new_tables == "global" else "[1-9]"
        tables = rf"{re.escape(LEVEL_TABLES)}\.({first}|[1-9]\d+)\.weight"
        rules.append(New(tables, f"a copy of the source's {new_tables} table"))
    rules.append(New(r"encoder\.level_scales", "1 for every level"))
    rules.append(New(r"qa_outputs\..*", "span head, random: to be trained"))
    rules.append(New(r"classification_head\..*", "classes, random: to be trained"))
    return rules


def _encoder_rules(prefix: str, new_tables: str, *, one_table: bool) -> _Rules:
    rules: _Rules = []
    for kind in _ENCODER_ATTENTION:
        theirs = f"{prefix}encoder.block.{{n}}.layer.0.{kind}"
        for name in _PROJECTIONS:
            rules.append(Rename(f"{theirs}.{name}.weight", f"encoder.block.{{n}}.layer.0.SelfAttention.{name}.weight"))
        first = f"{prefix}encoder.block.0.layer.0.{kind}"
        rules.append(Rename(f"{first}.relative_attention_bias.weight", f"{LEVEL_TABLES}.0.weight"))
        global_table = f"{first}.global_relative_attention_bias.weight"
        if new_tables == "global":
            rules.append(Rename(global_table, f"{LEVEL_TABLES}.1.weight"))
        else:
            kept = "; one table serves all levels" if one_table else "; new_tables='global' would keep it"
            rules.append(Drop(re.escape(global_table), f"there are no global tokens{kept}"))
    rules.append(
        Drop(rf"{re.escape(prefix)}encoder\..*\.global_input_layer_norm\.weight", "there are no global tokens")
    )
    rules += _shared_rules(prefix, "encoder", feed_forward=1)
    return rules


def _decoder_rules(prefix: str) -> _Rules:
    rules: _Rules = []
    for number, kind in enumerate(("SelfAttention", "EncDecAttention")):
        for name in _PROJECTIONS:
            rules.append(_kept(prefix, f"decoder.block.{{n}}.layer.{number}.{kind}.{name}.weight"))
    rules.append(_kept(prefix, "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"))
    unused = f"{prefix}decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    rules.append(Drop(re.escape(unused), "cross-attention has no positions; T5 does not read it either"))
    rules.append(_kept(prefix, "decoder.block.{n}.layer.1.layer_norm.weight"))
    rules += _shared_rules(prefix, "decoder", feed_forward=2)
    return rules


def _shared_rules(prefix: str, stack: str, *, feed_forward: int) -> _Rules:
    """Norms and feed-forward layers, whose names stay."""
    names = [f"{stack}.block.{{n}}.layer.0.layer_norm.weight", f"{stack}.final_layer_norm.weight"]
    names.append(f"{stack}.block.{{n}}.layer.{feed_forward}.layer_norm.weight")
    names += [f"{stack}.block.{{n}}.layer.{feed_forward}.DenseReluDense.{name}.weight" for name in _FEED_FORWARD]
    return [_kept(prefix, name) for name in names]


def _kept(prefix: str, name: str) -> Rename:
    return Rename(f"{prefix}{name}", name)


def _drop_decoder(prefix: str) -> Drop:
    return Drop(rf"{re.escape(prefix)}decoder\..*", "an encoder alone does not decode")
