"""The arguments of transformers' Trainer that all tasks share."""

from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments

from narrows.training.sections import FineTuningSection, OptimiserSection

__all__ = ["fine_tuning_arguments", "training_arguments"]


def training_arguments(
    optimiser: OptimiserSection,
    output: Path,
    *,
    evaluate_every: int,
    metric: str | None,
    quiet: bool,
    **others: Any,
) -> TrainingArguments:
    """One pass over a `BatchPlan`, with a checkpoint at each evaluation.

    Args:
        optimiser: of the recipe.
        output: folder of the run.
        evaluate_every: steps between checkpoints, and evaluations where there is something to evaluate.
        metric: by which the best checkpoint is chosen, the higher the better; None: there is no evaluation.
        quiet: no progress bar.
        others: in the place of what stands here.
    """
    arguments: dict[str, Any] = {
        "output_dir": str(output),
        "num_train_epochs": 1,
        "gradient_accumulation_steps": optimiser.accumulation,
        "learning_rate": optimiser.learning_rate,
        "lr_scheduler_type": "linear",
        "warmup_steps": optimiser.warmup,
        "weight_decay": optimiser.weight_decay,
        "max_grad_norm": optimiser.max_grad_norm,
        "bf16": optimiser.dtype == "bfloat16",
        "use_cpu": not torch.cuda.is_available(),
        "seed": optimiser.seed,
        "logging_steps": 20,
        # A loss that is no number ends the run; the filter would show the mean of the others.
        "logging_nan_inf_filter": False,
        "eval_strategy": "no" if metric is None else "steps",
        "eval_steps": evaluate_every,
        "save_strategy": "steps",
        "save_steps": evaluate_every,
        "load_best_model_at_end": metric is not None,
        "metric_for_best_model": metric,
        "greater_is_better": None if metric is None else True,
        "remove_unused_columns": False,
        "report_to": "tensorboard",
        "disable_tqdm": quiet,
    }
    return TrainingArguments(**{**arguments, **others})


def fine_tuning_arguments(
    optimiser: FineTuningSection, output: Path, *, evaluate_every: int, metric: str | None, quiet: bool
) -> TrainingArguments:
    """`training_arguments`, with the second moment's rate and gradient checkpointing of the recipe."""
    again = optimiser.gradient_checkpointing
    return training_arguments(
        optimiser,
        output,
        evaluate_every=evaluate_every,
        metric=metric,
        quiet=quiet,
        adam_beta2=optimiser.beta2,
        activation_checkpointing=again,
        activation_checkpointing_kwargs={"use_reentrant": False} if again else None,
    )
