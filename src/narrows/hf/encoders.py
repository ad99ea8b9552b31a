"""Encoders of any family from their checkpoints: the model, its tokenizer, and what must be known to batch it."""

import hashlib
import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    MODEL_FOR_MASKED_LM_MAPPING,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    MODEL_FOR_TEXT_ENCODING_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoModelForTextEncoding,
    AutoTokenizer,
    LongT5EncoderModel,
)
from transformers.utils import logging

from narrows.data.tokens import tokenizer_rules
from narrows.errors import ConversionError, UsageError
from narrows.hf.checkpoints import require_finite, require_tokenizer
from narrows.hf.register import register_all

__all__ = [
    "Encoder",
    "accepted_inputs",
    "changed_by_padding",
    "least_tokens",
    "load_classifier",
    "load_encoder",
    "place",
    "require_dtype",
]

# Their outputs change with the padding of the batch (convolutions, pooling, Fourier transforms, blocks).
_CHANGED_BY_PADDING = frozenset(
    {"big_bird", "convbert", "fnet", "funnel", "mobilebert", "nystromformer", "reformer", "yoso"}
)
# It is trained to predict in any order, and sees the whole text.
_SEES_BOTH_WAYS = frozenset({"xlnet"})
_DTYPES = ("float32", "bfloat16")
# What T5's tokenizers and others say where there is no limit.
_NO_LIMIT = 10**9


@dataclass
class Encoder:
    """A model that reads whole texts, in evaluation mode.

    Attributes:
        checkpoint: what it was loaded from, for errors.
        model: of transformers or of narrows.
        tokenizer: its own.
    """

    checkpoint: str
    model: Any
    tokenizer: Any

    @cached_property
    def positions(self) -> int | None:
        """Longest text in tokens that the model has positions for; None: any."""
        for name, module in self.model.named_modules():
            if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
                # RoBERTa counts from behind the padding's index.
                return module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
        if self.model.config.model_type == "narrows-funnel":
            # Its number is that of absolute positions, which would have been found; relative ones reach any length.
            return None
        named = getattr(self.model.config, "max_position_embeddings", None)
        return named if isinstance(named, int) and named > 0 else None

    @cached_property
    def accepted(self) -> frozenset[str]:
        """See `accepted_inputs`."""
        return accepted_inputs(self.model)

    def __call__(self, batch: Mapping[str, torch.Tensor]) -> Any:
        """The model's outputs for a padded batch; it gets the mask only where it asks for one."""
        return self.model(**{name: tensor for name, tensor in batch.items() if name in self.accepted})

    @property
    def trained_tokens(self) -> int | None:
        """Longest text by the tokenizer's own word and the positions; None: any."""
        named = self.tokenizer.model_max_length
        known = [limit for limit in (named, self.positions) if limit is not None and limit < _NO_LIMIT]
        return min(known, default=None)

    @property
    def equal_lengths(self) -> bool:
        """Whether a batch must hold texts of one length, so that a text alone and in a batch gives the same."""
        return changed_by_padding(self.model.config)

    @property
    def least_tokens(self) -> int:
        """Shortest text in tokens that the model can read."""
        return least_tokens(self.model.config)

    @cached_property
    def digest(self) -> str:
        """sha256, in hex, of all that results depend on: weights, config and tokenizer."""
        found = hashlib.sha256(tokenizer_rules(self.tokenizer).encode())
        found.update(self.model.config.to_json_string().encode())
        for name, tensor in sorted(self.model.state_dict().items()):
            found.update(name.encode())
            found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        return found.hexdigest()


def changed_by_padding(config: Any) -> bool:
    """Whether what a model makes of a text depends on how far the text is padded, so that a batch must hold texts of
    one length."""
    return config.model_type in _CHANGED_BY_PADDING or getattr(config, "semantics", "exact") != "exact"


def least_tokens(config: Any) -> int:
    """Shortest row in tokens, padding included, that a model can read."""
    if config.model_type == "funnel" and config.attention_type == "relative_shift":
        # transformers prepares positions for states that it then does not pool.
        return 2 ** (len(config.block_sizes) - 1) + 1
    return 1


def accepted_inputs(model: torch.nn.Module) -> frozenset[str]:
    """Names of the inputs that a model takes; not each takes all that its tokenizer makes."""
    return frozenset(inspect.signature(model.forward).parameters)


def place(device: str) -> str:
    """The device that `auto`, `cpu` or `cuda` means here.

    Raises:
        UsageError: a GPU where there is none.
    """
    here = torch.cuda.is_available()
    if device == "cuda" and not here:
        raise UsageError("expected a GPU for the device cuda, got none that torch can see; use cpu")
    return ("cuda" if here else "cpu") if device == "auto" else device


