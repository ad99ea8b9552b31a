"""Attention masks and positions. One convention: boolean, True = may attend (or: is a real token)."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

__all__ = ["key_mask", "same_segment_mask", "segment_positions"]


def key_mask(real: Bool[Tensor, "batch keys"]) -> Bool[Tensor, "batch 1 1 keys"]:
    """Every query may see every real key."""
    return real[:, None, None, :]


def same_segment_mask(
    real: Bool[Tensor, "batch length"], segments: Int[Tensor, "batch length"]
) -> Bool[Tensor, "batch 1 length length"]:
    """A query may see the real keys of its own segment: two texts in one row, encoded as if each were alone.

    Example:
        >>> real = torch.ones(1, 3, dtype=torch.bool)
        >>> same_segment_mask(real, torch.tensor([[0, 1, 1]]))[0, 0].int().tolist()
        [[1, 0, 0], [0, 1, 1], [0, 1, 1]]
    """
    same = segments[:, :, None] == segments[:, None, :]
    return (same & real[:, None, :])[:, None]


def segment_positions(
    real: Bool[Tensor, "batch length"], segments: Int[Tensor, "batch length"], *, restart: bool
) -> Int[Tensor, "batch length"]:
    """Positions that count real tokens only, so that padding anywhere moves nothing.

    Args:
        real: True for real tokens.
        segments: 0 for the first text, 1 for the second.
        restart: True: the second text starts again at 0 (DeFormer); False: it runs on (BERT).

    Example:
        >>> real = torch.tensor([[True, True, False, True, True]])
        >>> segments = torch.tensor([[0, 0, 0, 1, 1]])
        >>> segment_positions(real, segments, restart=True).tolist()
        [[0, 1, 1, 0, 1]]
        >>> segment_positions(real, segments, restart=False).tolist()
        [[0, 1, 1, 2, 3]]
    """
    if not restart:
        return (real.long().cumsum(-1) - 1).clamp_min(0)
    second = segments == 1
    first_count = (real & ~second).long().cumsum(-1)
    second_count = (real & second).long().cumsum(-1)
    return (torch.where(second, second_count, first_count) - 1).clamp_min(0)
