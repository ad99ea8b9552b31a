"""The trainer of summarisers: ours, with transformers' for sequences to sequences, Adafactor and its schedule."""

from typing import Any, cast

import torch
from torch import nn
from transformers import Seq2SeqTrainer
from transformers.optimization import Adafactor

from narrows.training.optimiser import parameter_groups
from narrows.training.trainer import NarrowsTrainer

__all__ = ["SummaryTrainer"]


class SummaryTrainer(NarrowsTrainer, Seq2SeqTrainer):
    """Runs a `SummaryObjective` over a `GrowingPlan`.

    Args:
        optimizer_name: `adafactor` or `adamw`.
        options: as of `NarrowsTrainer`.
    """

    def __init__(self, *, optimizer_name: str, **options: Any):
        super().__init__(layer_decay=1.0, **options)
        self._optimizer_name = optimizer_name

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        # Tied weights are saved once; transformers would warn of their other names.
        tied = getattr(self.model, "all_tied_weights_keys", {})
        load_result.missing_keys[:] = [name for name in load_result.missing_keys if name not in tied]
        super()._issue_warnings_after_load(load_result)

    def create_optimizer(self, *args: Any, **kwargs: Any):
        if self.optimizer is None and self._optimizer_name == "adafactor":
            groups = parameter_groups(
                cast(nn.Module, self.model),
                learning_rate=self.args.learning_rate,
                weight_decay=self.args.weight_decay,
                layer_decay=1.0,
            )
            optimizer = Adafactor(
                groups, lr=self.args.learning_rate, scale_parameter=False, relative_step=False, warmup_init=False
            )
            self.optimizer = cast(torch.optim.Optimizer, optimizer)
        return super().create_optimizer(*args, **kwargs)
