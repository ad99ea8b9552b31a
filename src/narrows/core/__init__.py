"""Ground floor: attention and masks in plain torch. Knows no model, no config object and no transformers."""

from narrows.core.attention import attend
from narrows.core.masks import key_mask, same_segment_mask, segment_positions

__all__ = ["attend", "key_mask", "same_segment_mask", "segment_positions"]
