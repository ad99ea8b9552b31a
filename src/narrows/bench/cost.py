"""Closed-form arithmetic of an encoder: what a split should save, before anything is measured."""

from typing import NamedTuple

__all__ = ["EncoderSize", "joint_flops", "layer_flops", "saving", "split_flops"]


class EncoderSize(NamedTuple):
    """Sizes of a BERT encoder; `inner` of the feed-forward is four times the width."""

    name: str
    layers: int
    width: int
    heads: int


def layer_flops(length: int, width: int) -> int:
    """Floating-point operations of one layer over one row: 24·L·d² (maps) + 4·L²·d (attention).

    Example:
        >>> layer_flops(2, 3)
        480
    """
    return 24 * length * width**2 + 4 * length**2 * width


def joint_flops(size: EncoderSize, *, question: int, passage: int, passages: int) -> int:
    """Operations of reading every passage together with the question, all layers."""
    return passages * size.layers * layer_flops(question + passage, size.width)


def split_flops(size: EncoderSize, *, split_layer: int, question: int, passage: int, passages: int) -> int:
    """Operations over stored passages: the question's lower layers once, the upper layers on both."""
    lower = split_layer * layer_flops(question, size.width)
    return lower + passages * (size.layers - split_layer) * layer_flops(question + passage, size.width)


def saving(size: EncoderSize, *, split_layer: int, question: int, passage: int, passages: int) -> float:
    """How many times fewer operations the split form takes.

    Example:
        >>> minilm = EncoderSize("minilm", 6, 384, 12)
        >>> round(saving(minilm, split_layer=4, question=27, passage=293, passages=32), 2)
        2.99
    """
    joint = joint_flops(size, question=question, passage=passage, passages=passages)
    return joint / split_flops(size, split_layer=split_layer, question=question, passage=passage, passages=passages)
