"""What becomes of each tensor of a BERT when it is made a funnel: what fits is mapped, the rest is to be distilled."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig

from narrows.errors import ConversionError
from narrows.funnel.config import FunnelConfig
from narrows.funnel.rules import encoder_layers, head_pattern, new_parts
from narrows.hf.conversion import Drop, New, Rename

__all__ = ["bert_rules", "bert_task", "config_of_bert", "original_name", "prepare_bert", "spread_layers"]

_LAYER = {
    "attention.self.query": "attention.q_head",
    "attention.self.key": "attention.k_head",
    "attention.self.value": "attention.v_head",
    "attention.output.dense": "attention.post_proj",
    "attention.output.LayerNorm": "attention.layer_norm",
    "intermediate.dense": "ffn.linear_1",
    "output.dense": "ffn.linear_2",
    "output.LayerNorm": "ffn.layer_norm",
}
_QUERY_BIAS = "attention.self.query.bias"
_SHARED_FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "d_model",
    "num_attention_heads": "n_head",
    "intermediate_size": "d_inner",
    "hidden_act": "hidden_act",
    "hidden_dropout_prob": "hidden_dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "layer_norm_eps": "layer_norm_eps",
    "max_position_embeddings": "max_position_embeddings",
    "type_vocab_size": "type_vocab_size",
    "pad_token_id": "pad_token_id",
    "classifier_dropout": "classifier_dropout",
    "id2label": "id2label",
    "label2id": "label2id",
    "problem_type": "problem_type",
    "initializer_range": "initializer_std",
}
_HEADS = {
    "sequence-classification": {"bert.pooler.dense": "classifier.linear_hidden", "classifier": "classifier.linear_out"},
    "token-classification": {"classifier": "classifier"},
    "question-answering": {"qa_outputs": "qa_outputs"},
    "masked-lm": {
        "cls.predictions.transform.dense": "lm_transform.dense",
        "cls.predictions.transform.LayerNorm": "lm_transform.layer_norm",
    },
}
_AGAIN = " (again)"


def spread_layers(layers: int, taken: int) -> list[int]:
    """Which of a BERT's layers a funnel takes: evenly spread, the last among them; more than there are repeat some.

    Example:
        >>> spread_layers(12, 6), spread_layers(6, 6), spread_layers(2, 4)
        ([1, 3, 5, 7, 9, 11], [0, 1, 2, 3, 4, 5], [0, 0, 1, 1])
    """
    return [-(-(number + 1) * layers // taken) - 1 for number in range(taken)]


def config_of_bert(source: PreTrainedConfig, *, block_sizes: Any, **changes: Any) -> FunnelConfig:
    """The config of a funnel with a BERT's sizes.

    Raises:
        UsageError: a width that its heads do not divide, or a value out of its range.
    """
    fields: dict[str, Any] = {ours: getattr(source, theirs, None) for theirs, ours in _SHARED_FIELDS.items()}
    fields = {name: value for name, value in fields.items() if value is not None}
    fields["d_head"] = fields["d_model"] // fields["n_head"]
    # A BERT's segments are 0 and 1, and its [CLS] is of the first.
    return FunnelConfig(**{**fields, "block_sizes": list(block_sizes), **changes})


def prepare_bert(tensors: Mapping[str, Tensor], config: FunnelConfig, *, layers: int) -> dict[str, Tensor]:
    """Tensors under one way of naming, with what has no place of its own added to what has.

    A funnel with relative positions has neither position nor segment embeddings: the mean of the former and the first
    of the latter, which every token had, are added to the word embeddings. A layer that is taken twice is there twice.

    Args:
        tensors: of a BertModel or a BertFor….
        config: of the funnel.
        layers: of the BERT.
    """
    named = {_full_name(name): tensor for name, tensor in tensors.items()}
    words = "bert.embeddings.word_embeddings.weight"
    if words not in named:
        raise ConversionError(
            f"expected a tensor of embeddings, {words}, got none among {len(named)}; "
            "it is incomplete or of another architecture"
        )
    if config.position_type == "relative":
        added = torch.zeros(named[words].shape[1], dtype=torch.float32)
        for name, row in (("position", slice(None)), ("token_type", slice(1))):
            table = named.get(f"bert.embeddings.{name}_embeddings.weight")
            added = added if table is None else added + table[row].float().mean(0)
        named[words] = (named[words].float() + added).to(named[words].dtype)
    for name in [name for name in named if name.endswith(_QUERY_BIAS)]:
        named[name] = named[name].reshape(config.n_head, config.d_head)
    whole = dict(named)
    taken = spread_layers(layers, sum(config.block_sizes))
    for number, (before, layer) in enumerate(pairwise(taken), start=1):
        if layer == before:
            prefix = f"bert.encoder.layer.{layer}."
            # A copy: two layers over the same memory would be trained as one, and could not be saved.
            named |= {f"{name}{_AGAIN} {number}": whole[name].clone() for name in whole if name.startswith(prefix)}
    return named


def original_name(name: str, tensors: Mapping[str, Tensor]) -> str:
    """What the checkpoint calls a tensor of `prepare_bert`; `tensors` are the checkpoint's."""
    whole, again, number = name.partition(_AGAIN)
    return next(each for each in tensors if _full_name(each) == whole) + again + number


