"""A funnel back in transformers' format: its own classes, and the same weights."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import FunnelConfig as TransformersConfig
from transformers import PreTrainedModel
from transformers.models.funnel import modeling_funnel as theirs

from narrows.errors import ConversionError, UsageError
from narrows.funnel.config import FunnelConfig
from narrows.funnel.register import register
from narrows.hf.checkpoints import checkpoint_folder, require_finite
from narrows.hf.conversion import ConversionReport, Drop, New, Rename, apply_rules, load_tensors

__all__ = ["to_transformers"]

_CLASSES: dict[str, type[PreTrainedModel]] = {
    "FunnelBaseModel": theirs.FunnelBaseModel,
    "FunnelModel": theirs.FunnelModel,
    "FunnelForEmbedding": theirs.FunnelBaseModel,
    "FunnelForSequenceClassification": theirs.FunnelForSequenceClassification,
    "FunnelForMultipleChoice": theirs.FunnelForMultipleChoice,
    "FunnelForTokenClassification": theirs.FunnelForTokenClassification,
    "FunnelForQuestionAnswering": theirs.FunnelForQuestionAnswering,
    "FunnelForMaskedLM": theirs.FunnelForMaskedLM,
    "FunnelForReplacedTokenDetection": theirs.FunnelForPreTraining,
    "FunnelForElectraPreTraining": theirs.FunnelForPreTraining,
}
_BARE = (theirs.FunnelBaseModel, theirs.FunnelModel)
_FIELDS = (
    *("vocab_size", "block_sizes", "block_repeats", "num_decoder_layers", "d_model", "n_head", "d_head", "d_inner"),
    *("hidden_act", "hidden_dropout", "attention_dropout", "activation_dropout", "layer_norm_eps", "initializer_range"),
    *("initializer_std", "pooling_type", "attention_type", "separate_cls", "truncate_seq", "pool_q_only"),
    *("pad_token_id", "tie_word_embeddings", "id2label", "label2id", "problem_type"),
)


def to_transformers(checkpoint: str | Path) -> tuple[PreTrainedModel, ConversionReport]:
    """transformers' own Funnel with the weights of one of ours, and the report of every tensor.

    It computes what ours computes with `semantics="hf"`: the same numbers as `exact` where no text is padded and none
    of its tokens is truncated. A discriminator whose logits say `original` gets the sign that transformers reads.

    Args:
        checkpoint: a folder or a hub id of a funnel of narrows.

    Raises:
        ConversionError: it is of another kind.
        UsageError: transformers' Funnel has no place for a field or a head of it.
    """
    folder = checkpoint_folder(checkpoint)
    config = _config(folder)
    architecture = (config.architectures or [""])[0]
    if architecture not in _CLASSES:
        raise UsageError(
            f"expected a head that transformers' Funnel has, got {architecture or 'no architecture in config.json'}; "
            f"it has {', '.join(_CLASSES)}"
        )
    _check(config)
    fields = {name: getattr(config, name) for name in _FIELDS}
    kind = _CLASSES[architecture]
    tensors = load_tensors(folder)
    require_finite(tensors, checkpoint)
    with torch.device("meta"):
        model = kind(TransformersConfig(**fields))
    wanted = {name: tensor for name, tensor in model.state_dict().items() if name not in model.all_tied_weights_keys}
    filled, report = apply_rules(_with_their_sign(tensors, config), wanted, _rules(tensors, kind))
    model.load_state_dict(filled, assign=True, strict=False)
    model.tie_weights()
    return model.eval(), report


def _rules(tensors: dict[str, Tensor], kind: type[PreTrainedModel]) -> list[Rename | Drop | New]:
    rules: list[Rename | Drop | New] = [
        Drop(r"generator\..*", "generator of ELECTRA; transformers has no place for it")
    ]
    for name in tensors:
        rules.append(Rename(name, name.removeprefix("funnel.") if kind in _BARE else name))
    return rules


def _with_their_sign(tensors: dict[str, Tensor], config: FunnelConfig) -> dict[str, Tensor]:
    if config.discriminator_positive == "replaced":
        return tensors
    last = "discriminator_predictions.dense_prediction."
    return {name: -tensor if name.startswith(last) else tensor for name, tensor in tensors.items()}


def _config(folder: Path) -> FunnelConfig:
    from transformers import AutoConfig

    register()
    config = AutoConfig.from_pretrained(folder)
    if not isinstance(config, FunnelConfig):
        raise ConversionError(
            f"expected a Funnel of narrows in {folder}, got model type {config.model_type!r}; "
            "convert it with --to funnel first"
        )
    return config


def _check(config: FunnelConfig) -> None:
    lm = (config.architectures or [""])[0] == "FunnelForMaskedLM"
    repeats: Any = config.decoder_repeats
    for name, fits, expected in (
        ("d_embed", config.d_embed == config.d_model, "`d_model`"),
        ("decoder_repeats", set(repeats) <= {1}, "ones"),
        ("pooling_size", config.pooling_size == 2, "2"),
        ("pooling_type", config.pooling_type in ("mean", "max"), "mean or max"),
        ("position_type", config.position_type == "relative", "relative"),
        ("cls_token_type_id", config.cls_token_type_id == 2, "2"),
        ("lm_head_transform", not (lm and config.lm_head_transform), "False"),
        ("hide_masked_keys", not (lm and config.hide_masked_keys), "False"),
    ):
        if not fits:
            raise UsageError(
                f"`{name}` must be {expected} for transformers' Funnel, got {getattr(config, name)!r}; "
                "it would not compute the same"
            )
