"""What a run of ELECTRA minimises, and how good its two models are."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from narrows.data import evenly_spread
from narrows.data.masking import IGNORED
from narrows.evaluation.detection import area_under_curve
from narrows.training.pretraining.data import Item, MaskedRows
from narrows.training.pretraining.recipe import PretrainingRecipe

__all__ = ["Counts", "ElectraObjective", "evaluate_electra"]


class Counts(NamedTuple):
    """Predicted tokens and all tokens of one optimiser step, over all its micro-batches and processes."""

    labels: Tensor
    tokens: Tensor


class ElectraObjective:
    """The generator's cross entropy and the discriminator's weighted binary one, each over its tokens of the step.

    What the generator fills in for a row is drawn from the row's own seed: it does not depend on the batch that the row
    is in, nor on whether the run was stopped before.
    """

    def counts(self, batches: Sequence[Mapping[str, Tensor]]) -> Counts:
        return Counts(
            torch.as_tensor(sum((batch["labels"] != IGNORED).sum() for batch in batches)),
            torch.as_tensor(sum(batch["input_ids"].numel() for batch in batches)),
        )

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor], counts: Counts) -> Tensor:
        """The part of one micro-batch in the step's loss."""
        outputs = model(
            **_inputs(batch),
            num_items_in_batch=counts.labels.to(batch["labels"].device).clamp_min(1),
            num_tokens_in_batch=counts.tokens.to(batch["labels"].device),
        )
        return outputs.loss


def evaluate_electra(
    model: Any,
    *,
    rows: MaskedRows,
    recipe: PretrainingRecipe,
    collate: Callable[..., Mapping[str, Tensor]],
) -> dict[str, float]:
    """Both models on the same tokens and the same draws' seeds every time.

    Returns:
        `loss` as in training; `generator_loss` of a predicted token; `discriminator_loss` of a token, without its
        weight; in percent, `replaced_accuracy` of the discriminator's judgements, `always_original`, which is what
        calling every token original would reach, and `replaced_auc`: how often a replaced token is held to be rather
        so than an original one, 50 by chance.
    """
    model.eval()
    config = model.config
    autocast = recipe.optimiser.dtype == "bfloat16"
    chosen = evenly_spread(range(len(rows)), recipe.evaluate.limit)
    generator, discriminator, labels = 0.0, 0.0, 0
    scores, replaced = [], []
    for start in range(0, len(chosen), recipe.batch_rows):
        batch = collate([rows[Item(0, row)] for row in chosen[start : start + recipe.batch_rows]])
        batch = {name: tensor.to(model.device) for name, tensor in batch.items()}
        with torch.inference_mode(), torch.autocast(model.device.type, torch.bfloat16, enabled=autocast):
            # Divided by one, the losses are sums.
            outputs = model(**_inputs(batch), num_items_in_batch=1, num_tokens_in_batch=1)
        generator += float(outputs.generator_loss)
        discriminator += float(outputs.discriminator_loss) / config.discriminator_weight
        labels += int((batch["labels"] != IGNORED).sum())
        sign = 1.0 if config.discriminator_positive == "replaced" else -1.0
        scores.append(sign * outputs.logits.float().flatten().cpu().numpy())
        replaced.append(outputs.replaced.flatten().cpu().numpy())
    score, is_replaced = np.concatenate(scores), np.concatenate(replaced)
    generator, discriminator = generator / labels, discriminator / len(score)
    return {
        "loss": generator + config.discriminator_weight * discriminator,
        "generator_loss": generator,
        "discriminator_loss": discriminator,
        "replaced_accuracy": 100 * float(((score > 0) == is_replaced).mean()),
        "always_original": 100 * float((~is_replaced).mean()),
        "replaced_auc": 100 * area_under_curve(score, is_replaced),
    }


def _inputs(batch: Mapping[str, Tensor]) -> dict[str, Any]:
    device = batch["input_ids"].device
    draws = [torch.Generator(device=device).manual_seed(seed) for seed in batch["seeds"].tolist()]
    return {**{name: batch[name] for name in ("input_ids", "token_type_ids", "labels")}, "generator": draws}
