"""An encoder's checkpoint with the head of a task, which may be new."""

from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers.utils import logging

from narrows._plural import count
from narrows.errors import ConversionError, UsageError
from narrows.hf.encoders import Encoder

__all__ = ["UNFIT", "load_with_head", "require_positions"]

UNFIT = (TypeError, ValueError, LookupError, RuntimeError, StrictDataclassError)
"""What transformers and torch raise where the fields of a config do not go together: a value of another type, sizes
that do not divide, an activation that there is not, a negative size."""

# What a checkpoint may lack beside the head: it is learnt with it.
_MAY_BE_NEW = ("pooler.", "decoder.")


def load_with_head(auto: Any, folder: Path, config: Any, checkpoint: str) -> Any:
    """The model in fp32; a head that the checkpoint lacks, or has in another size, is new, by torch's seed.

    Args:
        auto: class of the model, or an Auto class.
        folder: where the checkpoint lies.
        config: in the place of its own.
        checkpoint: what it was asked for by.

    Raises:
        ConversionError: weights of the encoder are missing.
    """
    verbosity = logging.get_verbosity()
    # Its table of what is new would stand before our sentence; that the head is new is no news.
    logging.set_verbosity_error()
    try:
        model, info = auto.from_pretrained(
            folder, config=config, dtype="float32", output_loading_info=True, ignore_mismatched_sizes=True
        )
    finally:
        logging.set_verbosity(verbosity)
    base = f"{model.base_model_prefix}."
    for name in sorted({*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])}):
        if name.startswith(base) and not any(part in name for part in _MAY_BE_NEW):
            raise ConversionError(
                f"expected all weights of the encoder in {checkpoint}, got none that fits {name}; copy the checkpoint "
                "again, or name another"
            )
    return model


def require_positions(model: Any, checkpoint: str, *, tokens: int, key: str) -> None:
    """Refuse rows that are longer than the model has positions for.

    Args:
        tokens: of the longest row.
        key: of the recipe, that says so.

    Raises:
        UsageError: there are fewer positions.
    """
    positions = Encoder(checkpoint, model, None).positions
    if positions is not None and tokens > positions:
        raise UsageError(
            f"expected {key} of at most the {count(positions, 'position')} of {checkpoint}, got {tokens}; lower it"
        )
