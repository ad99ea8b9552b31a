"""The pattern of each family, asked of the family's own formula, and of the peers it is compared with.

The keyword arguments of a function are the family's options; see `narrows.inspection.registry`.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Int64
from torch import Tensor

from narrows._plural import count
from narrows.errors import UsageError
from narrows.inspection.patterns import LONGEST, Block, Pattern, Subject
from narrows.mulla.levels import LOCAL_RADIUS, VARIANTS, Pyramid, covered_tokens

__all__ = ["Variant", "deformer", "full", "funnel", "local", "make_pyramid", "mulla", "pyramid_pattern", "tglobal"]

Variant = Literal["fixed", "dynamic"]

# Of the tokens that a slot covers, in int64.
_MOST_BITS = 62


def deformer(*, split_layer: int = 2, question_tokens: int = 27, passage_tokens: int = 293) -> Subject:
    """Question and passage apart below the split, together above.

    Args:
        split_layer: layers that read the two sides apart; 0 is the joint model.
        question_tokens: tokens of the question's side, special tokens included.
        passage_tokens: tokens of the passage's side, special tokens included.

    Raises:
        UsageError: a number is out of its range.

    Example:
        >>> [pattern.name for pattern in deformer(split_layer=2).patterns]
        ['layers 1–2', 'layers 3 and up']
    """
    _require("split_layer", split_layer, 0)
    _require("question_tokens", question_tokens, 1)
    _require("passage_tokens", passage_tokens, 1)
    length = question_tokens + passage_tokens
    _require_length("question_tokens + passage_tokens", length)
    sides = range(question_tokens), range(question_tokens, length)
    settings = {
        "split_layer": split_layer,
        "question_tokens": question_tokens,
        "passage_tokens": passage_tokens,
        "length": length,
    }
    below, above = _side_masks(is_split=split_layer > 0)
    together = _sides_pattern(f"layers {split_layer + 1} and up" if split_layer else "all layers", sides, above)
    if split_layer == 0:
        return Subject(settings, (together,))
    name = "layer 1" if split_layer == 1 else f"layers 1–{split_layer}"
    return Subject(settings, (_sides_pattern(name, sides, below), together))


def _side_masks(*, is_split: bool) -> tuple[Tensor, Tensor]:
    """Which side sees which, in a layer below the split and in one above: `[2, 2]` each, asked of the mechanism.

    All tokens of a side see alike, so that one token of each stands for it.
    """
    # With it comes transformers, which no other pattern waits for.
    from narrows.deformer.split import run_packed

    seen: list[Tensor] = []

    def layer(hidden: Tensor, mask: Tensor, *, backend: str) -> Tensor:
        seen.append(mask.expand(1, 1, 2, 2)[0, 0])
        return hidden

    sides = torch.tensor([[0, 1]])
    run_packed([layer, layer], torch.zeros(1, 2, 1), None, sides, split_layer=int(is_split), backend="reference")
    return seen[0], seen[1]


def _sides_pattern(name: str, sides: Sequence[range], mask: Tensor) -> Pattern:
    runs = []
    for row in mask.tolist():
        visible = [side for side, is_seen in zip(sides, row, strict=True) if is_seen]
        runs.append((range(visible[0].start, visible[-1].stop),))
    length, passage = sides[1].stop, sides[1].start
    return Pattern(name, length, (_tokens(length),), lambda query: runs[int(query >= passage)])


def mulla(
    *,
    length: int = 16_384,
    variant: Variant = "dynamic",
    local_radius: int = LOCAL_RADIUS,
    pooling_rate: int | None = None,
    num_levels: int | None = None,
) -> Subject:
    """Neighbours at every level of a pyramid; a block for each level.

    Args:
        length: tokens.
        variant, local_radius, pooling_rate, num_levels: see `make_pyramid`.

    Raises:
        UsageError: a number is out of its range, or `num_levels` comes with the dynamic variant.

    Example:
        >>> [block.keys for block in mulla(length=100, local_radius=7).patterns[0].blocks]
        [100, 13, 2]
    """
    _require_length("length", length)
    pyramid = make_pyramid(variant=variant, local_radius=local_radius, pooling_rate=pooling_rate, num_levels=num_levels)
    pattern = pyramid_pattern(pyramid, length)
    return Subject({"length": length, **pyramid_settings(pyramid, length)}, (pattern,))


def make_pyramid(
    *,
    variant: Variant = "dynamic",
    local_radius: int = LOCAL_RADIUS,
    pooling_rate: int | None = None,
    num_levels: int | None = None,
) -> Pyramid:
    """The pyramid of a variant.

    Args:
        variant: `fixed`: `num_levels` whatever the length; `dynamic`: as many as it takes to see the whole text.
        local_radius: slots that a query sees to each side at every level, at least 1.
        pooling_rate: slots of a level that one of the next covers, at least 2; None: 4 (fixed) or 8 (dynamic).
        num_levels: of the fixed variant, at least 1; None: 3.

    Raises:
        UsageError: a number is out of its range, there is no such variant, or it decides the levels by itself.

    Example:
        >>> make_pyramid(variant="fixed", local_radius=127)
        Pyramid(radius=127, pooling_rate=4, num_levels=3)
    """
    if variant not in VARIANTS:
        raise UsageError(f"`variant` must be fixed or dynamic, got {variant!r}; choose one of them")
    _require("local_radius", local_radius, 1)
    own_rate, own_levels = VARIANTS[variant]
    rate = own_rate if pooling_rate is None else pooling_rate
    _require("pooling_rate", rate, 2)
    if own_levels is None:
        if num_levels is not None:
            raise UsageError(
                f"`num_levels` must come with the variant fixed, got {num_levels} with dynamic, which takes as many "
                "as the text needs; leave it out"
            )
        return Pyramid(local_radius, rate)
    levels = own_levels if num_levels is None else num_levels
    _require("num_levels", levels, 1)
    return Pyramid(local_radius, rate, levels)


def pyramid_settings(pyramid: Pyramid, length: int) -> dict[str, Any]:
    """The settings by the names of the options; `num_levels` are those that a text of this length has."""
    return {
        "variant": "dynamic" if pyramid.num_levels is None else "fixed",
        "local_radius": pyramid.radius,
        "pooling_rate": pyramid.pooling_rate,
        "num_levels": len(pyramid.lengths(length)),
    }


def pyramid_pattern(pyramid: Pyramid, length: int) -> Pattern:
    """What the queries of a text see at each level.

    Raises:
        UsageError: a slot of the last level would cover more tokens than can be counted.
    """
    levels = pyramid.num_levels or len(pyramid.lengths(length))
    # By the bits first: the power itself could take all memory.
    is_large = (levels - 1) * (pyramid.pooling_rate.bit_length() - 1) > _MOST_BITS
    if is_large or pyramid.span(levels - 1) >> _MOST_BITS:
        raise UsageError(
            f"expected slots shorter than 2^{_MOST_BITS} (in tokens), got {count(levels, 'level')} with "
            f"the pooling rate {pyramid.pooling_rate}; choose fewer levels or a lower rate"
        )
    blocks = []
    for level in range(len(pyramid.lengths(length))):
        covered = covered_tokens(torch.tensor([length]), pyramid, level, length=length)[0].numpy()
        blocks.append(Block(f"level {level + 1}", _borders(covered)))
    return Pattern("encoder", length, tuple(blocks), lambda query: pyramid.visible(query, length))


def funnel(*, length: int = 16_384, num_blocks: int = 3, pooling_size: int = 2) -> Subject:
    """Full attention among ever fewer slots: in the first layer of a block, its slots ask those of the block before.

    The first token stays alone in its slot, and nothing is truncated, which is a Funnel's default.

    Args:
        length: tokens.
        num_blocks: blocks of the encoder, at least 1.
        pooling_size: slots that one of the next block covers, at least 2.

    Raises:
        UsageError: a number is out of its range.

    Example:
        >>> found = funnel(length=9, num_blocks=2).patterns
        >>> [(pattern.name, pattern.length, pattern.blocks[0].keys) for pattern in found]
        [('block 1', 9, 9), ('block 2, first layer', 5, 9), ('block 2, other layers', 5, 5)]
    """
    # With them comes transformers, which most patterns do not wait for.
    from narrows.funnel.pooling import Pooling, Slots

    _require_length("length", length)
    _require("num_blocks", num_blocks, 1)
    _require("pooling_size", pooling_size, 2)
    pooling, slots = Pooling(size=pooling_size), Slots(length)
    keys = _slots_block("tokens", slots, length)
    patterns = [_all_see("block 1", keys.keys, keys)]
    for block in range(2, num_blocks + 1):
        slots = pooling.slots(slots)
        pooled = _slots_block(f"slots of block {block}", slots, length)
        patterns.append(_all_see(f"block {block}, first layer", pooled.keys, keys))
        patterns.append(_all_see(f"block {block}, other layers", pooled.keys, pooled))
        keys = pooled
    settings = {"length": length, "num_blocks": num_blocks, "pooling_size": pooling_size}
    return Subject(settings, tuple(patterns))


def _slots_block(name: str, slots: Any, length: int) -> Block:
    """Where each slot begins: the first at the first token, the others as evenly as their stride."""
    starts = slots.first + slots.stride * np.arange(slots.length, dtype=np.int64)
    return Block(name, np.append(starts.clip(0, length), length))


def _all_see(name: str, queries: int, keys: Block) -> Pattern:
    return Pattern(name, queries, (keys,), lambda query: (range(keys.keys),))


def local(*, length: int = 16_384, local_radius: int = LOCAL_RADIUS) -> Subject:
    """LongT5's local attention, which is a pyramid of one level.

    Args:
        length: tokens.
        local_radius: tokens that a query sees to each side, at least 1.

    Raises:
        UsageError: a number is out of its range.
    """
    _require_length("length", length)
    _require("local_radius", local_radius, 1)
    pattern = _neighbours(length, local_radius)
    return Subject({"length": length, "local_radius": local_radius}, (pattern,))


def tglobal(*, length: int = 16_384, local_radius: int = LOCAL_RADIUS, global_block_size: int = 16) -> Subject:
    """LongT5's transient global attention: neighbours, and the mean of every block of tokens.

    The blocks are those that transformers makes: a rest at the end that fills none belongs to the last, and a text
    shorter than a block has none.

    Args:
        length: tokens.
        local_radius: tokens that a query sees to each side, at least 1.
        global_block_size: tokens of a block, at least 1.

    Raises:
        UsageError: a number is out of its range.
    """
    from transformers.models.longt5 import modeling_longt5

    _require_length("length", length)
    _require("local_radius", local_radius, 1)
    _require_length("global_block_size", global_block_size)
    pattern = _neighbours(length, local_radius)
    block_ids, real = modeling_longt5._make_global_fixed_block_ids(torch.ones(1, length), global_block_size)
    slots = int(real.sum())
    settings = {"length": length, "local_radius": local_radius, "global_block_size": global_block_size}
    if not slots:
        return Subject(settings, (pattern,))
    covered = torch.bincount(block_ids[0], minlength=slots).numpy()
    blocks = (*pattern.blocks, Block("global", _borders(covered)))
    return Subject(settings, (Pattern("encoder", length, blocks, lambda query: (*pattern.see(query), range(slots))),))


def full(*, length: int = 16_384) -> Subject:
    """Full attention: every query sees every token.

    Raises:
        UsageError: the length is below 1.
    """
    _require_length("length", length)
    pattern = Pattern("encoder", length, (_tokens(length),), lambda query: (range(length),))
    return Subject({"length": length}, (pattern,))


def _neighbours(length: int, radius: int) -> Pattern:
    # The rate is never used: there is no second level.
    pyramid = Pyramid(radius, pooling_rate=2, num_levels=1)
    return Pattern("encoder", length, (_tokens(length),), lambda query: pyramid.visible(query, length))


def _tokens(length: int) -> Block:
    return Block("tokens", np.arange(length + 1))


def _borders(covered: Int64[np.ndarray, " slots"]) -> Int64[np.ndarray, " slots_and_1"]:
    return np.concatenate([[0], np.cumsum(covered)]).astype(np.int64)


def _require(name: str, value: int, least: int) -> None:
    if value < least:
        raise UsageError(f"`{name}` must be at least {least}, got {value}; choose a larger one")


def _require_length(name: str, value: int) -> None:
    _require(name, value, 1)
    if value > LONGEST:
        raise UsageError(f"`{name}` must be at most {LONGEST:,}, got {value:,}; choose a smaller one")
