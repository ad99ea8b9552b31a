"""What fits a budget: the run that a person described, its memory, micro-batch, accumulation and longest text."""

from typing import Any, NamedTuple

from narrows._plural import count
from narrows.errors import UsageError
from narrows.inspection.families import Variant
from narrows.inspection.memory import LONGEST, Memory
from narrows.inspection.sizes import show_size
from narrows.mulla import MullaT5Config
from narrows.mulla.convert import mulla_config

__all__ = ["Plan", "check_sizes", "describe_config", "plan_batches"]

# Of the published base checkpoints of T5 v1.1 and LongT5.
_BASE = {"d_model": 768, "d_kv": 64, "d_ff": 2048, "num_heads": 12}
_BASE_LAYERS = 12
_KEPT = [
    "variant",
    "local_radius",
    "pooling_rate",
    "num_levels",
    "level_scales",
    "max_level_scales",
    "encoder_feed_forward_chunk",
    "encoder_feed_forward_recompute",
    "mulla_backend",
    "vocab_size",
    "d_model",
    "d_kv",
    "d_ff",
    "num_layers",
    "num_decoder_layers",
    "num_heads",
    "relative_attention_num_buckets",
    "relative_attention_max_distance",
    "dropout_rate",
    "feed_forward_proj",
    "scale_decoder_outputs",
    "tie_word_embeddings",
]


class Plan(NamedTuple):
    """How a global batch goes through a budget; sizes in bytes."""

    activations_per_text: int
    """What one text of the length needs beside weights, gradients and the optimiser's state."""
    one_text: int
    """All that a step with one such text holds at its peak."""
    most_texts: int
    """Such texts that fit side by side, up to the global batch; 0: not one does."""
    micro_batch: int | None
    """The largest divisor of the batch that fits; None: not one text does."""
    accumulation: int | None
    """Micro-batches in the batch."""
    peak: int | None
    """All that a step with a micro-batch holds at its peak."""
    longest_length: int
    """Tokens of the longest text that fits alone."""


def describe_config(
    model: str | None = None,
    *,
    layers: int | None = None,
    variant: Variant | None = None,
    local_radius: int | None = None,
    pooling_rate: int | None = None,
    num_levels: int | None = None,
    feed_forward_chunk: int | None = None,
    recompute: bool = False,
) -> dict[str, Any]:
    """Fields of `MullaT5Config` that memory depends on.

    Args:
        model: a checkpoint: a LongT5-Mulla as it is, or a LongT5, T5 or mT5 as it would be converted. None: base size.
        layers: of each stack, in the place of the model's.
        variant, local_radius, pooling_rate, num_levels: in the place of the model's; rate and levels of a new variant
            are its own.
        feed_forward_chunk: `encoder_feed_forward_chunk`, in the place of the model's.
        recompute: `encoder_feed_forward_recompute`; False: as the model has it.

    Raises:
        ConversionError: there is no such checkpoint, or it is none of these.
        UsageError: a number out of its range.

    Example:
        >>> describe_config(layers=2)["num_decoder_layers"]
        2
    """
    changes: dict[str, Any] = {
        "local_radius": local_radius,
        "pooling_rate": pooling_rate,
        "num_levels": num_levels,
        "encoder_feed_forward_chunk": feed_forward_chunk,
        "encoder_feed_forward_recompute": True if recompute else None,
        "num_layers": layers,
        "num_decoder_layers": layers,
    }
    changes = {name: value for name, value in changes.items() if value is not None}
    if variant is not None:
        changes = {"variant": variant, "pooling_rate": pooling_rate, "num_levels": num_levels, **changes}
    if model is None:
        config = MullaT5Config(**{**_BASE, "num_layers": _BASE_LAYERS, **changes})
    else:
        config = mulla_config(model, **changes)
    return {name: getattr(config, name) for name in _KEPT}


def check_sizes(*, length: int, batch: int) -> None:
    """Refuse what no text or batch can be.

    Raises:
        UsageError: a number out of its range.
    """
    for name, value in (("length", length), ("batch", batch)):
        if value < 1:
            raise UsageError(f"`{name}` must be at least 1, got {value}; choose a larger one")
        if value > LONGEST:
            raise UsageError(f"`{name}` must be at most {LONGEST:,}, got {value:,}; choose a smaller one")


def plan_batches(memory: Memory, *, length: int, batch: int, budget: int) -> Plan:
    """What fits.

    Args:
        memory: of the run.
        length: tokens of each text.
        batch: texts of an optimiser's step, or that are to be read.
        budget: bytes.

    Raises:
        UsageError: a number out of its range, or not even one token fits.
    """
    check_sizes(length=length, batch=batch)
    least, longest = memory.peak(batch=1, length=1), memory.longest(budget=budget)
    if not longest:
        static = memory.static
        beside = ", gradients and the optimiser's state" if static.gradients else ""
        raise UsageError(
            f"expected a budget of at least {show_size(least)}, of which weights{beside} are {show_size(static.kept)}, "
            f"got {show_size(budget)}; for one text of {count(length, 'token')} give "
            f"{show_size(memory.peak(batch=1, length=length))}"
        )
    most = memory.most_texts(budget=budget, length=length, at_most=batch)
    micro = next((size for size in range(most, 0, -1) if batch % size == 0), None)
    return Plan(
        activations_per_text=memory.activations(batch=1, length=length),
        one_text=memory.peak(batch=1, length=length),
        most_texts=most,
        micro_batch=micro,
        accumulation=None if micro is None else batch // micro,
        peak=None if micro is None else memory.peak(batch=micro, length=length),
        longest_length=longest,
    )
