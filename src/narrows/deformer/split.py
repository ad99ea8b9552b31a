"""The mechanism: a stack of layers cut in two, its lower part run on each side alone, its upper part on both.

Plain torch, over any layers of the form `layer(hidden, mask, query=None, *, backend)`. Source: Cao et al., DeFormer
(ACL 2020), section 2.1. Two forms that give the same states:

- *packed* (`run_packed`): both sides in one row, the lower layers masked so that neither sees the other. The form for
  training, and the reference.
- *apart* (`run_lower` on each side, `join`, `run_upper`): the form for serving, where the passage's side was stored.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from narrows.core import key_mask, same_segment_mask

__all__ = ["Layer", "Layers", "join", "run_lower", "run_packed", "run_upper"]

Layer = Callable[..., Tensor]
# A ModuleList is no Sequence, though it has all that is asked of one here.
Layers = Sequence[Layer] | nn.ModuleList


def run_lower(
    layers: Layers,
    hidden: Float[Tensor, "batch length width"],
    real: Bool[Tensor, "batch length"] | None,
    *,
    backend: str,
) -> Float[Tensor, "batch length width"]:
    """One side through the lower layers; `real` None says that there is no padding."""
    mask = None if real is None else key_mask(real)
    for layer in layers:
        hidden = layer(hidden, mask, backend=backend)
    return hidden


def join(
    question: Float[Tensor, "questions question_length width"],
    question_real: Bool[Tensor, "questions question_length"] | None,
    passages: Float[Tensor, "batch passage_length width"],
    passage_real: Bool[Tensor, "batch passage_length"] | None,
) -> tuple[Float[Tensor, "batch length width"], Bool[Tensor, "batch length"] | None]:
    """Put the question's states before each passage's; one question is shared by all passages.

    Returns:
        The joined states, and their mask (None when neither side has padding).
    """
    batch = passages.shape[0]
    states = torch.cat([question.expand(batch, -1, -1), passages], dim=1)
    if question_real is None and passage_real is None:
        return states, None
    if question_real is None:
        question_real = torch.ones(question.shape[:2], dtype=torch.bool, device=states.device)
    if passage_real is None:
        passage_real = torch.ones(passages.shape[:2], dtype=torch.bool, device=states.device)
    return states, torch.cat([question_real.expand(batch, -1), passage_real], dim=1)


def run_upper(
    layers: Layers,
    hidden: Float[Tensor, "batch length width"],
    real: Bool[Tensor, "batch length"] | None,
    *,
    read: Int[Tensor, " read"] | None = None,
    backend: str,
) -> Float[Tensor, "batch read width"]:
    """The joined states through the upper layers.

    Args:
        layers: layers k..n−1, at least one.
        hidden: joined states after layer k.
        real: True for real tokens; None when there is no padding.
        read: indices of the tokens that the head reads; the last layer computes only these (as queries: it still sees
            every key). None: all.
        backend: of `narrows.core.attend`.
    """
    mask = None if real is None else key_mask(real)
    for layer in layers[:-1]:
        hidden = layer(hidden, mask, backend=backend)
    query = None if read is None else hidden.index_select(1, read)
    return layers[-1](hidden, mask, query, backend=backend)


def run_packed(
    layers: Layers,
    hidden: Float[Tensor, "batch length width"],
    real: Bool[Tensor, "batch length"] | None,
    segments: Int[Tensor, "batch length"],
    *,
    split_layer: int,
    from_layer: int = 0,
    backend: str,
) -> list[Float[Tensor, "batch length width"]]:
    """Both sides in one row through all layers; below `split_layer` neither sees the other.

    Args:
        from_layer: `hidden` are the states that enter this layer (`split_layer` when they were stored).

    Returns:
        `hidden` and the states after each layer that ran.
    """
    if real is None:
        real = torch.ones(hidden.shape[:2], dtype=torch.bool, device=hidden.device)
    apart = same_segment_mask(real, segments) if from_layer < split_layer else None
    together = key_mask(real)
    states = [hidden]
    for index in range(from_layer, len(layers)):
        mask = apart if index < split_layer else together
        states.append(layers[index](states[-1], mask, backend=backend))
    return states
