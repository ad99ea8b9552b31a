"""Span readers of any family, as their own classes: which class a checkpoint's head has, and its loading."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForQuestionAnswering
from transformers.utils import logging

from narrows.data import PairLayout, bert_pairs, pair_layout
from narrows.errors import ConversionError
from narrows.funnel import FunnelConfig
from narrows.funnel.heads import FunnelForConditionalQuestionAnswering
from narrows.hf.checkpoints import require_finite

__all__ = ["has_conditional_head", "layout_of", "load_span_head", "span_head"]


def has_conditional_head(config: Any) -> bool:
    """Whether a checkpoint was saved with Funnel's conditional head."""
    return FunnelForConditionalQuestionAnswering.__name__ in (config.architectures or [])


def span_head(config: Any, checkpoint: str | Path, *, conditional: bool) -> Any:
    """The class of a span reader, for `from_pretrained`.

    Args:
        conditional: the end given the start, and whether there is an answer, which Funnels of narrows have; otherwise
            start and end logits.

    Raises:
        ConversionError: a family without such a head.
    """
    if conditional and not isinstance(config, FunnelConfig):
        raise ConversionError(
            f"expected a Funnel of narrows for the conditional head, got {checkpoint} of type {config.model_type!r}; "
            "convert it with `narrows convert --to funnel`, or use the plain head"
        )
    if conditional:
        return FunnelForConditionalQuestionAnswering
    if type(config) not in AutoModelForQuestionAnswering._model_mapping or config.is_encoder_decoder:
        raise ConversionError(
            f"expected an encoder of a family with a head for answer spans, got {checkpoint} of type "
            f"{config.model_type!r}; choose another checkpoint"
        )
    return AutoModelForQuestionAnswering


def load_span_head(folder: Path, config: Any, checkpoint: str | Path) -> Any:
    """A trained span reader as it was saved, in fp32.

    Raises:
        ConversionError: a family without a span head, weights that are missing, of other shapes, or no numbers.
    """
    auto = span_head(config, checkpoint, conditional=has_conditional_head(config))
    verbosity = logging.get_verbosity()
    # Its table of what is missing would stand before our sentence.
    logging.set_verbosity_error()
    try:
        model, info = auto.from_pretrained(
            folder, dtype=torch.float32, output_loading_info=True, ignore_mismatched_sizes=True
        )
    finally:
        logging.set_verbosity(verbosity)
    lacking = sorted({*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])})
    if lacking:
        raise ConversionError(
            f"expected a checkpoint with a trained span head, got {checkpoint} without one (nothing fits "
            f"{lacking[0]}); train it first with `narrows train`"
        )
    require_finite(model.state_dict(), checkpoint)
    return model


def layout_of(model: Any, tokenizer: Any) -> PairLayout:
    """How a span model reads question and passage: a DeFormer as BERT does, any other as its tokenizer joins pairs.

    Raises:
        UsageError: see `pair_layout`.
    """
    if model.config.model_type == "narrows-deformer":
        return bert_pairs(cls=tokenizer.cls_token_id, sep=tokenizer.sep_token_id, pad=tokenizer.pad_token_id)
    return pair_layout(tokenizer)
