"""How much memory a run takes, in its log."""

import resource
import sys
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

__all__ = ["PeakMemory", "peak_memory_mb"]

_MB = 1 << 20
# Of what the system counts in: kilobytes on Linux, bytes on macOS.
_UNIT = 1 if sys.platform == "darwin" else 1 << 10


def peak_memory_mb() -> float:
    """The most memory so far, in MiB: of the GPU where there is one, otherwise of the process, all of it."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / _MB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT / _MB


class PeakMemory(TrainerCallback):
    """Adds `peak_memory_mb` to what is logged of training and evaluations."""

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs=None, **kwargs: Any):
        if logs is not None and ("loss" in logs or "eval_loss" in logs):
            logs["peak_memory_mb"] = round(peak_memory_mb(), 1)
