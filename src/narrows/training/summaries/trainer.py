"""The trainer of summarisers: ours, with transformers' for sequences to sequences, Adafactor and its schedule."""

from typing import Any, cast

import torch
from torch import nn
from transformers import Seq2SeqTrainer
from transformers.optimization import Adafactor

from narrows.training.optimiser import parameter_groups
from narrows.training.trainer import NarrowsTrainer

__all__ = ["SummaryTrainer", "adafactor"]


def adafactor(model: nn.Module, *, learning_rate: float, weight_decay: float) -> torch.optim.Optimizer:
    """Adafactor at the given rate: without relative steps and without scaling by the parameters."""
    groups = parameter_groups(model, learning_rate=learning_rate, weight_decay=weight_decay, layer_decay=1.0)
    optimizer = Adafactor(groups, lr=learning_rate, scale_parameter=False, relative_step=False, warmup_init=False)
    return cast(torch.optim.Optimizer, optimizer)


class SummaryTrainer(NarrowsTrainer, Seq2SeqTrainer):
    """Runs a `SummaryObjective` over a `GrowingPlan`.

    Args:
        optimizer_name: `adafactor` or `adamw`.
        options: as of `NarrowsTrainer`.
    """

    def __init__(self, *, optimizer_name: str, **options: Any):
        super().__init__(layer_decay=1.0, **options)
        self._optimizer_name = optimizer_name

    def create_optimizer(self, *args: Any, **kwargs: Any):
        if self.optimizer is None and self._optimizer_name == "adafactor":
            rate, decay = self.args.learning_rate, self.args.weight_decay
            self.optimizer = adafactor(cast(nn.Module, self.model), learning_rate=rate, weight_decay=decay)
        return super().create_optimizer(*args, **kwargs)
