"""Causal language models to evaluate or to go on with, and how they were trained to read, as their configs say."""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from narrows.errors import ConversionError, UsageError
from narrows.hf.checkpoints import checkpoint_folder
from narrows.hf.register import register_all

__all__ = [
    "TrainedLanguage",
    "load_language_config",
    "load_language_model",
    "note_language",
    "positions_of",
    "require_causal_family",
    "require_left_to_right",
    "trained_language",
]

# The config's field; transformers keeps fields that it does not know.
_FIELD = "narrows_language"
_PROBED = 8


class TrainedLanguage(NamedTuple):
    """How a language model was trained to read.

    Attributes:
        reads: `bytes`, whose ids are the values of bytes, or `tokens` of the tokenizer beside it.
        length: of its rows, in tokens.
    """

    reads: str
    length: int


def note_language(config: Any, trained: TrainedLanguage) -> None:
    """Write into a config how its model was trained to read."""
    setattr(config, _FIELD, dict(trained._asdict()))


def trained_language(config: Any) -> TrainedLanguage | None:
    """How a model was trained to read; None where its config does not say.

    Raises:
        ConversionError: the config says something else there.
    """
    noted = getattr(config, _FIELD, None)
    if noted is None:
        return None
    try:
        return TrainedLanguage(**noted)
    except TypeError as error:
        raise ConversionError(
            f"expected {', '.join(TrainedLanguage._fields)} under {_FIELD!r} of config.json, got {noted!r:.80}; mend "
            "or remove it"
        ) from error


def load_language_config(checkpoint: str | Path) -> Any:
    """The config of a checkpoint with a causal language model.

    Raises:
        ConversionError: a checkpoint that is not there or damaged.
        UsageError: a family without a causal language model.
    """
    register_all()
    config = AutoConfig.from_pretrained(checkpoint_folder(checkpoint))
    require_causal_family(config)
    return config


def require_causal_family(config: Any) -> None:
    """Refuse a config whose family has no causal language model.

    Raises:
        UsageError: it has none.
    """
    if type(config) not in AutoModelForCausalLM._model_mapping:
        raise UsageError(
            f"expected a family with a causal language model, got {config.model_type}; choose another, such as gpt2"
        )


def load_language_model(checkpoint: str | Path, config: Any | None = None) -> Any:
    """A causal language model in fp32, all of its weights from the checkpoint.

    Args:
        config: in the place of its own.

    Raises:
        ConversionError: a checkpoint that is not there, damaged, or without all weights of a causal language model.
        UsageError: a family without one, or a model that looks ahead.
    """
    config = load_language_config(checkpoint) if config is None else config
    verbosity = logging.get_verbosity()
    # Its table of what is new would stand before our sentence.
    logging.set_verbosity_error()
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            checkpoint_folder(checkpoint),
            config=config,
            dtype="float32",
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
        model, info = loaded
    finally:
        logging.set_verbosity(verbosity)
    missing = sorted({*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])})
    if missing:
        raise ConversionError(
            f"expected all weights of a causal language model in {checkpoint}, got none that fits {missing[0]}; train "
            "it first with `narrows train`, or name another"
        )
    require_left_to_right(model)
    return model.eval()


def positions_of(config: Any) -> int | None:
    """The most tokens that a model can read; None where nothing bounds them."""
    return getattr(config, "max_position_embeddings", None)


@torch.no_grad()
def require_left_to_right(model: Any) -> None:
    """Refuse a model that sees the tokens it is to foretell: its loss would be near 0, and worth nothing.

    A BERT has a causal language model too, which looks ahead unless its config says that it is a decoder.

    Raises:
        UsageError: another last token changes what was said before it.
    """
    training = model.training
    model.eval()
    length = min(_PROBED, positions_of(model.config) or _PROBED)
    ids = torch.arange(length, device=model.device)[None] % model.config.vocab_size
    other = ids.clone()
    other[0, -1] = (other[0, -1] + 1) % model.config.vocab_size
    first, second = (model(input_ids=each).logits[:, :-1] for each in (ids, other))
    model.train(training)
    if not torch.allclose(first, second, rtol=1e-3, atol=1e-4):
        raise UsageError(
            f"expected a model that reads from left to right, got {model.config.model_type}, which looks ahead; choose "
            "another, or set model.config.is_decoder to true where the family has it"
        )
