"""Bottleneck attention written out for one text, without heads in parallel, masks of batches or a cache."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from narrows.bottleneck.attention import BottleneckAttention, NarrowConvolution, SelfAttention

__all__ = ["reference"]


def reference(
    layer: BottleneckAttention | SelfAttention, states: Float[Tensor, "length width"]
) -> Float[Tensor, "length width"]:
    """What a layer makes of one text, token by token.

    Args:
        layer: with its weights.
        states: of a text without padding, of any float dtype.

    Example:
        >>> from narrows.bottleneck.reach import Reach
        >>> layer = SelfAttention(4, heads=1, reach=Reach(causal=True))
        >>> reference(layer, torch.ones(3, 4)).shape
        torch.Size([3, 4])
    """
    if isinstance(layer, SelfAttention):
        return _attention(layer, states)
    narrow = layer.activation(_linear(layer.down_proj, states))
    if layer.convolution is not None:
        narrow = _convolution(layer.convolution, narrow)
    attended = _attention(layer.attention, narrow)
    if layer.scale is not None:
        attended = narrow + layer.scale * attended
    return _linear(layer.up_proj, attended)


def _attention(layer: SelfAttention, states: Tensor) -> Tensor:
    query, key, value = (_linear(linear, states) for linear in (layer.q_proj, layer.k_proj, layer.v_proj))
    outputs = []
    for place in range(len(states)):
        heads = []
        for head in range(layer.heads):
            group = head // (layer.heads // layer.groups)
            wide = slice(group * layer.head_dim, (group + 1) * layer.head_dim)
            asked = _turned(_part(query[place], head, layer.key_dim), place, layer.rotary_base)
            seen = [other for other in range(len(states)) if _sees(layer, place, other)]
            keys = torch.stack(
                [_turned(_part(key[other], group, layer.key_dim), other, layer.rotary_base) for other in seen]
            )
            weights = (keys @ asked / math.sqrt(layer.key_dim)).softmax(0)
            heads.append(weights @ value[seen][:, wide])
        outputs.append(torch.cat(heads))
    return _linear(layer.o_proj, torch.stack(outputs))


def _sees(layer: SelfAttention, place: int, other: int) -> bool:
    if layer.reach.causal and other > place:
        return False
    return layer.reach.window is None or abs(place - other) < layer.reach.window


def _turned(states: Tensor, place: int, base: float | None) -> Tensor:
    """Pairs as complex numbers, turned by their angles; the last number of an odd width stays."""
    if base is None:
        return states
    pairs = len(states) // 2
    first, second, rest = states.split((pairs, pairs, len(states) - 2 * pairs))
    angles = torch.tensor([place * base ** (-2 * pair / len(states)) for pair in range(pairs)], dtype=states.dtype)
    turned = torch.complex(first, second) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([turned.real, turned.imag, rest])


def _convolution(layer: NarrowConvolution, states: Tensor) -> Tensor:
    middle = layer.kernel - 1 if layer.causal else layer.kernel // 2
    mixed = []
    for place in range(len(states)):
        others = [(tap, place + tap - middle) for tap in range(layer.kernel)]
        terms = [layer.weight[tap] * states[other] for tap, other in others if 0 <= other < len(states)]
        mixed.append(torch.stack(terms).sum(0))
    return torch.stack(mixed)


def _part(states: Tensor, number: int, width: int) -> Tensor:
    return states[number * width : (number + 1) * width]


def _linear(layer: nn.Linear, states: Tensor) -> Tensor:
    return states @ layer.weight.T + layer.bias
