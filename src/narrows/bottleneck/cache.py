"""What a model remembers of the tokens it has read, layer by layer."""

from typing import Any, cast

from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from narrows.bottleneck.config import BottleneckConfig
from narrows.errors import UsageError

__all__ = ["BottleneckCache"]


class BottleneckCacheLayer(DynamicLayer):
    """Keys and values, or the narrow states in the place of the keys, and what the convolution reads of the past.

    Args:
        keeps_states: whether narrow states are kept, and no keys and values.
        has_tail: whether there is a convolution. Then the cache cannot be cropped: what it read before is gone.
    """

    def __init__(self, *, keeps_states: bool, has_tail: bool):
        super().__init__()
        self.keeps_states = keeps_states
        self.tail: Tensor | None = None
        # Narrow states are kept from before the convolution, which needs no tail then.
        self.is_croppable = not has_tail or keeps_states  # type: ignore[misc]

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last tokens.

        Raises:
            UsageError: a convolution has read them.
        """
        if tokens_to_remove and not self.is_croppable:
            raise UsageError(
                "expected a cache whose last tokens can be taken back, got one of a model with a convolution; set "
                "cache_kind='narrow_states' or bottleneck_kernel=0 in its config"
            )
        super().crop(tokens_to_remove)

    def reset(self) -> None:
        super().reset()
        self.tail = None

    def reorder_cache(self, beam_idx: Any) -> None:
        super().reorder_cache(beam_idx)
        self._each(lambda tail: tail.index_select(0, beam_idx.to(tail.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        super().batch_repeat_interleave(repeats)
        self._each(lambda tail: tail.repeat_interleave(repeats, dim=0))

    def batch_select_indices(self, indices: Tensor) -> None:
        super().batch_select_indices(indices)
        self._each(lambda tail: tail[indices])

    def _each(self, change: Any) -> None:
        if self.tail is not None:
            self.tail = change(self.tail)


class BottleneckCache(Cache):
    """A layer of memory for each layer of a model, as its config says; made by the model where none is given.

    Args:
        config: of the model.

    Example:
        >>> cache = BottleneckCache(BottleneckConfig(hidden_size=64, num_hidden_layers=2))
        >>> cache.get_seq_length(), cache.num_bytes
        (0, 0)
    """

    def __init__(self, config: BottleneckConfig):
        self.signature = _signature(config)
        layers: list[Any] = [
            BottleneckCacheLayer(
                keeps_states=is_narrow and config.cache_kind == "narrow_states",
                has_tail=is_narrow and config.bottleneck_kernel > 1,
            )
            for is_narrow in (kind.startswith("bottleneck") for kind in config.kinds)
        ]
        super().__init__(layers=layers)

    @property
    def num_bytes(self) -> int:
        """Bytes of all that it holds."""
        held = (
            part
            for layer in cast(Any, self.layers)
            for part in (layer.keys, layer.values, getattr(layer, "tail", None))
        )
        return sum(part.numel() * part.element_size() for part in held if part is not None)

    def require(self, config: BottleneckConfig) -> None:
        """Refuse to be read by another model than one of the config it was made for.

        Raises:
            UsageError: the configs differ in what a cache depends on.
        """
        if _signature(config) != self.signature:
            raise UsageError(
                "expected a cache made for this model's config, got one of another; make it by "
                "`BottleneckCache(model.config)`, or leave it out"
            )


def require_cache(cache: Any, config: BottleneckConfig, rows: int) -> BottleneckCache:
    """A cache that this model can read.

    Args:
        cache: what a caller gave.
        config: of the model.
        rows: texts of the batch.

    Raises:
        UsageError: a cache of another class, another model, or of other texts.
    """
    if not isinstance(cache, BottleneckCache):
        raise UsageError(
            f"expected a BottleneckCache as `cache`, got {type(cache).__name__}; make one by "
            "`BottleneckCache(model.config)`, or leave it out"
        )
    cache.require(config)
    held = cast(Any, cache.layers[0]).keys
    if held is not None and held.numel() and held.shape[0] != rows:
        raise UsageError(
            f"expected a cache of the {rows} rows of the batch, got one of {held.shape[0]}; pass that of these texts"
        )
    return cache


def _signature(config: BottleneckConfig) -> tuple[Any, ...]:
    names = (
        "hidden_size",
        "inner_size",
        "bottleneck_heads",
        "bottleneck_key_value_heads",
        "bottleneck_key_dim",
        "bottleneck_kernel",
        "num_attention_heads",
        "num_key_value_heads",
        "rope_theta",
        "cache_kind",
    )
    return (*(getattr(config, name) for name in names), *config.kinds)
