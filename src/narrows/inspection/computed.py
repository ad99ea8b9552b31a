"""How many keys attention computes, beside LongT5's and full attention, and below which length each is cheaper.

What a kernel computes is more than what a query sees: a tile of queries shares the keys of all of them.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch

from narrows.mulla.attention import plan_attention
from narrows.mulla.levels import Pyramid
from narrows.mulla.tiled import TiledPlan

__all__ = ["PEERS", "Peer", "compare_keys", "mulla_pairs", "peer_pairs"]

PEERS = ("full", "local", "tglobal")

# Tokens of a transient-global token, as published LongT5s have them.
_GLOBAL_BLOCK = 16
# Where the search for the last length ends, and how it gets there.
_LONGEST = 1 << 16
_GROWTH = 1.1


class Peer(NamedTuple):
    """Another attention beside Mulla's."""

    keys: float
    """It computes for a query, on average, at the length in question."""
    cheaper_below: int | None
    """From this length on it computes more than Mulla; None: at no length that was looked at (up to 65,536)."""


def mulla_pairs(pyramid: Pyramid, length: int) -> int:
    """Query-key pairs that the tiles of a text compute, over all levels.

    Example:
        >>> mulla_pairs(Pyramid(radius=127, pooling_rate=8), 100)
        10000
    """
    tile_size = _tile_size(pyramid, length)
    # All tiles at once, as `narrows.core.windows` has each: one by one, a long text's would take minutes.
    starts = np.arange(0, length, tile_size)
    stops = np.minimum(starts + tile_size, length)
    total = 0
    for level, slots in enumerate(pyramid.lengths(length)):
        span = pyramid.span(level)
        first = np.maximum(starts // span - pyramid.radius, 0)
        last = np.minimum((stops - 1) // span + pyramid.radius + 1, slots)
        total += int(((stops - starts) * (last - first)).sum())
    return total


def peer_pairs(name: str, length: int, *, local_radius: int) -> int:
    """Pairs that transformers' T5 (`full`) or LongT5 (`local`, `tglobal`) computes for a text.

    LongT5 cuts a text into blocks of radius + 1 tokens, the last one padded, and each sees itself and two neighbours.
    """
    if name == "full":
        return length * length
    block = local_radius + 1
    padded = -(-length // block) * block
    slots = length // _GLOBAL_BLOCK if name == "tglobal" else 0
    return padded * (3 * block + slots)


def compare_keys(pyramid: Pyramid, length: int) -> tuple[float, dict[str, Peer]]:
    """Keys that are computed for a query: Mulla's, and of every peer, with the length below which it computes fewer.

    Args:
        pyramid: of the Mulla; peers have its radius.
        length: tokens.
    """
    peers = {}
    for name in PEERS:
        pairs = peer_pairs(name, length, local_radius=pyramid.radius)
        peers[name] = Peer(pairs / length, _cheaper_below(pyramid, name))
    return mulla_pairs(pyramid, length) / length, peers


def _cheaper_below(pyramid: Pyramid, name: str) -> int | None:
    """One more than the last length at which the peer computes no more; to a token where there is one such place."""

    def is_cheaper(length: int) -> bool:
        return peer_pairs(name, length, local_radius=pyramid.radius) <= mulla_pairs(pyramid, length)

    return _end_of(is_cheaper)


def _end_of(holds: Callable[[int], bool]) -> int | None:
    """One more than the last length for which it holds, looked for from the longest down; None: it always holds."""
    if holds(_LONGEST):
        return None
    low = high = _LONGEST
    while not holds(low):
        high = low
        if low == 1:
            return 1
        low = max(1, min(low - 1, int(low / _GROWTH)))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return high


def _tile_size(pyramid: Pyramid, length: int) -> int:
    """As the attention itself would choose it."""
    bias = torch.zeros(1, 1, 2 * pyramid.radius + 1)
    form = plan_attention(bias, torch.tensor([length]), pyramid, length=length, backend="tiled").form
    assert isinstance(form, TiledPlan)
    return form.tile_size
