"""What a run minimises: γ·task + α·KD + β·LRS, each divided once by its count over the optimiser step."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from narrows.errors import UsageError
from narrows.losses import layerwise_similarity, span_distillation, span_loss
from narrows.training.spans.recipe import LossSection

__all__ = ["ConditionalObjective", "Counts", "SpanObjective"]

_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "lower_states")


class Counts(NamedTuple):
    """What the losses of one optimiser step are divided by, over all its micro-batches and processes."""

    labelled: Tensor
    examples: Tensor
    tokens: Tensor


class SpanObjective:
    """Losses of a span reader, alone or with a frozen teacher.

    Args:
        losses: weights, temperature and distance.
        split_layer: k of the student; LRS compares the states after layers k+1..n.
        teacher: a span model of the same layers; needed for KD and LRS.
        inputs: names of what the student takes of a batch.
    """

    def __init__(
        self,
        losses: LossSection,
        *,
        split_layer: int,
        teacher: nn.Module | None,
        inputs: Collection[str] = _INPUTS,
    ):
        self._losses, self._split_layer, self._teacher, self._inputs = losses, split_layer, teacher, inputs
        if teacher is not None:
            teacher.eval().requires_grad_(False)

    def counts(self, batches: Sequence[Mapping[str, Tensor]]) -> Counts:
        """What the losses of a step are divided by."""
        return _count(batches)

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor], counts: Counts) -> Tensor:
        """The part of one micro-batch in the step's loss."""
        losses = self._losses
        inputs = {name: batch[name] for name in _INPUTS if name in batch and name in self._inputs}
        outputs = model(**inputs, output_hidden_states=bool(losses.lrs))
        total = outputs.start_logits.new_zeros((), dtype=torch.float32)
        if losses.task:
            total = total + losses.task * self._task(outputs, batch) / counts.labelled.clamp_min(1)
        if losses.kd or losses.lrs:
            total = total + self._distil(outputs, inputs, counts)
        return total

    def _task(self, outputs, batch: Mapping[str, Tensor]) -> Tensor:
        rows = (batch["start_positions"] >= 0).nonzero()[:, 0]
        return span_loss(
            outputs.start_logits[rows],
            outputs.end_logits[rows],
            batch["start_positions"][rows],
            batch["end_positions"][rows],
            batch["attention_mask"][rows],
        )

    def _distil(self, outputs, inputs: Mapping[str, Tensor], counts: Counts) -> Tensor:
        if self._teacher is None:
            raise UsageError(
                f"expected a teacher for kd {self._losses.kd} and lrs {self._losses.lrs}, got none; "
                "pass one or set both to 0"
            )
        losses, mask = self._losses, inputs["attention_mask"]
        with torch.no_grad():
            # The teacher reads the tokens themselves, also when the student starts from stored states.
            tokens = {name: value for name, value in inputs.items() if name != "lower_states"}
            teacher = self._teacher(**tokens, output_hidden_states=bool(losses.lrs))
        total = outputs.start_logits.new_zeros((), dtype=torch.float32)
        if losses.kd:
            divergence = span_distillation(
                (outputs.start_logits, outputs.end_logits),
                (teacher.start_logits, teacher.end_logits),
                temperature=losses.temperature,
                attention_mask=mask,
            )
            total = total + losses.kd * divergence / counts.examples
        if losses.lrs:
            upper = len(teacher.hidden_states) - 1 - self._split_layer
            similarity = layerwise_similarity(
                outputs.hidden_states[-upper:],
                teacher.hidden_states[-upper:],
                attention_mask=mask,
                distance=losses.distance,
            )
            total = total + losses.lrs * similarity / counts.tokens
        return total


class ConditionalObjective:
    """The loss of Funnel's conditional head: half of the span's, and half of whether there is an answer.

    Args:
        weight: factor of the loss.
        inputs: names of what the model takes of a batch, of which every row is labelled.
    """

    def __init__(self, weight: float, *, inputs: Collection[str]):
        self._weight, self._inputs = weight, inputs

    def counts(self, batches: Sequence[Mapping[str, Tensor]]) -> Counts:
        """What the loss of a step is divided by."""
        return _count(batches)

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor], counts: Counts) -> Tensor:
        """The part of one micro-batch in the step's loss."""
        inputs = {name: batch[name] for name in batch if name in self._inputs}
        # A window without an answer is labelled at [CLS].
        impossible = batch["start_positions"] == 0
        return self._weight * model(**inputs, is_impossible=impossible, num_items_in_batch=counts.labelled).loss


def _count(batches: Sequence[Mapping[str, Tensor]]) -> Counts:
    labelled = sum((batch["start_positions"] >= 0).sum() for batch in batches)
    tokens = sum((batch["attention_mask"] != 0).sum() for batch in batches)
    examples = sum(batch["input_ids"].shape[0] for batch in batches)
    return Counts(torch.as_tensor(labelled), torch.as_tensor(examples), torch.as_tensor(tokens))
