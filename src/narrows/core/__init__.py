"""Ground floor: attention, masks and positions in plain torch. Knows no model, no config object and no transformers."""

from narrows.core.attention import attend
from narrows.core.compact import Compact, compact
from narrows.core.linear import project
from narrows.core.masks import key_mask, same_segment_mask, segment_positions
from narrows.core.positions import relative_bias, relative_buckets

__all__ = [
    "Compact",
    "attend",
    "compact",
    "key_mask",
    "project",
    "relative_bias",
    "relative_buckets",
    "same_segment_mask",
    "segment_positions",
]
