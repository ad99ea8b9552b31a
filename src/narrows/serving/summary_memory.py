"""About how much memory a long input needs, and how long one may be: estimates, before anything is computed."""

from typing import Any

import psutil
import torch

__all__ = ["available_bytes", "largest_input", "needed_bytes"]

# Copies of the scores that transformers' attention holds at once (raw, with positions, softmax, masks), as measured
# with two layers of base width in fp32 on a CPU: T5 2,048–4,096 tokens, LongT5 8,192–16,384.
_COPIES = {"full": 2.25, "local": 3.0, "transient-global": 5.0}
# As `generate` holds them at once: logits, the same in fp32, their logarithms, those with the beams' own.
_COPIES_OF_WORDS = 4
# Of tiles of scores, whatever the length; see `narrows.mulla.tiled`.
_TILES = 64 * 2**20
# Beyond what is looked for: longer than any text.
_LONGEST = 2**31


def needed_bytes(config: Any, tokens: int, *, dtype: torch.dtype, num_beams: int = 1) -> int:
    """Bytes beside the weights that reading so many tokens and writing of them needs, about.

    Args:
        config: of a LongT5-Mulla, LongT5, T5 or mT5.
        tokens: of one input.
        dtype: of the states.
        num_beams: texts that are written side by side.
    """
    size = torch.tensor([], dtype=dtype).element_size()
    width, inner = config.d_model, config.num_heads * config.d_kv
    layers = config.num_decoder_layers or config.num_layers
    states = 4 * width + 3 * inner + 2 * config.d_ff
    # Keys and values of the cross-attention stay for the whole writing, for each beam.
    kept = num_beams * (width + 2 * layers * inner)
    return tokens * size * (states + kept) + _scores(config, tokens) + _writing(config, num_beams)


def largest_input(config: Any, room: int, *, dtype: torch.dtype, num_beams: int = 1) -> int:
    """Tokens of the longest input that needs no more than `room` bytes; 0 when there is none."""
    low, high = 0, _LONGEST
    while low < high:
        middle = (low + high + 1) // 2
        if needed_bytes(config, middle, dtype=dtype, num_beams=num_beams) <= room:
            low = middle
        else:
            high = middle - 1
    return low


def available_bytes(device: torch.device) -> int:
    """Bytes that are free on a device now."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return psutil.virtual_memory().available


def _writing(config: Any, num_beams: int) -> int:
    # Of greedy writing it is within the other numbers' error; beams keep scores of all words, in fp32, some times.
    return 0 if num_beams == 1 else 4 * _COPIES_OF_WORDS * num_beams * config.vocab_size


def _scores(config: Any, tokens: int) -> int:
    if config.model_type == "narrows-mulla-t5":
        return _TILES
    kind = config.encoder_attention_type if config.model_type == "longt5" else "full"
    a_key = 4 * config.num_heads * _COPIES[kind]
    if kind == "full":
        return int(a_key * tokens * tokens)
    keys = 3 * (config.local_radius + 1)
    if kind == "local":
        return int(a_key * tokens * keys)
    slots = tokens // config.global_block_size
    # And a table of which token belongs to which global one.
    return int(tokens * (a_key * (keys + slots) + 8 * slots))
