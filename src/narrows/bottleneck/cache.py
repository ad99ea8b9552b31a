"""What a model remembers of the tokens it has read, layer by layer."""

from typing import Any, cast

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from narrows._plural import count
from narrows.bottleneck.config import BottleneckConfig
from narrows.errors import UsageError

__all__ = ["BottleneckCache"]

# Columns of room, where little is held.
_LEAST_ROOM = 16


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
        self._room: tuple[Tensor, Tensor] | None = None

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Add columns, `[batch, heads, new, dim]`, and return all.

        One column after another goes into room that was made beforehand, an eighth of what is held: to copy all that is
        held for each costs a third of the time of a token behind 2,048 others.
        """
        new = (key_states, value_states)
        held = (self.keys, self.values) if self.is_initialized else None
        if held is None or key_states.shape[-2] != 1 or torch.is_grad_enabled() or torch.compiler.is_compiling():
            self._room = None
            return super().update(*new)
        assert isinstance(held[0], Tensor) and isinstance(held[1], Tensor)
        parts = cast(tuple[Tensor, Tensor], held)
        if self._room is None or not all(map(_has_room, self._room, parts, new)):
            self._room = cast(Any, tuple(map(_room_for, parts)))
        rooms = cast(tuple[Tensor, Tensor], self._room)
        self.keys, self.values = map(_added, rooms, parts, new)
        return self.keys, self.values

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


def _has_room(room: Tensor, held: Tensor, new: Tensor) -> bool:
    """Whether what is held still lies at the front of its room, and something new fits behind it."""
    return (
        room.data_ptr() == held.data_ptr()
        and room.stride() == held.stride()
        and room.shape[:2] == held.shape[:2]
        and room.shape[2] >= held.shape[2] + new.shape[2]
        and room.dtype == new.dtype
        # What was made in inference mode cannot be written to outside of it.
        and room.is_inference() == torch.is_inference_mode_enabled()
    )


def _room_for(held: Tensor) -> Tensor:
    length = held.shape[2]
    room = held.new_empty(*held.shape[:2], length + max(_LEAST_ROOM, length // 8), held.shape[3])
    room[:, :, :length] = held
    return room


def _added(room: Tensor, held: Tensor, new: Tensor) -> Tensor:
    end = held.shape[2] + new.shape[2]
    room[:, :, held.shape[2] : end] = new
    return room[:, :, :end]


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
            f"expected a cache of {count(rows, 'text')}, as the batch has, got one of {held.shape[0]}; pass "
            "that of these texts"
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
