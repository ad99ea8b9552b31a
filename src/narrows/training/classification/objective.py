"""What a run minimises: the mean cross entropy, or squared error, over the labels of an optimiser step."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from narrows.data.class_rows import IGNORED
from narrows.losses import classification_loss, token_loss

__all__ = ["ClassObjective", "Counts"]


class Counts(NamedTuple):
    """Labels of one optimiser step, over all its micro-batches and processes."""

    labels: Tensor


class ClassObjective:
    """The loss of classes, numbers, choices or tags.

    Args:
        problem: `classes`, `regression`, `choices` or `tags`.
        accepted: names of the inputs that the model takes.
    """

    def __init__(self, problem: str, accepted: frozenset[str]):
        self._tags, self._accepted = problem == "tags", accepted - {"labels"}

    def counts(self, batches: Sequence[Mapping[str, Tensor]]) -> Counts:
        found = [batch["labels"] for batch in batches]
        total = sum(int((labels != IGNORED).sum()) if self._tags else len(labels) for labels in found)
        # A step whose words all were cut off has a loss of 0.
        return Counts(torch.tensor(max(1, total)))

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor], counts: Counts) -> Tensor:
        """The part of one micro-batch in the step's loss."""
        logits: Any = model(**{name: batch[name] for name in batch if name in self._accepted}).logits
        loss = token_loss if self._tags else classification_loss
        return loss(logits, batch["labels"]) / counts.labels