def load_encoder(
    folder: Path, checkpoint: str | Path, *, dtype: str = "float32", with_pooler: bool = False, config: Any = None
) -> Encoder:
    """An encoder without a head, on the CPU.

    Args:
        folder: where the checkpoint lies.
        checkpoint: what it was asked for by.
        dtype: `float32` or `bfloat16`, of its weights.
        with_pooler: whether the model's own vector is wanted, so that its weights must be there.
        config: in the place of the checkpoint's own.

    Raises:
        ConversionError: no encoder (a decoder, or both), or weights are missing, damaged or not finite.
        UsageError: another dtype.
    """
    require_dtype(dtype)
    config = _config(folder) if config is None else config
    _require_both_ways(config, checkpoint)
    auto: Any = AutoModelForTextEncoding if type(config) in MODEL_FOR_TEXT_ENCODING_MAPPING else AutoModel
    if config.model_type == "longt5":
        auto = LongT5EncoderModel
    elif config.is_encoder_decoder and auto is AutoModel:
        raise _has_decoder(config, checkpoint)
    tokenizer = _tokenizer(folder)
    model, missing = _load(auto, folder, config, checkpoint, dtype)
    if missing and all(name.startswith("decoder.") for name in missing):
        # A Funnel with a head on its pooled states was saved without the decoder that AutoModel adds.
        base = _without_decoder(type(model))
        if base is not None:
            model, missing = _load(base, folder, config, checkpoint, dtype)
    if not with_pooler:
        # It stands on [CLS]'s state, and is not asked.
        missing = [name for name in missing if not name.startswith("pooler.")]
    if missing:
        raise ConversionError(
            f"expected all weights of {checkpoint}, got none for {missing[0]}; the checkpoint is incomplete, copy it "
            "again"
        )
    return _checked(model, tokenizer, checkpoint)


def load_classifier(folder: Path, checkpoint: str | Path, *, dtype: str = "float32") -> Encoder:
    """An encoder with a trained head for classes of a text, on the CPU; arguments as of `load_encoder`.

    Raises:
        ConversionError: no encoder, or one without such a head, or damaged weights.
        UsageError: another dtype.
    """
    require_dtype(dtype)
    config = _config(folder)
    _require_both_ways(config, checkpoint)
    # Our own classifiers of the T5 family have the encoder alone, whatever their config says.
    if config.is_encoder_decoder and not config.model_type.startswith("narrows-"):
        raise _has_decoder(config, checkpoint)
    heads = [name for name in config.architectures or [] if not name.endswith("ForSequenceClassification")]
    if heads or type(config) not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING:
        got = heads[0] if heads else f"one of type {config.model_type!r}, which has no such head"
        raise ConversionError(
            f"expected a checkpoint with a head for sequence classification, got {checkpoint} ({got}); name one that "
            "was trained to classify texts"
        )
    tokenizer = _tokenizer(folder)
    model, missing = _load(AutoModelForSequenceClassification, folder, config, checkpoint, dtype)
    if missing:
        raise ConversionError(
            f"expected a checkpoint with a trained classification head, got {checkpoint} without {missing[0]}; train "
            "it first, or name another"
        )
    return _checked(model, tokenizer, checkpoint)


def require_dtype(dtype: str) -> None:
    """Refuse number formats that weights are not loaded in.

    Raises:
        UsageError: neither float32 nor bfloat16.
    """
    if dtype not in _DTYPES:
        raise UsageError(f"expected a dtype of {' or '.join(_DTYPES)}, got {dtype!r}; choose one of them")


def _config(folder: Path) -> Any:
    register_all()
    try:
        return AutoConfig.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise ConversionError(
            f"expected a config.json of a known model in {folder}, got none that can be read "
            f"({str(error).strip().splitlines()[0]}); pass a checkpoint's folder"
        ) from error


def _tokenizer(folder: Path) -> Any:
    require_tokenizer(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if tokenizer.pad_token_id is None:
        raise ConversionError(
            f"expected a tokenizer with pad_token in {folder}, got none; add it to tokenizer_config.json"
        )
    return tokenizer


def _require_both_ways(config: Any, checkpoint: str | Path) -> None:
    kind = type(config)
    known = kind in MODEL_FOR_MASKED_LM_MAPPING or config.model_type in _SEES_BOTH_WAYS
    if kind in MODEL_FOR_CAUSAL_LM_MAPPING and not known and not config.is_encoder_decoder:
        raise ConversionError(
            f"expected an encoder, got {checkpoint} of type {config.model_type!r}, which reads from left to right "
            "only; name a BERT or another encoder"
        )


def _has_decoder(config: Any, checkpoint: str | Path) -> ConversionError:
    return ConversionError(
        f"expected an encoder, got {checkpoint} of type {config.model_type!r}, an encoder with a decoder; name a BERT "
        "or another encoder"
    )


def _without_decoder(kind: type) -> Any:
    return getattr(sys.modules[kind.__module__], kind.__name__.removesuffix("Model") + "BaseModel", None)


def _load(auto: Any, folder: Path, config: Any, checkpoint: str | Path, dtype: str) -> tuple[Any, list[str]]:
    """The model, and the names of weights that the checkpoint lacks."""
    verbosity = logging.get_verbosity()
    # Its table of what is missing would stand before our sentence.
    logging.set_verbosity_error()
    try:
        model, report = auto.from_pretrained(
            folder,
            config=config,
            dtype=getattr(torch, dtype),
            output_loading_info=True,
            # Told below, in one sentence.
            ignore_mismatched_sizes=True,
        )
    finally:
        logging.set_verbosity(verbosity)
    if report["mismatched_keys"]:
        name, stored, wanted = min(report["mismatched_keys"])
        raise ConversionError(
            f"expected {name} of {checkpoint} in the shape {list(wanted)} that its config.json asks for, got "
            f"{list(stored)}; copy the checkpoint again"
        )
    return model, sorted(report["missing_keys"])


def _checked(model: Any, tokenizer: Any, checkpoint: str | Path) -> Encoder:
    require_finite(model.state_dict(), checkpoint)
    rows = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > rows:
        raise ConversionError(
            f"expected at least {len(tokenizer):,} embeddings in {checkpoint}, one for each of its tokenizer's tokens, "
            f"got {rows:,}; copy the tokenizer that belongs to the model"
        )
    return Encoder(str(checkpoint), model.eval(), tokenizer)
