"""The encoder's layers: T5's own norms and feed-forward layers, around multi-level local attention.

Parameters have T5's names, so that its checkpoints, adapters and tools fit.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.models.t5.modeling_t5 import T5LayerFF, T5LayerNorm

from narrows.mulla.attention import MullaPlan, mulla_attention
from narrows.mulla.config import MullaT5Config

__all__ = ["MullaT5Attention", "MullaT5Block", "SpanHead", "in_chunks"]


def in_chunks(
    layer: Callable[[Tensor], Tensor], states: Float[Tensor, "batch length width"], chunk: int
) -> Float[Tensor, "batch length width"]:
    """What a layer that works token by token makes of the states, with `chunk` tokens in it at once; 0: all.

    The layer's inner states are in memory for a chunk only: several times the states in a feed-forward layer, and in
    bf16 in a norm too, which computes in fp32.
    """
    if not 0 < chunk < states.shape[0] * states.shape[1]:
        return layer(states)
    return torch.cat([layer(part) for part in states.flatten(0, 1).split(chunk)]).view_as(states)


class MullaT5Attention(nn.Module):
    """Projections without a bias around `mulla_attention`."""

    def __init__(self, config: MullaT5Config):
        super().__init__()
        self.heads = config.num_heads
        self.dropout_rate = config.dropout_rate
        inner = config.num_heads * config.d_kv
        self.q = nn.Linear(config.d_model, inner, bias=False)
        self.k = nn.Linear(config.d_model, inner, bias=False)
        self.v = nn.Linear(config.d_model, inner, bias=False)
        self.o = nn.Linear(inner, config.d_model, bias=False)

    def forward(
        self, states: Float[Tensor, "batch length width"], plan: MullaPlan, norm: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """The projected attention of the states.

        Args:
            states: `[batch, length, width]`, real tokens at the front of each row.
            plan: of `plan_attention`.
            norm: what the projections read of the states. Called here, since what a caller hands over is in memory
                until the call ends: without gradients, no tensor of the states' size outlives its last use.
        """
        normed = norm(states)
        query, key, value = (
            projection(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for projection in (self.q, self.k, self.v)
        )
        del normed
        attended = mulla_attention(query, key, value, plan, dropout=self.dropout_rate if self.training else 0.0)
        del query, key, value
        return self.o(attended.transpose(1, 2).flatten(2))


class _SelfAttention(nn.Module):
    """Norm, attention and what goes past them, named as in T5."""

    def __init__(self, config: MullaT5Config):
        super().__init__()
        self.chunk = config.encoder_feed_forward_chunk
        self.SelfAttention = MullaT5Attention(config)
        self.layer_norm = T5LayerNorm(config.d_model, eps=config.layer_norm_epsilon)
        self.dropout = nn.Dropout(config.dropout_rate)

    def forward(self, states: Tensor, plan: MullaPlan) -> Tensor:
        return states + self.dropout(self.SelfAttention(states, plan, self._norm))

    def _norm(self, states: Tensor) -> Tensor:
        return in_chunks(self.layer_norm, states, self.chunk)


class MullaT5Block(GradientCheckpointingLayer):
    """A layer of the encoder."""

    def __init__(self, config: MullaT5Config):
        super().__init__()
        self.chunk = config.encoder_feed_forward_chunk
        self.recompute = config.encoder_feed_forward_recompute
        # T5's layers take any config with its fields.
        self.layer = nn.ModuleList([_SelfAttention(config), T5LayerFF(config)])  # pyright: ignore[reportArgumentType]

    def forward(self, states: Float[Tensor, "batch length width"], bias: Tensor, plan: MullaPlan) -> Tensor:
        """States after attention and feed-forward.

        Args:
            states: `[batch, length, width]`, real tokens at the front of each row.
            bias: `plan.bias`, handed over by itself so that reentrant checkpointing sees its gradient.
            plan: of `plan_attention`.
        """
        return in_chunks(self._feed_forward, self.layer[0](states, plan.with_bias(bias)), self.chunk)

    def _feed_forward(self, states: Tensor) -> Tensor:
        if self.recompute and torch.is_grad_enabled():
            # Of what a layer keeps for its backward pass, the inner states of the feed-forward are the most.
            return checkpoint(self.layer[1], states, use_reentrant=False)
        return self.layer[1](states)


class SpanHead(nn.Linear):
    """Start and end logits; a class of its own, so that T5's initialisation knows it from other projections."""
