"""What a run minimises: the cross entropy of what is to be written, divided once by the labels of the whole step."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from narrows.losses import token_loss

__all__ = ["Counts", "SummaryObjective"]

_IGNORED = -100
_INPUTS = ("input_ids", "attention_mask", "decoder_input_ids")


class Counts(NamedTuple):
    """Labels of one optimiser step, over all its micro-batches and processes."""

    labels: Tensor


class SummaryObjective:
    """The loss of any model that takes T5's inputs; computed here, so that Mulla and its peers are trained alike."""

    def counts(self, batches: Sequence[Mapping[str, Tensor]]) -> Counts:
        return Counts(torch.as_tensor(sum((batch["labels"] != _IGNORED).sum() for batch in batches)))

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor], counts: Counts) -> Tensor:
        """The part of one micro-batch in the step's loss."""
        outputs = model(**{name: batch[name] for name in _INPUTS}, use_cache=False)
        return token_loss(outputs.logits, batch["labels"], ignored=_IGNORED) / counts.labels.clamp_min(1)
