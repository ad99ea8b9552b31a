"""Local attention in tiles: which keys a tile of queries needs, and which of them each query sees.

A tile is a run of consecutive queries that are computed together. A query sees the keys at most `radius` away, in its
own sequence or in a coarser one whose slots cover `span` tokens each: query i stands there at its proxy i // span.
Only integer arithmetic, so that any length, radius and tile size is right at both ends of a text.

If every tile starts at a multiple of its size, and that size is a multiple or a divisor of the span (`is_aligned`),
then all tiles look alike: key number c of a full window has the same offset to query number i in every tile. So one
table of offsets (`tile_offsets`) serves all tiles, and a tile near an end of the text takes a part of its columns
(`window`).
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

__all__ = ["Window", "aligned_tile_size", "is_aligned", "tile_offsets", "tiles", "window", "window_width"]


class Window(NamedTuple):
    """The keys that a tile needs of one sequence."""

    keys: slice
    """Where they lie in the sequence."""
    columns: slice
    """Where they lie in the full window, the second axis of `tile_offsets`."""

    @property
    def width(self) -> int:
        return self.keys.stop - self.keys.start


def tiles(length: int, tile_size: int) -> Iterator[range]:
    """The queries of each tile, in order; the last tile may be shorter.

    Example:
        >>> list(tiles(5, 2))
        [range(0, 2), range(2, 4), range(4, 5)]
    """
    for start in range(0, length, tile_size):
        yield range(start, min(start + tile_size, length))


def window(queries: range, *, radius: int, length: int, span: int = 1) -> Window:
    """The keys that some query of a tile sees, cut off at both ends of the sequence.

    Args:
        queries: the tile, not empty.
        radius: how far a query sees to each side, in slots of the sequence.
        length: of the sequence, in slots.
        span: tokens that a slot covers.

    Example:
        >>> window(range(4, 8), radius=2, length=9)
        Window(keys=slice(2, 9, None), columns=slice(0, 7, None))
        >>> window(range(0, 4), radius=2, length=9)
        Window(keys=slice(0, 6, None), columns=slice(2, 8, None))
        >>> window(range(4, 8), radius=2, length=3, span=4)
        Window(keys=slice(0, 3, None), columns=slice(1, 4, None))
    """
    first = queries.start // span - radius
    start, stop = max(first, 0), min((queries.stop - 1) // span + radius + 1, length)
    return Window(slice(start, stop), slice(start - first, stop - first))


def window_width(tile_size: int, *, radius: int, span: int = 1) -> int:
    """Keys of a full tile's window before any is cut off: 2·radius for the halo and one for each proxy."""
    return 2 * radius + 1 + (tile_size - 1) // span


def tile_offsets(
    tile_size: int, *, radius: int, span: int = 1, device: torch.device | None = None
) -> Int[Tensor, "tile columns"]:
    """Which of its 2·radius + 1 places each query of a tile gives to each key of the full window.

    Returns:
        `[tile_size, window_width]`: key − proxy + radius where the query sees the key, −1 where it does not.

    Example:
        >>> tile_offsets(3, radius=1).tolist()
        [[0, 1, 2, -1, -1], [-1, 0, 1, 2, -1], [-1, -1, 0, 1, 2]]
        >>> tile_offsets(4, radius=1, span=2).tolist()
        [[0, 1, 2, -1], [0, 1, 2, -1], [-1, 0, 1, 2], [-1, 0, 1, 2]]
    """
    proxies = torch.arange(tile_size, device=device) // span
    columns = torch.arange(window_width(tile_size, radius=radius, span=span), device=device)
    offsets = columns[None, :] - proxies[:, None]
    return torch.where((offsets >= 0) & (offsets <= 2 * radius), offsets, -1)


def is_aligned(tile_size: int, spans: Iterable[int]) -> bool:
    """Whether tiles of this size look alike on every one of the sequences: each span divides it or is divided by it."""
    return all(tile_size % span == 0 or span % tile_size == 0 for span in spans)


def aligned_tile_size(wanted: int, spans: Iterable[int]) -> int:
    """The aligned tile size nearest to `wanted` by ratio, at most four times as large; 1 is aligned with every span.

    Example:
        >>> [aligned_tile_size(128, spans) for spans in ([1, 8, 64, 512], [1, 10, 100], [1, 13], [1, 13, 169])]
        [128, 100, 130, 169]
    """
    spans = list(spans)
    sizes = (size for size in range(1, 4 * wanted + 1) if is_aligned(size, spans))
    return min(sizes, key=lambda size: max(size / wanted, wanted / size))
