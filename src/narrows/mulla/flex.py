"""Multi-level local attention by torch's FlexAttention: one kernel over the keys of all levels, laid end to end.

Each level is filled up to whole blocks, so that a block of keys belongs to one level and the blocks that a block of
queries needs follow from the formula: no mask of `length × length` is made on the way.
"""

from functools import cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from narrows.errors import UsageError
from narrows.mulla.levels import Pyramid, covered_tokens, slot_means

__all__ = ["FlexPlan"]

_BLOCK = 128


class _Slots(NamedTuple):
    """What each key of the concatenated sequence is."""

    level: Int[Tensor, " keys"]
    slot: Int[Tensor, " keys"]
    span: Int[Tensor, " keys"]
    covered: Int[Tensor, "batch keys"]
    """Real tokens that it covers in each row; 0 where it does not exist."""


class FlexPlan(NamedTuple):
    """All that the layers of a model share."""

    bias: Float[Tensor, "levels heads offsets"]
    lengths: Int[Tensor, " batch"]
    pyramid: Pyramid
    slots: _Slots
    blocks: BlockMask
    backend: str = "flex"

    @classmethod
    def build(
        cls,
        bias: Float[Tensor, "levels heads offsets"],
        lengths: Int[Tensor, " batch"],
        pyramid: Pyramid,
        length: int,
    ) -> "FlexPlan":
        """Lay the levels end to end and find the blocks that meet."""
        slots = _lay_out(lengths, pyramid, length)
        return cls(bias, lengths, pyramid, slots, _block_mask(slots, lengths, pyramid, length))

    def attend(self, query: Tensor, key: Tensor, value: Tensor, *, dropout: float) -> Tensor:
        """See `mulla_attention`."""
        bias = self.bias.to(torch.promote_types(self.bias.dtype, torch.float32))
        _refuse_what_flex_cannot(query, key, value, bias, dropout)
        if query.device.type == "cpu":
            # The kernel refuses a tensor that asks for a gradient even where none is recorded.
            query, key, value, bias = (states.detach() for states in (query, key, value, bias))
        slots, radius, shared = self.slots, self.pyramid.radius, bias.shape[0] == 1

        def add_bias(score: Tensor, batch: Tensor, head: Tensor, position: Tensor, index: Tensor) -> Tensor:
            offset = (slots.slot[index] - position // slots.span[index]).clamp(-radius, radius) + radius
            return score + bias[0 if shared else slots.level[index], head, offset]

        keys, values = self._levels(key), self._levels(value)
        return _compiled()(query, keys, values, score_mod=add_bias, block_mask=self.blocks, scale=1.0)

    def _levels(self, states: Tensor) -> Tensor:
        """All levels end to end, each filled up to whole blocks."""
        length, wide = states.shape[2], torch.promote_types(states.dtype, torch.float32)
        real = torch.arange(length, device=states.device) < self.lengths[:, None]
        zeroed, parts = states.masked_fill(~real[:, None, :, None], 0.0), []
        for level in range(len(self.pyramid.lengths(length))):
            span = self.pyramid.span(level)
            covered = covered_tokens(self.lengths, self.pyramid, level, length=length)
            part = zeroed if level == 0 else slot_means(zeroed.to(wide), covered, span=span).to(states.dtype)
            parts.append(functional.pad(part, (0, 0, 0, -part.shape[2] % _BLOCK)))
        return torch.cat(parts, 2)


@cache
def _compiled() -> Any:
    # Dynamic shapes do not compile on a CPU (torch 2.13). `fullgraph` makes too many lengths an error: without it torch
    # would go on with a form that holds every score.
    return torch.compile(flex_attention, dynamic=False, fullgraph=True)


def _refuse_what_flex_cannot(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, dropout: float) -> None:
    if dropout:
        raise UsageError(
            f"`dropout` must be 0 with the flex backend, got {dropout}; FlexAttention has none, use the tiled backend"
        )
    if query.dtype == torch.float64:
        raise UsageError("the flex backend must have fp32 or bf16, got float64; use the reference or the tiled backend")
    wanted = torch.is_grad_enabled() and any(states.requires_grad for states in (query, key, value, bias))
    if query.device.type == "cpu" and wanted:
        raise UsageError(
            "the flex backend must run under torch.no_grad() on a CPU, got tensors that require a gradient; "
            "use the tiled backend to train"
        )


def _lay_out(lengths: Int[Tensor, " batch"], pyramid: Pyramid, length: int) -> _Slots:
    levels, slots, spans, covered = [], [], [], []
    for level in range(len(pyramid.lengths(length))):
        part = covered_tokens(lengths, pyramid, level, length=length)
        part = functional.pad(part, (0, -part.shape[1] % _BLOCK))
        index = torch.arange(part.shape[1], device=lengths.device)
        levels.append(torch.full_like(index, level))
        slots.append(index)
        spans.append(torch.full_like(index, pyramid.span(level)))
        covered.append(part)
    return _Slots(torch.cat(levels), torch.cat(slots), torch.cat(spans), torch.cat(covered, 1))


def _block_mask(slots: _Slots, lengths: Int[Tensor, " batch"], pyramid: Pyramid, length: int) -> BlockMask:
    radius = pyramid.radius

    def visible(batch: Tensor, head: Tensor, position: Tensor, index: Tensor) -> Tensor:
        near = (slots.slot[index] - position // slots.span[index]).abs() <= radius
        return near & (slots.covered[batch, index] > 0) & (position < lengths[batch])

    meet = _meeting_blocks(slots, lengths, radius, length)[:, None]
    order = torch.argsort((~meet).to(torch.uint8), dim=-1, stable=True)
    return BlockMask.from_kv_blocks(
        meet.sum(-1).int(),
        order.int(),
        BLOCK_SIZE=_BLOCK,
        mask_mod=visible,
        seq_lengths=(length, len(slots.slot)),
    )


def _meeting_blocks(
    slots: _Slots, lengths: Int[Tensor, " batch"], radius: int, length: int
) -> Bool[Tensor, "batch query_blocks key_blocks"]:
    """Where some query of a block may see some key of another: their ranges of slots are at most `radius` apart."""
    first_slot, span = slots.slot[::_BLOCK], slots.span[::_BLOCK]
    first_query = torch.arange(0, length, _BLOCK, device=lengths.device)[:, None]
    last_query = (first_query + _BLOCK - 1).clamp_max(length - 1)
    near = (first_slot <= last_query // span + radius) & (first_slot + _BLOCK > first_query // span - radius)
    exists = slots.covered[:, None, ::_BLOCK] > 0
    return near & exists & (first_query < lengths[:, None, None])
