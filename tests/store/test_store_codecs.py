import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from narrows.errors import StoreDamagedError, UsageError
from narrows.store import CODEC_NAMES, get_codec
from narrows.store.codecs import Int8Codec

shapes = st.tuples(st.integers(1, 9), st.integers(1, 33))
finite = st.floats(-60_000, 60_000, width=32)


@pytest.mark.parametrize(("name", "size"), [("fp32", 1536), ("fp16", 768), ("int8", 386)])
def test_bytes_a_token_at_width_384(name: str, size: int) -> None:
    codec = get_codec(name)
    assert codec.bytes_per_token(384) == size
    assert len(codec.encode(torch.ones(7, 384))) == 7 * size


@given(arrays.arrays(np.float32, shapes, elements=finite))
def test_fp32_is_exact(values: np.ndarray) -> None:
    codec = get_codec("fp32")
    (decoded,) = codec.decode([codec.encode(torch.from_numpy(values))], [len(values)], values.shape[1])
    assert decoded.numpy().tobytes() == values.tobytes()


@given(arrays.arrays(np.float16, shapes, elements=st.floats(-60_000, 60_000, width=16)))
def test_fp16_states_are_exact_in_fp16(values: np.ndarray) -> None:
    codec = get_codec("fp16")
    encoded = codec.encode(torch.from_numpy(values))
    (decoded,) = codec.decode([encoded], [len(values)], values.shape[1], dtype=torch.float16)
    assert decoded.numpy().tobytes() == values.tobytes()


def test_bfloat16_states_are_exact_in_fp32() -> None:
    states = torch.randn(5, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    codec = get_codec("fp32")
    (decoded,) = codec.decode([codec.encode(states)], [5], 8, dtype=torch.bfloat16)
    assert torch.equal(decoded, states)


@pytest.mark.filterwarnings("error")
@given(
    arrays.arrays(np.float32, shapes, elements=st.floats(-8_000_000, 8_000_000, width=32)),
    st.sampled_from([1.0, 1e-3, 1e-7, 1e-30]),
)
def test_int8_error_stays_within_the_stated_bound(values: np.ndarray, factor: float) -> None:
    values = (values * np.float32(factor)).astype(np.float32)
    values[~values.any(axis=1), 0] = 1.0
    codec = get_codec("int8")
    (decoded,) = codec.decode([codec.encode(torch.from_numpy(values))], [len(values)], values.shape[1])
    error = np.abs(decoded.double().numpy() - values.astype(np.float64)).max(axis=1)
    for row_error, largest in zip(error, np.abs(values).max(axis=1), strict=True):
        assert row_error <= Int8Codec.max_error(float(largest))


@pytest.mark.filterwarnings("error")
def test_int8_takes_the_smallest_numbers() -> None:
    tiny = torch.full((1, 2), 1e-45)
    codec = get_codec("int8")
    (decoded,) = codec.decode([codec.encode(tiny)], [1], 2)
    assert not decoded.any()


def test_int8_by_hand() -> None:
    codec = get_codec("int8")
    encoded = codec.encode(torch.tensor([[127.0, -127.0, 2.4], [0.0, 63.5, -1.0]]))
    assert encoded[:4] == np.array([1.0, 0.5], dtype="<f2").tobytes()
    assert np.frombuffer(encoded[4:], np.int8).tolist() == [127, -127, 2, 0, 127, -2]
    (decoded,) = codec.decode([encoded], [2], 3)
    assert decoded.tolist() == [[127.0, -127.0, 2.0], [0.0, 63.5, -1.0]]


@given(st.lists(st.integers(1, 12), max_size=6), st.integers(1, 20), st.sampled_from(CODEC_NAMES))
def test_padded_decoding_equals_one_by_one(lengths: list[int], width: int, name: str) -> None:
    generator = torch.Generator().manual_seed(width)
    codec = get_codec(name)
    buffers = [codec.encode(torch.randn(length, width, generator=generator)) for length in lengths]
    # A view at an odd address, as a column of a store may give.
    shifted = [memoryview(b"x" + buffer)[1:] for buffer in buffers]
    padded = codec.decode_padded(shifted, lengths, width)
    assert padded.shape == (len(lengths), max(lengths, default=0), width)
    for row, alone, length in zip(padded, codec.decode(buffers, lengths, width), lengths, strict=True):
        assert torch.equal(row[:length], alone)
        assert not row[length:].any()


def test_states_are_taken_without_their_gradient_and_strides() -> None:
    states = torch.randn(4, 6, generator=torch.Generator().manual_seed(0), requires_grad=True)
    for name in CODEC_NAMES:
        assert get_codec(name).encode(states.t()) == get_codec(name).encode(states.t().detach().clone())


@pytest.mark.parametrize("name", CODEC_NAMES)
@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_states_have_to_be_finite(name: str, bad: float) -> None:
    with pytest.raises(UsageError, match="finite, but they contain inf or nan"):
        get_codec(name).encode(torch.tensor([[1.0, bad]]))


@pytest.mark.parametrize(
    "states", [torch.ones(3), torch.ones(0, 4), torch.ones(2, 2, 2), torch.ones(2, 2, dtype=torch.int32)]
)
def test_states_have_to_be_a_matrix_of_floats(states: torch.Tensor) -> None:
    with pytest.raises(UsageError, match="non-empty floating-point matrix"):
        get_codec("int8").encode(states)


def test_what_a_codec_cannot_hold_is_refused() -> None:
    with pytest.raises(UsageError, match="token 1 is all zeros"):
        get_codec("int8").encode(torch.tensor([[1.0], [0.0]]))
    with pytest.raises(UsageError, match="the int8 codec holds values up to 8319008, but the states reach 1e"):
        get_codec("int8").encode(torch.tensor([[1e7]]))
    with pytest.raises(UsageError, match="the fp16 codec holds values up to 65504, but the states reach 70000"):
        get_codec("fp16").encode(torch.tensor([[70_000.0]]))
    with pytest.raises(UsageError, match="a codec is one of fp32, fp16, int8, but got 'int4'"):
        get_codec("int4")


def test_wrong_sizes_are_refused() -> None:
    codec = get_codec("int8")
    with pytest.raises(StoreDamagedError, match="2 tokens of width 4 take 12 bytes in int8, but buffer 0 has 11"):
        codec.decode([b"x" * 11], [2], 4)
    with pytest.raises(UsageError, match="1 buffer and 2 lengths"):
        codec.decode_padded([b"x" * 6], [1, 1], 4)
