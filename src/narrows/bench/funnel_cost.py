"""Closed-form arithmetic of a funnel: what its layout should save, before anything is measured.

Source: Dai et al. 2020 (Funnel-Transformer), section 2.3; its figures of relative FLOPs.
"""

from typing import NamedTuple, cast

from narrows.funnel.config import FunnelConfig
from narrows.funnel.encoder import pooling_of
from narrows.funnel.pooling import Slots

__all__ = ["Seen", "decoder_flops", "encoder_flops", "layers_seen", "paper_flops", "plain_flops"]


class Seen(NamedTuple):
    """How many queries one run of a layer has, over how many keys."""

    queries: int
    keys: int


def paper_flops(config: FunnelConfig) -> float:
    """Operations a token as the paper counts them: the linear maps of each layer over its own slots, nothing else.

    Relative to those of `preset("L12H768")` these are the paper's figures: 0.58, 0.88, 0.88, 2.07, 2.60.

    Example:
        >>> from narrows.funnel.presets import preset
        >>> round(paper_flops(preset("B4-4-4H768")) / paper_flops(preset("L12H768")), 2)
        0.58
    """
    repeats = cast(list[int], config.block_repeats)
    runs = sum(
        size * times / config.pooling_size**block
        for block, (size, times) in enumerate(zip(config.block_sizes, repeats, strict=True))
    )
    return runs * 2 * (4 * config.d_model * config.n_head * config.d_head + 2 * config.d_model * config.d_inner)


def layers_seen(config: FunnelConfig, length: int) -> list[Seen]:
    """Queries and keys of every run of a layer of the encoder, over a row of so many tokens.

    Example:
        >>> layers_seen(FunnelConfig(block_sizes=[1, 2]), 9)
        [Seen(queries=9, keys=9), Seen(queries=5, keys=9), Seen(queries=5, keys=5)]
    """
    pooling, slots = pooling_of(config), Slots(length)
    repeats = cast(list[int], config.block_repeats)
    seen: list[Seen] = []
    for block, (size, times) in enumerate(zip(config.block_sizes, repeats, strict=True)):
        pooled = pooling.slots(slots) if block else slots
        first = slots.length if config.pool_q_only else pooled.length
        seen += [Seen(pooled.length, first if run == 0 else pooled.length) for run in range(size * times)]
        slots = pooled
    return seen


def encoder_flops(config: FunnelConfig, *, length: int, rows: int = 1) -> int:
    """Floating-point operations of the encoder over rows of equal length: maps, attention, relative positions.

    Args:
        config: of the funnel.
        length: tokens of a row.
        rows: of a batch, which share the projected positions.
    """
    return sum(_layer_flops(config, seen, rows) for seen in layers_seen(config, length))


def decoder_flops(config: FunnelConfig, *, length: int, rows: int = 1) -> int:
    """Those of the decoder's layers, which run over all tokens."""
    return sum(cast(list[int], config.decoder_repeats)) * _layer_flops(config, Seen(length, length), rows)


def plain_flops(*, layers: int, width: int, length: int, rows: int = 1) -> int:
    """Those of a BERT: without relative positions, and with an inner width of four times the width.

    Example:
        >>> plain_flops(layers=1, width=3, length=2)
        480
    """
    return rows * layers * (24 * length * width**2 + 4 * length**2 * width)


def _layer_flops(config: FunnelConfig, seen: Seen, rows: int) -> int:
    attended = config.n_head * config.d_head
    maps = 2 * config.d_model * (2 * attended + 2 * config.d_inner) * seen.queries
    maps += 2 * config.d_model * 2 * attended * seen.keys
    pairs = 2 * attended * seen.queries * seen.keys
    if config.position_type == "absolute":
        return rows * (maps + 2 * pairs)
    # A vector for each distance, projected once for all rows, and its product with the queries that stand so far off.
    projected = 2 * config.d_model * attended * (seen.queries + seen.keys)
    return rows * (maps + 3 * pairs) + projected
