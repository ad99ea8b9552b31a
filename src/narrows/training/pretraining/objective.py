"""What a run minimises: the cross entropy of the predicted tokens, divided once by those of the whole step."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from narrows.data.masking import IGNORED
from narrows.errors import UsageError
from narrows.losses import token_loss

__all__ = ["Counts", "MaskedTokens", "MaskedTokensObjective"]


class Counts(NamedTuple):
    """Predicted tokens of one optimiser step, over all its micro-batches and processes."""

    labels: Tensor


class MaskedTokens:
    """Asks a masked language model for the tokens that are to be predicted, and no others.

    Args:
        model: of transformers or of this library.
        segments: of the rows, 1 or 2.
        hide_keys: predicted places are not looked at by attention.

    Raises:
        UsageError: 2 segments, and a model that does not tell them apart; or `hide_keys` with a Funnel whose mask would
            hide them from pooling too.
    """

    def __init__(self, model: Any, *, segments: int, hide_keys: bool):
        taken = inspect.signature(model.forward).parameters
        config = model.config
        self._names = ["input_ids"]
        if "token_type_ids" in taken and getattr(config, "type_vocab_size", 2) > 1:
            self._names.append("token_type_ids")
        elif segments > 1:
            raise UsageError(f"expected a model with segments for data.segments 2, got {config.model_type}; make it 1")
        # A mask of keys alone, where a model has one. Padding and keys are the same to most encoders.
        self._mask = "key_mask" if "key_mask" in taken else "attention_mask"
        if hide_keys and self._mask != "key_mask" and "funnel" in config.model_type:
            raise UsageError(
                f"expected a model with a mask of keys alone for masking.hide_keys, got {config.model_type}, which "
                "would not pool those tokens either; leave it out"
            )
        self._hide_keys = hide_keys

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """Logits of the predicted tokens in the order of the rows, `[predicted, vocabulary]`."""
        inputs = {name: batch[name] for name in self._names}
        predicted = batch["labels"] != IGNORED
        if self._hide_keys:
            inputs[self._mask] = (~predicted).long()

        def choose(module: nn.Module, arguments: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return (arguments[0][predicted], *arguments[1:])

        # The model is called as a whole, for autocast and processes to do their part; only the product with the
        # vocabulary, most of a small model's work, is spared the other tokens.
        whole: Any = getattr(model, "module", model)
        head = whole.get_output_embeddings()
        handle = None if head is None else head.register_forward_pre_hook(choose)
        try:
            logits = model(**inputs).logits
        finally:
            if handle is not None:
                handle.remove()
        # Of a head that is no module of its own, or was not called as one.
        return logits if logits.ndim == 2 else logits[predicted]


class MaskedTokensObjective:
    """The loss of any masked language model.

    Args:
        ask: for the logits of the predicted tokens.
    """

    def __init__(self, ask: MaskedTokens):
        self._ask = ask

    def counts(self, batches: Sequence[Mapping[str, Tensor]]) -> Counts:
        return Counts(torch.as_tensor(sum((batch["labels"] != IGNORED).sum() for batch in batches)))

    def __call__(self, model: nn.Module, batch: Mapping[str, Tensor], counts: Counts) -> Tensor:
        """The part of one micro-batch in the step's loss."""
        labels = batch["labels"][batch["labels"] != IGNORED]
        return token_loss(self._ask(model, batch)[None], labels[None]) / counts.labels.clamp_min(1)
