"""Models that go on with a text: those of this library and of transformers, loaded alike."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from narrows.errors import ConversionError, NarrowsError
from narrows.hf.checkpoints import checkpoint_folder, require_finite, require_tokenizer
from narrows.hf.encoders import require_dtype
from narrows.hf.register import register_all

__all__ = ["load_causal"]


def load_causal(checkpoint: str | Path, *, dtype: str = "float32") -> tuple[Any, Any]:
    """A causal language model in evaluation mode, and its tokenizer.

    Args:
        checkpoint: a folder or a hub id.
        dtype: `float32` or `bfloat16`, of its weights.

    Raises:
        ConversionError: a checkpoint of another kind, without its head, without a tokenizer or with one of another
            vocabulary.
        UsageError: another dtype.
    """
    require_dtype(dtype)
    register_all()
    folder = checkpoint_folder(checkpoint)
    require_tokenizer(folder)
    config = _config(folder, checkpoint)
    if config.is_encoder_decoder or type(config) not in AutoModelForCausalLM._model_mapping:
        raise ConversionError(
            f"expected a causal language model, such as a narrows-bottleneck, got {checkpoint}, a {config.model_type}; "
            "choose another checkpoint"
        )
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        folder, config=config, dtype=getattr(torch, dtype), output_loading_info=True
    )
    model, report = loaded
    if report["missing_keys"]:
        raise ConversionError(
            f"expected all weights of a causal language model in {checkpoint}, got none for "
            f"{min(report['missing_keys'])}; choose one that was trained to go on with a text"
        )
    require_finite(model.state_dict(), checkpoint)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if len(tokenizer) > config.vocab_size:
        raise ConversionError(
            f"expected at least {len(tokenizer):,} embeddings in {checkpoint}, one for each of its tokenizer's tokens, "
            f"got {config.vocab_size:,}; copy the tokenizer that belongs to the model"
        )
    return model.eval(), tokenizer


def _config(folder: Path, checkpoint: str | Path) -> Any:
    try:
        return AutoConfig.from_pretrained(folder)
    except NarrowsError:
        # A config of ours that no model can have says so itself.
        raise
    except (KeyError, OSError, ValueError) as error:
        raise ConversionError(
            f"expected a config.json of a model that transformers or narrows knows in {checkpoint}, got "
            f"{' '.join(str(error).split())[:200]}; choose another checkpoint"
        ) from error
