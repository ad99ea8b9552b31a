"""A checkpoint under a head that is to be trained: all of the encoder's weights, and a new head where there is none."""

from pathlib import Path
from typing import Any

from transformers.utils import logging

from narrows.errors import ConversionError

__all__ = ["load_encoder"]

# What a checkpoint may lack beside the head: it is learnt with it.
_MAY_BE_NEW = ("pooler.", "decoder.")


def load_encoder(auto: Any, folder: Path, config: Any, checkpoint: str) -> Any:
    """The model in fp32; a head that the checkpoint lacks, or has for other labels, is new, by torch's seed.

    Args:
        auto: an Auto class, such as `AutoModelForMaskedLM`.
        folder: of the checkpoint.
        config: of the model.
        checkpoint: its name in the recipe.

    Raises:
        ConversionError: weights of the encoder that are missing or of another shape; transformers would draw them.
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