def bert_rules(config: FunnelConfig, *, layers: int, task: str, source_task: str) -> list[Rename | Drop | New]:
    """The table, for names as `prepare_bert` gives them.

    The query's bias is the content bias of Funnel's attention: both are added to the query before it meets the keys.
    """
    inside = "" if task in ("encoder", "full") else "funnel."
    rules: list[Rename | Drop | New] = [
        Rename("bert.embeddings.word_embeddings.weight", f"{inside}embeddings.word_embeddings.weight"),
        *_both("bert.embeddings.LayerNorm", f"{inside}embeddings.layer_norm"),
    ]
    taken, before = spread_layers(layers, sum(config.block_sizes)), None
    for number, (ours, layer) in enumerate(zip(encoder_layers(config), taken, strict=True)):
        again = f"{_AGAIN} {number}" if layer == before else ""
        before = layer
        for theirs, part in _LAYER.items():
            source, target = f"bert.encoder.layer.{layer}.{theirs}", f"{inside}{ours}.{part}"
            rules.append(Rename(f"{source}.weight{again}", f"{target}.weight"))
            bias = f"{inside}{ours}.attention.r_w_bias" if theirs == "attention.self.query" else f"{target}.bias"
            rules.append(Rename(f"{source}.bias{again}", bias))
    rules += _position_rules(config, inside)
    if task == source_task:
        for theirs, ours in _HEADS.get(task, {}).items():
            rules += _both(theirs, ours)
    if task == "masked-lm":
        rules.append(Rename("cls.predictions.bias", "lm_head.bias"))
    return [
        *rules,
        Drop(r"bert\.encoder\.layer\..*", "a layer between those that were taken"),
        Drop(r"bert\.embeddings\.position_ids", "a table of 0, 1, 2, …"),
        Drop(r"bert\.pooler\..*", "this head does not pool as BERT does"),
        Drop(r"cls\..*", "head of pretraining"),
        Drop(head_pattern(), "head of another task"),
        *new_parts(task),
        New(r".*\.attention\.(r_kernel|r_r_bias)", "relative positions, random: to be distilled"),
        New(r".*\.attention\.(seg_embed|r_s_bias)", "relative segments, random: to be distilled"),
    ]


def bert_task(architecture: str) -> str:
    """What a BERT was trained for, by the name of its class."""
    names = {
        "ForSequenceClassification": "sequence-classification",
        "ForTokenClassification": "token-classification",
        "ForQuestionAnswering": "question-answering",
        "ForMaskedLM": "masked-lm",
    }
    return next((task for end, task in names.items() if architecture.endswith(end)), "encoder")


def _position_rules(config: FunnelConfig, inside: str) -> list[Rename | Drop | New]:
    tables = ("position_embeddings.weight", "token_type_embeddings.weight")
    if config.position_type == "absolute":
        return [Rename(f"bert.embeddings.{name}", f"{inside}embeddings.{name}") for name in tables]
    return [
        Drop(r"bert\.embeddings\.position_embeddings\.weight", "positions are relative; its mean is in the words"),
        Drop(r"bert\.embeddings\.token_type_embeddings\.weight", "segments are relative; its first is in the words"),
    ]


def _both(source: str, target: str) -> list[Rename]:
    return [Rename(f"{source}.{part}", f"{target}.{part}") for part in ("weight", "bias")]


def _full_name(name: str) -> str:
    """With `bert.`, and without the names of TensorFlow days."""
    for old, new in ((".LayerNorm.gamma", ".LayerNorm.weight"), (".LayerNorm.beta", ".LayerNorm.bias")):
        name = name.replace(old, new)
    bare = name.split(".")[0] in ("embeddings", "encoder", "pooler")
    return f"bert.{name}" if bare else name
