"""A split reader from its folder, refused when its head was never trained."""

from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from narrows.deformer.model import DeformerForQuestionAnswering
from narrows.errors import ConversionError

__all__ = ["load_reader"]


def load_reader(folder: Path) -> DeformerForQuestionAnswering:
    """A DeFormer with its span head, in fp32.

    transformers fills what a checkpoint lacks with random weights and a warning; a reader like that answers nonsense.

    Raises:
        ConversionError: weights are missing, as from a DeFormer of another task, or have other shapes than the config
            says.
    """
    verbosity = logging.get_verbosity()
    # Its table of what is missing would stand before our sentence.
    logging.set_verbosity_error()
    try:
        loaded: Any = DeformerForQuestionAnswering.from_pretrained(
            # What does not fit is told below; transformers would raise a table over several lines.
            folder,
            dtype=torch.float32,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
    finally:
        logging.set_verbosity(verbosity)
    model, information = loaded
    if information["mismatched_keys"]:
        name, found, wanted = sorted(information["mismatched_keys"])[0]
        raise ConversionError(
            f"expected {name} of shape {tuple(wanted)}, as {folder / 'config.json'} says, got {tuple(found)}; "
            "correct its sizes or copy the checkpoint again"
        )
    if information["missing_keys"]:
        raise ConversionError(
            f"expected a checkpoint with a trained span head, got {folder} without one; "
            "train it first with `narrows train`"
        )
    return model
