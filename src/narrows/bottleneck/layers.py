"""The layers of a bottleneck Transformer: norm, attention of some kind, feed-forward."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer

from narrows.bottleneck.attention import BottleneckAttention, NarrowConvolution, SelfAttention
from narrows.bottleneck.config import BottleneckConfig
from narrows.bottleneck.reach import Reach
from narrows.bottleneck.rows import Memory, Rows

__all__ = ["BottleneckLayer", "FeedForward", "StableLayerNorm", "make_attention"]


class StableLayerNorm(nn.LayerNorm):
    """A layer norm in fp32, whatever the device makes of it under autocast; the residual stream stays as wide as it is.

    torch's own stays in half precision on a CPU and not on CUDA.
    """

    def forward(self, input: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        wide = torch.promote_types(input.dtype, torch.float32)
        with torch.autocast(input.device.type, enabled=False):
            weight, bias = (None if part is None else part.to(wide) for part in (self.weight, self.bias))
            normed = functional.layer_norm(input.to(wide), self.normalized_shape, weight, bias, self.eps)
        return normed if torch.is_autocast_enabled(input.device.type) else normed.to(input.dtype)


class FeedForward(nn.Module):
    """Two linear layers and an activation."""

    def __init__(self, config: BottleneckConfig):
        super().__init__()
        assert config.intermediate_size is not None
        self.fc_in = nn.Linear(config.hidden_size, config.intermediate_size)
        self.activation = ACT2FN[config.hidden_act]
        self.fc_out = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, states: Float[Tensor, "batch length width"]) -> Float[Tensor, "batch length width"]:
        return self.fc_out(self.activation(self.fc_in(states)))


def make_attention(config: BottleneckConfig, kind: str) -> BottleneckAttention | SelfAttention:
    """Attention of a layer's kind.

    Args:
        config: with the sizes.
        kind: of `KINDS`.

    Raises:
        UsageError: heads that do not divide the width.
    """
    reach = Reach(config.causal, config.window if kind.endswith("window") else None)
    common = {"reach": reach, "rotary_base": config.rope_theta, "dropout": config.attention_dropout}
    if not kind.startswith("bottleneck"):
        assert config.num_attention_heads is not None
        return SelfAttention(
            config.hidden_size, heads=config.num_attention_heads, groups=config.num_key_value_heads, **common
        )
    inner, kernel = config.inner_size, config.bottleneck_kernel
    return BottleneckAttention(
        config.hidden_size,
        inner=inner,
        attention=SelfAttention(
            inner,
            heads=config.inner_heads,
            groups=config.bottleneck_key_value_heads,
            key_dim=config.bottleneck_key_dim,
            **common,
        ),
        activation=ACT2FN[config.bottleneck_act],
        convolution=NarrowConvolution(inner, kernel=kernel, causal=config.causal) if kernel > 1 else None,
        inner_residual=config.bottleneck_inner_residual,
    )


class BottleneckLayer(GradientCheckpointingLayer):
    """Attention and feed-forward, each added to the residual stream, which stays in fp32 under autocast."""

    def __init__(self, config: BottleneckConfig, kind: str):
        super().__init__()
        self.is_post = config.norm_position == "post"
        self.attention_norm = StableLayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.attention = make_attention(config, kind)
        self.feed_forward_norm = StableLayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.feed_forward = FeedForward(config)
        self.dropout = nn.Dropout(config.hidden_dropout)

    def forward(
        self,
        states: Float[Tensor, "batch length width"],
        rows: Rows,
        memory: Memory | None = None,
        backend: str = "sdpa",
    ) -> Float[Tensor, "batch length width"]:
        """The residual stream after the layer.

        Args:
            states: real tokens at the front of each row.
            rows: the batch's arrangement.
            memory: of this layer, where a text is read in parts.
            backend: of `narrows.bottleneck.attend_rows`.
        """
        if self.is_post:
            states = self.attention_norm(states + self.dropout(self.attention(states, rows, memory, backend)))
            return self.feed_forward_norm(states + self.dropout(self.feed_forward(states)))
        states = states + self.dropout(self.attention(self.attention_norm(states), rows, memory, backend))
        return states + self.dropout(self.feed_forward(self.feed_forward_norm(states)))
