"""Layers of a funnel, named as transformers' so that checkpoints fit, and what a layer sees."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer

from narrows.core import project
from narrows.funnel.activation import gelu_by_tanh
from narrows.funnel.attention import Geometry, RelativeTerms, attend_relative, factor_tables, relative_table
from narrows.funnel.attention_reference import relative_weights
from narrows.funnel.config import FunnelConfig
from narrows.funnel.pooling import Slots
from narrows.funnel.positions import FactorTables

__all__ = ["FunnelAttention", "FunnelFeedForward", "FunnelLayer", "View", "see"]


class View(NamedTuple):
    """What the layers over one pair of query and key slots see; made by `see`."""

    geometry: Geometry
    query_segments: Int[Tensor, "batch queries"] | None
    key_segments: Int[Tensor, "batch keys"] | None
    mask: Bool[Tensor, "batch keys"] | None
    tables: Tensor | FactorTables | None
    backend: str


def see(
    config: FunnelConfig, queries: Slots, keys: Slots, *, backend: str, training: bool, device: torch.device
) -> View:
    """Queries of some slots over keys of the same or of finer ones.

    In training the sinusoids lose some of their numbers, once for all layers and rows, as in the released code.
    """
    separate_cls = config.separate_cls
    geometry = Geometry(
        queries.length, keys.length, queries.first, queries.stride, keys.first, keys.stride, separate_cls
    )
    mask = keys.mask if keys.visible is None else keys.visible
    if mask is not None and config.semantics != "exact":
        # Theirs lower the scores of padding by a million each, so that a row of nothing else sees all of it.
        mask = mask | ~mask.any(-1, keepdim=True)
    tables: Tensor | FactorTables | None = None
    rate = config.hidden_dropout if training else 0.0
    if config.position_type == "relative" and config.attention_type == "factorized":
        # Computed as its formula says, whatever the backend: there is no other form of it.
        backend = "factorized"
        tables = factor_tables(geometry, width=config.d_model, device=device)
        tables = tables._replace(query=functional.dropout(tables.query, rate)) if rate else tables
    elif config.position_type == "relative":
        tables = relative_table(geometry, width=config.d_model, device=device)
        tables = functional.dropout(tables, rate) if rate else tables
    return View(geometry, queries.segments, keys.segments, mask, tables, backend)


class FunnelAttention(nn.Module):
    """Relative attention with its projections, residual and norm. The query has no bias of its own."""

    def __init__(self, config: FunnelConfig):
        super().__init__()
        self.heads = config.n_head
        self.cls_segment = config.cls_token_type_id
        self.dropout_rate = config.attention_dropout
        width, heads, dim = config.d_model, config.n_head, config.d_head
        self.hidden_dropout = nn.Dropout(config.hidden_dropout)
        self.q_head = nn.Linear(width, heads * dim, bias=False)
        self.k_head = nn.Linear(width, heads * dim)
        self.v_head = nn.Linear(width, heads * dim)
        self.r_w_bias = nn.Parameter(torch.zeros(heads, dim))
        self.relative = config.position_type == "relative"
        if self.relative:
            self.r_r_bias = nn.Parameter(torch.zeros(heads, dim))
            self.r_kernel = nn.Parameter(torch.zeros(width, heads, dim))
            self.r_s_bias = nn.Parameter(torch.zeros(heads, dim))
            self.seg_embed = nn.Parameter(torch.zeros(2, heads, dim))
        self.post_proj = nn.Linear(heads * dim, width)
        self.layer_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)

    def relative_parameters(self) -> list[nn.Parameter]:
        """Those that belong to no projection."""
        return [parameter for _, parameter in self.named_parameters(recurse=False)]

    def forward(
        self, states: Float[Tensor, "batch queries width"], keys: Float[Tensor, "batch keys width"], view: View
    ) -> Float[Tensor, "batch queries width"]:
        """States after attention.

        Args:
            states: `[batch, queries, width]`: the queries, and what the result is added to.
            keys: `[batch, keys, width]`; the same tensor where nothing is pooled.
            view: of `see`.
        """
        query, key = self._query_and_key(states, keys)
        attended = attend_relative(
            query,
            key,
            self._split(project(self.v_head, keys)),
            terms=self._terms(),
            geometry=view.geometry,
            query_segments=view.query_segments,
            key_segments=view.key_segments,
            cls_segment=self.cls_segment,
            mask=view.mask,
            tables=view.tables,
            dropout=self.dropout_rate if self.training else 0.0,
            backend=view.backend,
        )
        attended = project(self.post_proj, attended.transpose(1, 2).flatten(2))
        return self.layer_norm(states + self.hidden_dropout(attended))

    def weights(
        self, states: Float[Tensor, "batch queries width"], keys: Float[Tensor, "batch keys width"], view: View
    ) -> Float[Tensor, "batch heads queries keys"]:
        """The attention weights of `forward`, without dropout and in at least fp32; all in memory at once."""
        query, key = self._query_and_key(states, keys)
        terms = self._terms()
        if terms is None or view.tables is None:
            scores = query @ key.mT * query.shape[-1] ** -0.5
            mask = torch.ones_like(keys[..., 0], dtype=torch.bool) if view.mask is None else view.mask
            hidden = ~mask[:, None, None]
            weights = scores.float().masked_fill(hidden, torch.finfo(torch.float32).min).softmax(-1)
            return weights.masked_fill(hidden, 0.0)
        return relative_weights(
            query,
            key,
            terms=terms,
            geometry=view.geometry,
            query_segments=view.query_segments,
            key_segments=view.key_segments,
            cls_segment=self.cls_segment,
            mask=view.mask,
            tables=view.tables,
        )

    def _query_and_key(self, states: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        query = self._split(project(self.q_head, states))
        if not self.relative:
            query = query + self.r_w_bias[:, None]
        return query, self._split(project(self.k_head, keys))

    def _terms(self) -> RelativeTerms | None:
        if not self.relative:
            return None
        return RelativeTerms(self.r_w_bias, self.r_r_bias, self.r_s_bias, self.r_kernel, self.seg_embed)

    def _split(self, projected: Tensor) -> Tensor:
        return projected.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class FunnelFeedForward(nn.Module):
    """Two linear layers with their residual and norm."""

    def __init__(self, config: FunnelConfig):
        super().__init__()
        self.linear_1 = nn.Linear(config.d_model, config.d_inner)
        # The same function; in training it keeps a fourth of what transformers' chain of operations keeps for backward.
        by_tanh = config.hidden_act in ("gelu_new", "gelu_pytorch_tanh")
        self.activation = gelu_by_tanh if by_tanh else ACT2FN[config.hidden_act]
        self.activation_dropout = nn.Dropout(config.activation_dropout)
        self.linear_2 = nn.Linear(config.d_inner, config.d_model)
        self.dropout = nn.Dropout(config.hidden_dropout)
        self.layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)

    def forward(self, states: Float[Tensor, "batch length width"]) -> Float[Tensor, "batch length width"]:
        inner = self.activation_dropout(self.activation(project(self.linear_1, states)))
        return self.layer_norm(states + self.dropout(project(self.linear_2, inner)))


class FunnelLayer(GradientCheckpointingLayer):
    """Attention, then the feed-forward; each with a residual, then a norm."""

    def __init__(self, config: FunnelConfig):
        super().__init__()
        self.attention = FunnelAttention(config)
        self.ffn = FunnelFeedForward(config)

    def forward(self, states: Tensor, keys: Tensor, view: View) -> Tensor:
        """As `FunnelAttention.forward`, then the feed-forward."""
        return self.ffn(self.attention(states, keys, view))
