"""What a run minimises: the student's vectors, states and logits against its teacher's, each a mean over texts.

Only the loss of similarities depends on how a step is split into forward passes: it ranks the texts of one.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from narrows.core.pooling import window_means
from narrows.hf.sentence_encoder import Reading, SentenceEncoder, pools
from narrows.losses import (
    embedding_distance,
    similarity_divergence,
    soft_cross_entropy,
    state_distance,
    token_distillation,
)
from narrows.training.encoders.recipe import EncoderLossSection

__all__ = ["Counts", "EncoderObjective", "spread_layers"]


class Counts(NamedTuple):
    """Texts of one optimiser step, over all its micro-batches and processes."""

    texts: Tensor


def spread_layers(student: int, teacher: int) -> list[tuple[int, int]]:
    """Each layer of the student with the teacher's at the same share of the depth; the last with the last.

    Example:
        >>> spread_layers(3, 6)
        [(1, 2), (2, 4), (3, 6)]
    """
    return [(layer, max(1, round(layer * teacher / student))) for layer in range(1, student + 1)]


class EncoderObjective:
    """Losses of a student with a frozen teacher.

    Args:
        losses: weights, distances and temperature.
        teacher: where the student is.
        layers: pairs of layers of the two, for the states.
        pooling: of the student's states, as `window_means` takes it.
    """

    def __init__(
        self,
        losses: EncoderLossSection,
        teacher: SentenceEncoder,
        *,
        layers: Sequence[tuple[int, int]],
        pooling: Mapping[str, Any],
    ):
        self._losses, self._teacher, self._layers, self._pooling = losses, teacher, layers, dict(pooling)

    def counts(self, batches: Sequence[Mapping[str, Tensor]]) -> Counts:
        return Counts(torch.tensor(sum(len(batch["input_ids"]) for batch in batches)))

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor], counts: Counts) -> Tensor:
        """The part of one micro-batch in the step's loss."""
        return self.weighted(self.sums(model, batch)) / counts.texts

    def weighted(self, sums: Mapping[str, Tensor]) -> Tensor:
        """The weighted sum of what `sums` gives."""
        total = torch.zeros((), device=next(iter(sums.values())).device)
        for name in ("embedding", "similarity", "hidden", "logits"):
            if name in sums:
                total = total + getattr(self._losses, name) * sums[name]
        return total

    def sums(self, model: nn.Module, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Each loss with a weight, summed over the texts of a batch, and for the vectors their `cosine`."""
        losses, ids, mask = self._losses, batch["input_ids"], batch["attention_mask"]
        states = bool(losses.hidden)
        ours: Reading = model(ids, mask, states=states)
        with torch.no_grad():
            rows = {"input_ids": batch.get("teacher_ids", ids), "attention_mask": batch.get("teacher_mask", mask)}
            theirs = self._teacher.read(rows, states=states)
        sums: dict[str, Tensor] = {}
        if losses.embedding:
            sums["embedding"] = embedding_distance(ours.embedding, theirs.embedding, distance=losses.distance)
            apart = embedding_distance(ours.embedding.detach(), theirs.embedding, distance="cosine")
            sums["cosine"] = len(ids) - apart
        if losses.similarity:
            sums["similarity"] = similarity_divergence(
                ours.embedding, theirs.embedding, temperature=losses.similarity_temperature
            )
        if losses.hidden:
            sums["hidden"] = self._hidden(ours, theirs, mask != 0)
        if losses.logits and ours.logits is not None and theirs.logits is not None:
            if ours.logits.ndim == 2:
                sums["logits"] = soft_cross_entropy(ours.logits, theirs.logits, temperature=losses.temperature)
            else:
                sums["logits"] = token_distillation(
                    ours.logits, theirs.logits, mask != 0, temperature=losses.temperature
                )
        return sums

    def _hidden(self, ours: Reading, theirs: Reading, real: Tensor) -> Tensor:
        total = torch.zeros((), device=real.device)
        for mine, other in self._layers:
            student = ours.states[mine]
            states, kept = theirs.states[other], real
            if states.shape[1] != real.shape[1]:
                # The teacher gets shorter too.
                nothing = states.new_zeros(*real.shape, 1)
                kept = window_means(nothing, real, slots=states.shape[1], **pools(self._teacher.model)).real
            pooled = window_means(states, kept, slots=student.shape[1], **self._pooling)
            total = total + state_distance(student, pooled.means, pooled.real)
        return total / len(self._layers)
