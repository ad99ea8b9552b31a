"""Losses of pretraining: tokens that are hidden, and tokens that were replaced.

Devlin et al. 2019 (BERT), section 3.1; Clark et al. 2020 (ELECTRA), section 2; Dai et al. 2020 (Funnel-Transformer).

Each is a sum divided by `num_items_in_batch`. That is the count of the whole optimiser step, over all its micro-batches
and processes, so that a step does not depend on how it was split; without it, the count of these tensors.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from narrows._plural import count
from narrows.errors import UsageError

__all__ = ["DISCRIMINATOR_WEIGHT", "Replacements", "masked_lm_loss", "replaced_token_loss", "sample_replacements"]

DISCRIMINATOR_WEIGHT = 50.0
"""Of `replaced_token_loss` beside the generator's `masked_lm_loss`, in ELECTRA's and Funnel's code."""


class Replacements(NamedTuple):
    """What a discriminator reads and is asked.

    Attributes:
        input_ids: `[batch, length]`, the text with the sampled tokens in the places of the predicted ones.
        replaced: bool `[batch, length]`, where a token is not the one that stood there. A sample may be the right
            token, which is then not replaced.
    """

    input_ids: Tensor
    replaced: Tensor


def masked_lm_loss(
    states: Float[Tensor, "batch length width"],
    labels: Int[Tensor, "batch length"],
    head: Callable[[Tensor], Tensor],
    *,
    num_items_in_batch: int | Tensor | None = None,
    ignored: int = -100,
) -> Float[Tensor, ""]:
    """Cross entropy of the predicted tokens, over the vocabulary of those places only.

    Args:
        states: of every token.
        labels: ids, `ignored` where nothing is predicted.
        head: from the states of the predicted tokens, `[predicted, width]`, to logits, `[predicted, vocabulary]`; no
            logit of another token is computed. Where nothing is predicted it is called with no rows.
        num_items_in_batch: what the sum is divided by; the labels of this batch when None.
        ignored: the label of a token that is not predicted.

    Returns:
        In at least fp32; 0, with a gradient of 0, where nothing is predicted.

    Example:
        >>> float(masked_lm_loss(torch.zeros(1, 3, 4), torch.tensor([[2, -100, 1]]), lambda states: states))  # log 4
        1.3862943649291992
    """
    predicted = labels != ignored
    logits = head(states[predicted])
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    total = functional.cross_entropy(logits, labels[predicted], reduction="sum")
    return total / (max(1, int(predicted.sum())) if num_items_in_batch is None else num_items_in_batch)


def replaced_token_loss(
    logits: Float[Tensor, "batch length"],
    replaced: Bool[Tensor, "batch length"],
    *,
    positive: str,
    attention_mask: Tensor | None = None,
    weight: float = DISCRIMINATOR_WEIGHT,
    num_items_in_batch: int | Tensor | None = None,
) -> Float[Tensor, ""]:
    """Binary cross entropy of every real token: was it replaced?

    Args:
        logits: of the discriminator.
        replaced: where a token is not the one that stood there; see `sample_replacements`.
        positive: what a logit above 0 says of its token. `original`, as in the Funnel paper's code, whose target is 1
            where a token is the original; `replaced`, as in ELECTRA's and in transformers' `ElectraForPreTraining` and
            `FunnelForPreTraining`. A head that was trained with one is read with the other by turning its sign.
        attention_mask: `[batch, length]`, nonzero for real tokens; all are when None.
        weight: factor of the loss.
        num_items_in_batch: what the sum is divided by; the real tokens of this batch when None.

    Raises:
        UsageError: another word for `positive`.

    Example:
        >>> round(float(replaced_token_loss(torch.zeros(1, 2), torch.tensor([[True, False]]), positive="replaced",
        ...     weight=1.0)), 4)  # log 2
        0.6931
    """
    if positive not in ("replaced", "original"):
        raise UsageError(f"expected `positive` to be 'replaced' or 'original', got {positive!r}; choose one of them")
    real = torch.ones_like(replaced) if attention_mask is None else attention_mask != 0
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))[real]
    target = replaced if positive == "replaced" else ~replaced
    total = functional.binary_cross_entropy_with_logits(logits, target[real].to(logits.dtype), reduction="sum")
    return weight * total / (max(1, int(real.sum())) if num_items_in_batch is None else num_items_in_batch)


def sample_replacements(
    input_ids: Int[Tensor, "batch length"],
    labels: Int[Tensor, "batch length"],
    logits: Float[Tensor, "predicted vocabulary"],
    *,
    generator: torch.Generator | Sequence[torch.Generator],
    ignored: int = -100,
) -> Replacements:
    """A token drawn from the generator for every predicted place: argmax of its logits with Gumbel noise added.

    No gradient goes through the draw.

    Args:
        input_ids: what the generator saw.
        labels: ids of the tokens that stood there, `ignored` where nothing was predicted.
        logits: of the predicted places, in the order of the rows, as a head gives them in `masked_lm_loss`.
        generator: makes the draws, on the device of the logits. One for each row instead: what is drawn for a row then
            does not depend on the rows beside it, and a step not on how its batch was split.
        ignored: the label of a token that was not predicted.

    Raises:
        UsageError: another number of logits than of labels, or of generators than of rows.

    Example:
        >>> logits = torch.tensor([[0.0, 50.0]])
        >>> drawn = sample_replacements(torch.tensor([[7, 3]]), torch.tensor([[0, -100]]), logits,
        ...     generator=torch.Generator())
        >>> drawn.input_ids.tolist(), drawn.replaced.tolist()
        ([[1, 3]], [[True, False]])
    """
    predicted = labels != ignored
    if len(logits) != int(predicted.sum()):
        raise UsageError(
            f"expected logits of the {int(predicted.sum()):,} predicted tokens, got {len(logits):,}; "
            "pass those of the places with a label"
        )
    scores = logits.detach().to(torch.promote_types(logits.dtype, torch.float32))
    noise = torch.empty_like(scores)
    if isinstance(generator, torch.Generator):
        noise.exponential_(generator=generator)
    else:
        _fill_by_row(noise, predicted.sum(1).tolist(), generator)
    # The logarithm of an exponential variable, with its sign turned, is a Gumbel variable.
    drawn = (scores - noise.log()).argmax(-1).to(input_ids.dtype)
    seen = input_ids.masked_scatter(predicted, drawn)
    return Replacements(seen, predicted & (seen != labels))


def _fill_by_row(noise: Tensor, counts: list[int], generators: Sequence[torch.Generator]) -> None:
    """Exponential noise for the predicted places of each row, from the generator of the row."""
    if len(generators) != len(counts):
        raise UsageError(
            f"expected a generator for each of {count(len(counts), 'row')}, got {len(generators):,}; pass one each, "
            "or one for all"
        )
    for part, generator in zip(noise.split(counts), generators, strict=True):
        part.exponential_(generator=generator)
