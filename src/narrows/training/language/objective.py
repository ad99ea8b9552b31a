"""What a run minimises: the cross entropy of the next token, divided once by the tokens of the whole step."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from narrows.losses import token_loss

__all__ = ["Counts", "NextTokenObjective"]

# Logits that a micro-batch may hold at once: 64 MiB in fp32, and as much again for their gradient.
_MOST_LOGITS = 1 << 24
_PROBED = 2
_LOUD = 1e4


class Counts(NamedTuple):
    """Tokens that one optimiser step foretells, over all its micro-batches and processes."""

    tokens: Tensor


class NextTokenObjective:
    """The loss of any causal language model.

    Where the logits of a micro-batch are many, they are computed and let go again in chunks of tokens, of which the
    backward pass computes them anew. Of a model that changes what its head gives, such as a cap on logits, all are
    held.

    Args:
        model: that is trained.
        most_logits: numbers of a chunk.
    """

    def __init__(self, model: Any, *, most_logits: int = _MOST_LOGITS):
        self._most_logits = most_logits
        self._vocabulary = model.config.vocab_size
        self._options: dict[str, Any] = {}
        if "use_cache" in inspect.signature(model.forward).parameters:
            self._options["use_cache"] = False
        self._in_chunks = _head_is_last(model, self._options)

    def counts(self, batches: Sequence[Mapping[str, Tensor]]) -> Counts:
        return Counts(torch.tensor(sum(batch["labels"].numel() for batch in batches)))

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor], counts: Counts) -> Tensor:
        """The part of one micro-batch in the step's loss."""
        labels = batch["labels"]
        if self._in_chunks and labels.numel() * self._vocabulary > self._most_logits:
            total = self._chunked(model, batch["input_ids"], labels)
        else:
            logits = model(input_ids=batch["input_ids"], **self._options).logits
            total = token_loss(logits, labels)
        return total / counts.tokens.to(total.device)

    def _chunked(self, model: nn.Module, input_ids: Tensor, labels: Tensor) -> Tensor:
        whole: Any = getattr(model, "module", model)
        head = whole.get_output_embeddings()
        held: list[tuple[Tensor, torch.autocast]] = []

        def hold(module: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            states = arguments[0]
            held.append((states, _autocast_here(states.device.type)))
            # The model's own call goes on with one token a row.
            return (states[:, :1], *arguments[1:])

        handle = head.register_forward_pre_hook(hold)
        try:
            model(input_ids=input_ids, **self._options)
        finally:
            handle.remove()
        states, autocast = held[0]
        tokens = max(1, self._most_logits // self._vocabulary)

        def loss(chosen: Tensor, wanted: Tensor) -> Tensor:
            # What was set for the model's own call.
            with autocast:
                logits = head(chosen)
            return token_loss(logits[None], wanted[None])

        chunks = zip(states.flatten(0, 1).split(tokens), labels.flatten().split(tokens), strict=True)
        parts = [checkpoint(loss, *chunk, use_reentrant=False, preserve_rng_state=False) for chunk in chunks]
        return torch.stack(parts).sum()


def _autocast_here(kind: str) -> torch.autocast:
    return torch.autocast(kind, torch.get_autocast_dtype(kind), enabled=torch.is_autocast_enabled(kind))


@torch.no_grad()
def _head_is_last(model: Any, options: Mapping[str, Any]) -> bool:
    """Whether logits are what the head makes of states, one token at a time, and nothing is done to them after.

    It is looked at with loud states: a cap on logits leaves small ones as they are.
    """
    head: nn.Module | None = model.get_output_embeddings()
    if head is None:
        return False
    training = model.training
    model.eval()
    ids = torch.arange(_PROBED, device=model.device)[None] % model.config.vocab_size
    made: list[Tensor] = []

    def shout(module: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        loud = _LOUD * arguments[0]
        made.append(loud)
        return (loud, *arguments[1:])

    handle = head.register_forward_pre_hook(shout)
    try:
        logits = model(input_ids=ids, **options).logits
    finally:
        handle.remove()
    model.train(training)
    if len(made) != 1 or made[0].shape[:-1] != ids.shape:
        return False
    expected = head(made[0])
    return expected.shape == logits.shape and torch.allclose(expected, logits, rtol=1e-3, atol=1e-3)
