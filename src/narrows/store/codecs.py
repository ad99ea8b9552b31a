"""How the states of a passage become bytes, and bytes become states again.

| codec | bytes a token at width d | error of one value |
|---|---|---|
| fp32 | 4 d | none |
| fp16 | 2 d | the rounding of fp16 |
| int8 | d + 2 | at most half the token's scale, see `Int8Codec` |

Bytes are little-endian and have the true length of the passage; no padding is ever stored.
Decoding goes through numpy because torch warns about every buffer it may not write to.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch

from narrows._plural import count
from narrows.errors import StoreDamagedError, UsageError

Buffer = bytes | bytearray | memoryview

_FP16_MAX = 65504.0


class Codec(ABC):
    """A named way to hold the states of one passage in bytes."""

    name: str

    @abstractmethod
    def bytes_per_token(self, width: int) -> int:
        """Number of bytes that one token of the given width takes."""

    @abstractmethod
    def _encode(self, states: np.ndarray) -> bytes:
        """Turn checked float32 states [tokens, width] into bytes."""

    @abstractmethod
    def _decode_into(self, buffer: Buffer, out: np.ndarray) -> None:
        """Write the states that `buffer` holds into the float32 array `out` [tokens, width]."""

    def encode(self, states: torch.Tensor) -> bytes:
        """Turn the states of one passage into bytes.

        Args:
            states: floating-point tensor [tokens, width], on any device, without padding.

        Returns:
            `tokens * bytes_per_token(width)` bytes.

        Raises:
            UsageError: the tensor is not a non-empty matrix of finite floats that the codec can hold.
        """
        if states.dim() != 2 or 0 in states.shape or not states.is_floating_point():
            raise UsageError(
                "states to store have to be a non-empty floating-point matrix [tokens, width], but got "
                f"{str(states.dtype).removeprefix('torch.')} of shape {tuple(states.shape)}; pass one "
                "passage at a time"
            )
        values = states.detach().to(device="cpu", dtype=torch.float32).contiguous().numpy()
        if not np.isfinite(values).all():
            raise UsageError(
                "states to store have to be finite, but they contain inf or nan; "
                "run the model in a wider dtype or look for the layer that overflows"
            )
        return self._encode(values)

    def decode(
        self,
        buffers: Sequence[Buffer],
        lengths: Sequence[int],
        width: int,
        dtype: torch.dtype = torch.float32,
    ) -> list[torch.Tensor]:
        """Turn the bytes of several passages into one tensor [tokens, width] each.

        Args:
            buffers: the bytes of each passage.
            lengths: the number of tokens of each passage.
            width: size of one token's state.
            dtype: floating-point type of the result.

        Raises:
            StoreDamagedError: a buffer's size does not fit its number of tokens.
        """
        self._check_sizes(buffers, lengths, width)
        states = []
        for buffer, length in zip(buffers, lengths, strict=True):
            out = np.empty((length, width), dtype=np.float32)
            self._decode_into(buffer, out)
            states.append(torch.from_numpy(out).to(dtype))
        return states

    def decode_padded(
        self,
        buffers: Sequence[Buffer],
        lengths: Sequence[int],
        width: int,
        dtype: torch.dtype = torch.float32,
    ) -> torch.Tensor:
        """Turn the bytes of several passages into one tensor, zeros behind the end of the shorter ones.

        Args and raises as `decode`.

        Returns:
            tensor [passages, longest passage, width].
        """
        self._check_sizes(buffers, lengths, width)
        longest = max(lengths, default=0)
        out = np.empty((len(buffers), longest, width), dtype=np.float32)
        for row, buffer, length in zip(out, buffers, lengths, strict=True):
            self._decode_into(buffer, row[:length])
            row[length:] = 0
        return torch.from_numpy(out).to(dtype)

    def _check_sizes(self, buffers: Sequence[Buffer], lengths: Sequence[int], width: int) -> None:
        per_token = self.bytes_per_token(width)
        if len(buffers) != len(lengths):
            raise UsageError(
                f"every passage needs its number of tokens, but got {count(len(buffers), 'buffer')} "
                f"and {count(len(lengths), 'length')}; pass one length a buffer"
            )
        for index, (buffer, length) in enumerate(zip(buffers, lengths, strict=True)):
            if len(buffer) != length * per_token:
                raise StoreDamagedError(
                    f"{count(length, 'token')} of width {width} take {count(length * per_token, 'byte')} in "
                    f"{self.name}, but buffer {index} has {len(buffer):,}; run `narrows store verify` on the store "
                    "it came from"
                )


class Fp32Codec(Codec):
    """Lossless for float32, bfloat16 and float16 states."""

    name = "fp32"

    def bytes_per_token(self, width: int) -> int:
        return 4 * width

    def _encode(self, states: np.ndarray) -> bytes:
        return states.astype("<f4", copy=False).tobytes()

    def _decode_into(self, buffer: Buffer, out: np.ndarray) -> None:
        out[:] = np.frombuffer(buffer, dtype="<f4").reshape(out.shape)


class Fp16Codec(Codec):
    """Lossless for float16 states; half the size of fp32."""

    name = "fp16"

    def bytes_per_token(self, width: int) -> int:
        return 2 * width

    def _encode(self, states: np.ndarray) -> bytes:
        largest = float(np.abs(states).max())
        if largest > _FP16_MAX:
            raise UsageError(
                f"the fp16 codec holds values up to {_FP16_MAX:.0f}, but the states reach {largest:.6g}; "
                "use the fp32 codec"
            )
        return states.astype("<f2").tobytes()

    def _decode_into(self, buffer: Buffer, out: np.ndarray) -> None:
        out[:] = np.frombuffer(buffer, dtype="<f2").reshape(out.shape)


class Int8Codec(Codec):
    """Symmetric 8-bit integers with one fp16 scale a token: all scales first, then all integers.

    A token's scale is `max|x| / 127` rounded up to the next fp16 number, so that no value is clipped. The
    error of one value is at most half a scale, which `max_error` states in terms of the token's largest
    value.
    """

    name = "int8"

    def bytes_per_token(self, width: int) -> int:
        return width + 2

    @staticmethod
    def max_error(largest: float) -> float:
        """The bound of |x - decoded x| in a token whose largest absolute value is `largest`.

        2^-10 is one step of an fp16 number relative to itself, 2^-24 the step of the smallest ones; the last
        factor leaves room for the fp32 arithmetic itself.
        """
        return 0.5 * (largest / 127 * (1 + 2**-10) + 2**-24) * (1 + 2**-16)

    def _encode(self, states: np.ndarray) -> bytes:
        largest = np.abs(states).max(axis=1)
        if not largest.all():
            raise UsageError(
                "the int8 codec needs a value other than 0 in every token, but token "
                f"{int(largest.argmin())} is "
                "all zeros; store true tokens only, without padding"
            )
        exact = largest / np.float32(127)
        if exact.max() > _FP16_MAX:
            raise UsageError(
                f"the int8 codec holds values up to {127 * _FP16_MAX:.0f}, but the states reach "
                f"{float(largest.max()):.6g}; use the fp32 codec"
            )
        scales = exact.astype("<f2")
        too_small = scales.astype(np.float32) < exact
        scales[too_small] = np.nextafter(scales[too_small], np.float16(np.inf))
        # max|x| / 127 itself may be too small for fp32; the smallest fp16 number always serves.
        scales = np.maximum(scales, np.float16(2**-24))
        integers = np.rint(states / scales.astype(np.float32)[:, None]).astype(np.int8)
        return scales.tobytes() + integers.tobytes()

    def _decode_into(self, buffer: Buffer, out: np.ndarray) -> None:
        tokens = len(out)
        scales = np.frombuffer(buffer, dtype="<f2", count=tokens).astype(np.float32)
        out[:] = np.frombuffer(buffer, dtype=np.int8, offset=2 * tokens).reshape(out.shape)
        out *= scales[:, None]


_CODECS: dict[str, Codec] = {codec.name: codec for codec in (Fp32Codec(), Fp16Codec(), Int8Codec())}

CODEC_NAMES = tuple(_CODECS)


def get_codec(name: str) -> Codec:
    """Return the codec of that name.

    Raises:
        UsageError: there is no codec of that name.
    """
    if name not in _CODECS:
        raise UsageError(f"a codec is one of {', '.join(CODEC_NAMES)}, but got {name!r}; choose one of these")
    return _CODECS[name]
