"""Multi-level local attention as it is defined, with every score in memory: the truth that the other forms equal."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from narrows.mulla.levels import Pyramid, covered_tokens, slot_means

__all__ = ["ReferencePlan"]


class ReferencePlan(NamedTuple):
    """All that the layers of a model share. Its attention holds `heads × length × slots` weights."""

    bias: Float[Tensor, "levels heads offsets"]
    lengths: Int[Tensor, " batch"]
    pyramid: Pyramid
    backend: str = "reference"

    def attend(self, query: Tensor, key: Tensor, value: Tensor, *, dropout: float) -> Tensor:
        """Softmax over the visible slots of all levels together, in at least fp32."""
        length, dtype = query.shape[2], query.dtype
        wide = torch.promote_types(dtype, torch.float32)
        real = (torch.arange(length, device=query.device) < self.lengths[:, None])[:, None, :, None]
        # What stands at padding may be NaN, which a weight of zero would not take away.
        query, key, value = (states.to(wide).masked_fill(~real, 0.0) for states in (query, key, value))
        seen, scores, values = [], [], []
        for level in range(len(self.pyramid.lengths(length))):
            span, radius = self.pyramid.span(level), self.pyramid.radius
            covered = covered_tokens(self.lengths, self.pyramid, level, length=length)
            offsets = _offsets(length, covered.shape[1], span, query.device)
            seen.append((offsets.abs() <= radius) & (covered > 0)[:, None, None, :])
            table = self.bias[level if self.bias.shape[0] > 1 else 0].to(wide)
            bias = table[:, offsets.clamp(-radius, radius) + radius]
            scores.append(query @ slot_means(key, covered, span=span).mT + bias)
            values.append(slot_means(value, covered, span=span))
        mask = torch.cat(seen, -1) & real
        # Finite in place of -inf, since a row of -inf has no softmax; the weights are then set to zero.
        weights = torch.cat(scores, -1).masked_fill(~mask, torch.finfo(wide).min).softmax(-1).masked_fill(~mask, 0.0)
        return (functional.dropout(weights, dropout) @ torch.cat(values, 2)).to(dtype)


def _offsets(length: int, slots: int, span: int, device: torch.device) -> Int[Tensor, "length slots"]:
    """Slot − proxy."""
    proxies = torch.arange(length, device=device) // span
    return torch.arange(slots, device=device) - proxies[:, None]
