"""Base class of every narrows model."""

from transformers import PreTrainedModel

from narrows.errors import UsageError

__all__ = ["NarrowsPreTrainedModel"]

_BACKENDS = {"eager": "matmul", "sdpa": "sdpa"}


class NarrowsPreTrainedModel(PreTrainedModel):
    """transformers' base class with what all families share: attention by name, gradient checkpointing by layer.

    Weights are initialised by transformers' own rules only (Linear, Embedding, LayerNorm), which never touch a loaded
    tensor; a family that adds other parameters extends `_init_weights` with `transformers.initialization`.
    """

    supports_gradient_checkpointing = True
    _supports_sdpa = True
    # Our losses divide by `num_items_in_batch` when it is given, so that accumulation does not change a step.
    accepts_loss_kwargs = True

    @property
    def attention_backend(self) -> str:
        """Name of the kernel in `narrows.core.attend` for the chosen `attn_implementation`.

        Raises:
            UsageError: an implementation that this model does not have.
        """
        name = self.config._attn_implementation
        if name not in _BACKENDS:
            raise UsageError(
                f"`attn_implementation` must be one of {', '.join(_BACKENDS)}, got {name!r}; choose one of them"
            )
        return _BACKENDS[name]
