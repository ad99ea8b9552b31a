"""transformers' Trainer with our objective, batches by tokens, checkpoints by the clock and on a signal."""

import json
import math
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler
from transformers import (
    PrinterCallback,
    ProgressCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_utils import rotate_checkpoints

from narrows.errors import NarrowsError
from narrows.training.optimiser import parameter_groups

__all__ = ["ClockCheckpoint", "FewCheckpoints", "JsonLog", "NarrowsTrainer", "Objective", "StopSignal"]

_SECONDS_BETWEEN_CHECKPOINTS = 600
_CHECKPOINTS_KEPT = 2


class Objective(Protocol):
    """What a trainer minimises: a sum over micro-batches and processes, divided by counts of the whole step."""

    def counts(self, batches: Sequence[Mapping[str, Tensor]]) -> NamedTuple:
        """What the losses of a step are divided by: tensors, which are added up over processes."""
        ...

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor], counts: Any) -> Tensor:
        """The part of one micro-batch in the step's loss."""
        ...


class NarrowsTrainer(Trainer):
    """Runs an `Objective` over a plan of all batches of the run, such as `BatchPlan`.

    The whole run is one pass over the plan, so resuming at any step is skipping that many batches. Losses are
    divided by counts of the whole optimiser step: accumulation and processes do not change it.
    """

    def __init__(
        self,
        *,
        objective: Objective,
        plan: Sampler[list[Any]],
        collate: Callable[[Sequence[Any]], Mapping[str, Tensor]],
        evaluate_model: Callable[[nn.Module], Mapping[str, float]] | None,
        layer_decay: float,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self._objective, self._plan, self._collate = objective, plan, collate
        self._evaluate_model, self._layer_decay = evaluate_model, layer_decay
        # Theirs write the log to stdout, which is for data; it goes to the log file and to TensorBoard.
        self.remove_callback(PrinterCallback)
        if self.pop_callback(ProgressCallback) is not None:
            self.add_callback(_Bar)
        self.add_callback(FewCheckpoints)
        # Our loss is already divided by the counts of the whole step.
        self.loss_is_scaled_for_ga = True

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        # Tied weights are saved once; transformers would warn of their other names.
        tied = getattr(self.model, "all_tied_weights_keys", None) or {}
        load_result.missing_keys[:] = [name for name in load_result.missing_keys if name not in tied]
        super()._issue_warnings_after_load(load_result)

    def get_train_dataloader(self) -> DataLoader:
        loader = DataLoader(cast(Dataset, self.train_dataset), batch_sampler=self._plan, collate_fn=self._collate)
        return self.accelerator.prepare(loader)

    def get_batch_samples(self, epoch_iterator, num_batches, device):
        batches = []
        for _ in range(num_batches):
            batch = next(epoch_iterator, None)
            if batch is None:
                break
            batches.append(batch)
        counts = self._objective.counts(batches) if batches else None
        if counts is not None and self.args.world_size > 1:
            summed = (cast(Tensor, self.accelerator.reduce(count.to(device), "sum")) for count in counts)
            counts = counts._make(summed)
        return batches, counts

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        # What `get_batch_samples` gave, in the place where transformers has a number.
        counts = cast(Any, num_items_in_batch) or self._objective.counts([inputs])
        # Data-parallel training averages gradients over processes; our counts already span them all.
        return self._objective(model, inputs, counts) * self.args.world_size

    def create_optimizer(self, *args: Any, **kwargs: Any):
        if self.optimizer is None:
            groups = parameter_groups(
                cast(nn.Module, self.model),
                learning_rate=self.args.learning_rate,
                weight_decay=self.args.weight_decay,
                layer_decay=self._layer_decay,
            )
            betas = (self.args.adam_beta1, self.args.adam_beta2)
            self.optimizer = torch.optim.AdamW(groups, lr=self.args.learning_rate, betas=betas, eps=1e-6, fused=True)
        return self.optimizer

    def evaluate(self, eval_dataset=None, ignore_keys=None, metric_key_prefix: str = "eval") -> dict[str, float]:
        model = cast(nn.Module, self.model)
        scores = self._evaluate_model(model) if self._evaluate_model is not None else {}
        model.train()
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in scores.items()}
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


class _Bar(ProgressCallback):
    """transformers' progress bar, with the loss at its end instead of in lines between."""

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs=None, **kwargs: Any):
        if self.training_bar is not None and logs and "loss" in logs:
            self.training_bar.set_postfix(loss=f"{float(logs['loss']):.3f}")


class FewCheckpoints(TrainerCallback):
    """Keeps the last checkpoints and the best one, by their steps.

    transformers goes by the times of files, which a copied run has lost, and warns of saves within one second.
    """

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any):
        if args.should_save:
            rotate_checkpoints(
                output_dir=cast(str, args.output_dir),
                save_total_limit=_CHECKPOINTS_KEPT,
                best_model_checkpoint=state.best_model_checkpoint,
            )


class ClockCheckpoint(TrainerCallback):
    """Asks for a checkpoint when the last one is older than `seconds`."""

    def __init__(self, seconds: float = _SECONDS_BETWEEN_CHECKPOINTS):
        self._seconds, self._last = seconds, time.monotonic()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any):
        if _any_process(time.monotonic() - self._last > self._seconds, args):
            control.should_save = True
        return control

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any):
        self._last = time.monotonic()


class StopSignal(TrainerCallback):
    """On SIGTERM or SIGINT: finish the step, save, stop. A second signal stops at once."""

    def __init__(self) -> None:
        self.stopped = False
        self._former: dict[int, Any] = {}

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any):
        for number in (signal.SIGTERM, signal.SIGINT):
            self._former[number] = signal.signal(number, self._note)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any):
        self.stopped = _any_process(self.stopped, args)
        if self.stopped:
            control.should_save = control.should_training_stop = True
        return control

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any):
        for number, handler in self._former.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.stopped:
            raise KeyboardInterrupt
        self.stopped = True


def _any_process(asked: bool, args: TrainingArguments) -> bool:
    """Whether some process asks, the same answer in all: one that saved or stopped alone would leave the others waiting
    for it in their next step."""
    if args.world_size == 1:
        return asked
    answer = torch.tensor(int(asked), device=args.device)
    torch.distributed.all_reduce(answer, op=torch.distributed.ReduceOp.MAX)
    return bool(answer)


class JsonLog(TrainerCallback):
    """Appends every log entry to a JSONL file, with the step and the time; of several processes, the first does.

    Raises:
        NarrowsError: a loss, a norm or a score is no number, after which nothing is learnt.
    """

    def __init__(self, path: Path):
        self._path = path

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs=None, **kwargs: Any):
        for name, value in (logs or {}).items():
            if isinstance(value, float) and not math.isfinite(value):
                raise NarrowsError(
                    f"expected a finite {name} at step {state.global_step:,}, got {value}: the weights are lost; train "
                    "anew under another name with a lower optimiser.learning_rate"
                )
        if not state.is_world_process_zero:
            return
        entry = {
            "step": state.global_step,
            "of": state.max_steps,
            "time": round(time.time(), 1),
            **(logs or {}),
        }
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
