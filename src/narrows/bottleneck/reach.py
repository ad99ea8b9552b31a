"""Which keys a query sees, and attention over just these: torch's kernel, in tiles where the reach is a window.

Rows come with their real tokens at the front, so that causal attention needs no mask for padding: a real query sees no
key behind itself, and what stands at padding is never looked at.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from narrows.core import attend
from narrows.errors import UsageError

__all__ = ["BACKENDS", "Reach", "attend_after", "attend_rows", "visible"]


class Reach(NamedTuple):
    """How far a query sees.

    Attributes:
        causal: only the keys up to its own place.
        window: only keys less than this many tokens away, itself among them; None: any.
    """

    causal: bool
    window: int | None = None


def visible(
    queries: Int[Tensor, "*batch queries"], keys: Int[Tensor, "*batch keys"], reach: Reach
) -> Bool[Tensor, "*batch queries keys"]:
    """Which keys each query sees, by their places in the text.

    Args:
        queries: place of each query.
        keys: place of each key, −1 where no real token is.
        reach: how far a query sees.

    Example:
        >>> places = torch.arange(4)
        >>> visible(places, places, Reach(causal=True, window=2)).int().tolist()
        [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    """
    query, key = queries[..., :, None], keys[..., None, :]
    seen = (key >= 0).expand(*query.shape[:-1], key.shape[-1])
    if reach.causal:
        seen = seen & (key <= query)
    return seen if reach.window is None else seen & ((query - key).abs() < reach.window)


def attend_rows(
    query: Float[Tensor, "batch heads length dim"],
    key: Float[Tensor, "batch groups length dim"],
    value: Float[Tensor, "batch groups length dim"],
    *,
    reach: Reach,
    lengths: Int[Tensor, " batch"] | None,
    dropout: float = 0.0,
    backend: str = "sdpa",
) -> Float[Tensor, "batch heads length dim"]:
    """Attention of rows to themselves.

    Args:
        query, key, value: real tokens at the front of each row. There may be fewer heads of keys and values, `groups`,
            each for as many heads of queries that follow one another.
        reach: how far a query sees.
        lengths: real tokens of each row; None: all are.
        dropout: of the weights; above 0 it leaves the fast kernel on a CPU.
        backend: `sdpa`, or `reference`, which holds all scores at once, in at least fp32.

    Returns:
        As `query`. What stands at padding is of no meaning.

    Raises:
        UsageError: an unknown backend.
    """
    _require_backend(backend)
    length = query.shape[2]
    tile = _tile(reach, length)
    if backend == "sdpa" and tile is not None:
        return _tiled(query, key, value, reach, lengths, tile, dropout)
    if backend == "sdpa" and reach.causal and not _limits(reach, length):
        return functional.scaled_dot_product_attention(
            query, key, value, is_causal=length > 1, dropout_p=dropout, enable_gqa=_is_grouped(query, key)
        )
    places = torch.arange(length, device=query.device)
    keys = places if lengths is None else torch.where(places < lengths[:, None], places, -1)
    is_whole = lengths is None and not reach.causal and not _limits(reach, length)
    if is_whole:
        return _BACKENDS[backend](query, key, value, None, dropout)
    if not reach.causal and not _limits(reach, length):
        # A mask of keys alone: nothing of the size of the scores.
        return _BACKENDS[backend](query, key, value, (keys >= 0)[:, None, None, :], dropout)
    mask = visible(places.expand(keys.shape), keys, reach)
    return _BACKENDS[backend](query, key, value, mask if mask.dim() == 2 else mask[:, None], dropout)


def attend_after(
    query: Float[Tensor, "batch heads queries dim"],
    key: Float[Tensor, "batch groups keys dim"],
    value: Float[Tensor, "batch groups keys dim"],
    *,
    reach: Reach,
    queries: Int[Tensor, "batch queries"],
    keys: Int[Tensor, "batch keys"] | None,
    backend: str = "sdpa",
) -> Float[Tensor, "batch heads queries dim"]:
    """Attention of new tokens to all that came before and to themselves.

    Args:
        query, key, value: as in `attend_rows`; the keys' order is of no matter.
        reach: how far a query sees.
        queries: place of each query in its text.
        keys: place of each key, −1 at padding; None: all are real and none is behind the queries, of which there is
            one a row.
        backend: as in `attend_rows`.

    Raises:
        UsageError: an unknown backend.
    """
    _require_backend(backend)
    mask = None if keys is None else visible(queries, keys, reach)[:, None]
    return _BACKENDS[backend](query, key, value, mask, 0.0)


def _tiled(
    query: Tensor, key: Tensor, value: Tensor, reach: Reach, lengths: Tensor | None, tile: int, dropout: float
) -> Tensor:
    """Tiles of queries, each with the keys that one of them sees: one call of the kernel over all tiles."""
    assert reach.window is not None
    batch, _, length, _ = query.shape
    before = reach.window - 1
    after = 0 if reach.causal else before
    number = -(-length // tile)
    rest = number * tile - length
    queries = functional.pad(query, (0, 0, 0, rest)).unflatten(2, (number, tile)).transpose(1, 2).flatten(0, 1)
    keys, values = (_windows(each, tile, before, after, rest) for each in (key, value))
    places = torch.arange(number * tile, device=query.device).view(number, tile)
    columns = (
        torch.arange(before + tile + after, device=query.device)
        - before
        + tile * torch.arange(number, device=query.device).unsqueeze(1)
    )
    end = torch.full((1, 1, 1), length, device=query.device) if lengths is None else lengths[:, None, None]
    real = torch.where((columns >= 0) & (columns < end), columns, -1)
    mask = visible(places.expand(*real.shape[:-1], tile), real, reach).expand(batch, -1, -1, -1).flatten(0, 1)
    attended = _sdpa(queries, keys, values, mask[:, None], dropout)
    return attended.unflatten(0, (batch, number)).transpose(1, 2).flatten(2, 3)[:, :, :length]


def _windows(states: Tensor, tile: int, before: int, after: int, rest: int) -> Tensor:
    """The keys or values of each tile, `[batch · tiles, groups, before + tile + after, dim]`."""
    padded = functional.pad(states, (0, 0, before, rest + after))
    return padded.unfold(2, before + tile + after, tile).permute(0, 2, 1, 4, 3).flatten(0, 1)


def _tile(reach: Reach, length: int) -> int | None:
    """Queries of a tile: as many as the window, so that at most half of the keys are looked at in vain.

    None: there is no window, or one tile would be nearly all.
    """
    if reach.window is None:
        return None
    tile = max(reach.window, _LEAST_TILE)
    return tile if length > 2 * tile else None


# Below, there would be more tiles than a kernel has work in each of them.
_LEAST_TILE = 64


def _limits(reach: Reach, length: int) -> bool:
    return reach.window is not None and reach.window < length


def _is_grouped(query: Tensor, key: Tensor) -> bool:
    return query.shape[1] != key.shape[1]


def _sdpa(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout, enable_gqa=_is_grouped(query, key)
    )


def _reference(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    heads = query.shape[1] // key.shape[1]
    if mask is not None and mask.dim() == 2:
        mask = mask[None, None]
    key, value = key.repeat_interleave(heads, 1), value.repeat_interleave(heads, 1)
    return attend(query, key, value, mask=mask, dropout=dropout, backend="reference")


_BACKENDS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor | None, float], Tensor]] = {
    "sdpa": _sdpa,
    "reference": _reference,
}
BACKENDS = tuple(_BACKENDS)
"""Names of what computes attention."""


def _require_backend(name: str) -> None:
    if name not in _BACKENDS:
        raise UsageError(f"`backend` must be one of {', '.join(_BACKENDS)}, got {name!r}; choose one of them")
