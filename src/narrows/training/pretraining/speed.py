"""How fast a run reads, in its log."""

import time
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

__all__ = ["TokenRate"]


class TokenRate(TrainerCallback):
    """Adds `tokens_per_second` to what is logged of the training: the mean since the last time, evaluations and
    checkpoints left out.

    Args:
        step_tokens: tokens of an optimiser step, over all its micro-batches and processes.
    """

    def __init__(self, step_tokens: int):
        self._step_tokens = step_tokens
        self._since = time.monotonic()
        self._seconds, self._steps = 0.0, 0

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any):
        self._since = time.monotonic()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any):
        now = time.monotonic()
        self._seconds += now - self._since
        self._since, self._steps = now, self._steps + 1

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any):
        self._since = time.monotonic()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any):
        self._since = time.monotonic()

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs=None, **kwargs: Any):
        if logs is not None and "loss" in logs and self._seconds > 0:
            logs["tokens_per_second"] = round(self._steps * self._step_tokens / self._seconds)
            self._seconds, self._steps = 0.0, 0
