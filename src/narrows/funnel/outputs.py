"""What the models of this room return."""

from dataclasses import dataclass

from torch import Tensor
from transformers.utils.generic import ModelOutput

__all__ = ["FunnelOutput"]


@dataclass
class FunnelOutput(ModelOutput):
    """States, and what their pooled sequence was.

    Attributes:
        last_hidden_state: of `FunnelBaseModel` `[batch, slots, width]`, the last block's slots; of `FunnelModel`
            `[batch, length, width]`, the tokens where they stood. With `semantics="exact"` zeros at padding.
        pooled_attention_mask: `[batch, slots]` in bool, True for real slots of the last block. Slots of `exact` are
            counted over real tokens, so they stand at the front whatever side a row was padded on.
        lengths: `[batch]`, real slots of each row.
        hidden_states: one tuple a block, in their order; of `FunnelModel` the decoder's is the last. That of the first
            block begins with the embeddings and that of the decoder with its input; then come the states after each
            layer, repeats counted. States of the first block and of the decoder are `[batch, length, width]`, those of
            other blocks `[batch, slots of the block, width]`.
        attentions: attention weights `[batch, heads, queries, keys]`, labelled like the hidden states.
    """

    last_hidden_state: Tensor | None = None
    pooled_attention_mask: Tensor | None = None
    lengths: Tensor | None = None
    hidden_states: tuple[tuple[Tensor, ...], ...] | None = None
    attentions: tuple[tuple[Tensor, ...], ...] | None = None
