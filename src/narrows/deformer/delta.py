"""Small files for trained models: what training changed, in few bits, on top of a checkpoint that people already have.

A matrix's change is stored in groups of `GROUP` values, each group with one fp16 scale and `bits` bits a value. The
word embeddings' change, which training touches in few directions, is stored as a product of two thin matrices in int8.
Vectors (norms, biases) and the head are stored as they are, in fp16.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from narrows.errors import ConversionError, UsageError

__all__ = ["BITS", "GROUP", "apply_delta", "compress_delta"]

GROUP = 64
BITS = (2, 4, 8)

_LOW_RANK = "backbone.embeddings.word.weight"
# Clipping a few outliers makes the other values finer; the best of these shares of the range is taken, group by group.
_CLIPS = (1.0, 0.9, 0.8, 0.7, 0.6)


class _Packed(NamedTuple):
    codes: Tensor
    scales: Tensor


def compress_delta(
    trained: Mapping[str, Tensor], base: Mapping[str, Tensor], *, bits: int = 4, embedding_rank: int = 32
) -> dict[str, Tensor]:
    """The tensors of a delta file.

    Args:
        trained: `state_dict()` of the trained model.
        base: of the model converted from the base checkpoint, same names; what it lacks (a head) is stored whole.
        bits: 2, 4 or 8 a value.
        embedding_rank: directions kept of the word embeddings' change; 0 keeps the base's.

    Raises:
        UsageError: another number of bits.
    """
    if bits not in BITS:
        raise UsageError(f"`bits` must be one of {', '.join(map(str, BITS))}, got {bits}; choose one of them")
    stored: dict[str, Tensor] = {}
    for name, value in trained.items():
        value = value.detach().float().cpu()
        if name not in base:
            stored[f"{name}|whole"] = value.half()
            continue
        change = value - base[name].float().cpu()
        if not change.any():
            continue
        if name.endswith(_LOW_RANK):
            if embedding_rank:
                left, right = _low_rank(change, embedding_rank)
                stored[f"{name}|rank"] = torch.tensor(left.shape[1])
                for side, matrix in (("left", left), ("right", right)):
                    packed = _pack(matrix, 8)
                    stored[f"{name}|{side}|8|codes"], stored[f"{name}|{side}|8|scales"] = packed
        elif change.ndim < 2:
            stored[f"{name}|whole"] = value.half()
        else:
            packed = _pack(change, bits)
            stored[f"{name}|change|{bits}|codes"], stored[f"{name}|change|{bits}|scales"] = packed
    return stored


def apply_delta(base: Mapping[str, Tensor], delta: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The trained model's tensors, in fp32.

    Args:
        base: `state_dict()` of the model converted from the base checkpoint, heads included.
        delta: of `compress_delta`.

    Raises:
        ConversionError: the delta names a tensor that the model does not have, or of another shape.
    """
    tensors = {name: value.float().clone() for name, value in base.items()}
    thin: dict[str, dict[str, Tensor]] = {}
    for key, stored in delta.items():
        name, kind, *rest = key.split("|")
        if name not in tensors:
            raise ConversionError(
                f"expected a delta for this model, got one with {name}, which it does not have; "
                "use the base checkpoint that the card names"
            )
        if kind == "whole":
            if stored.shape != tensors[name].shape:
                raise ConversionError(
                    f"expected {name} of shape {tuple(tensors[name].shape)}, got {tuple(stored.shape)}; "
                    "use the base checkpoint that the card names"
                )
            tensors[name] = stored.float()
        elif rest and rest[1] == "codes":
            packed = _Packed(stored, delta[key.removesuffix("codes") + "scales"])
            if kind == "change":
                tensors[name] += _unpack(packed, int(rest[0]), tensors[name].numel()).view_as(tensors[name])
            else:
                thin.setdefault(name, {})[kind] = _unpack(packed, int(rest[0]), None)
    for name, sides in thin.items():
        rows, columns = tensors[name].shape
        rank = int(delta[f"{name}|rank"])
        left = sides["left"][: rows * rank].view(rows, rank)
        tensors[name] += left @ sides["right"][: rank * columns].view(rank, columns)
    return tensors


def _low_rank(change: Float[Tensor, "rows columns"], rank: int) -> tuple[Tensor, Tensor]:
    left, values, right = torch.linalg.svd(change, full_matrices=False)
    root = values[:rank].sqrt()
    return left[:, :rank] * root, root[:, None] * right[:rank]


def _pack(matrix: Tensor, bits: int) -> _Packed:
    flat = matrix.flatten()
    flat = torch.cat([flat, flat.new_zeros(-len(flat) % GROUP)]).view(-1, GROUP)
    top = 2 ** (bits - 1) - 1
    best_codes, best_scales, best_error = flat, flat[:, :1], flat.new_full((len(flat), 1), float("inf"))
    for clip in _CLIPS:
        # Levels −top … top for 4 and 8 bits; for 2 bits −1.5, −0.5, 0.5, 1.5, which wastes none of the four.
        shift = 0.5 if bits == 2 else 0.0
        largest = 1.5 if bits == 2 else float(top)
        scales = (flat.abs().amax(-1, keepdim=True) * clip / largest).clamp_min(1e-7).half().float()
        codes = ((flat / scales) - shift).round().clamp(-top - (bits == 2), top) + shift
        error = (codes * scales - flat).pow(2).sum(-1, keepdim=True)
        better = error < best_error
        best_codes = torch.where(better, codes - shift, best_codes)
        best_scales = torch.where(better, scales, best_scales)
        best_error = torch.where(better, error, best_error)
    unsigned = (best_codes + 2 ** (bits - 1)).to(torch.uint8).view(-1, 8 // bits)
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8)
    return _Packed((unsigned << shifts).sum(-1, dtype=torch.uint8), best_scales.half().flatten())


def _unpack(packed: _Packed, bits: int, count: int | None) -> Float[Tensor, " values"]:
    codes: UInt8[Tensor, " bytes"] = packed.codes
    shifts = torch.arange(0, 8, bits, dtype=torch.uint8)
    unsigned = (codes[:, None] >> shifts) & (2**bits - 1)
    values = unsigned.flatten().float() - 2 ** (bits - 1) + (0.5 if bits == 2 else 0.0)
    values = (values.view(-1, GROUP) * packed.scales.float()[:, None]).flatten()
    return values if count is None else values[:count]
