"""LongT5-Mulla: each query sees its neighbours at every level of a pyramid, from tokens to ever coarser means."""

from narrows.mulla.attention import MullaPlan, chosen_backend, mulla_attention, plan_attention
from narrows.mulla.levels import Pyramid

__all__ = ["MullaPlan", "Pyramid", "chosen_backend", "mulla_attention", "plan_attention"]
