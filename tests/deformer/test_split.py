"""The mechanism: both sides in one row, masked, give the states that each side gives alone."""

from functools import lru_cache
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from narrows.deformer.bert import BertLayer
from narrows.deformer.split import join, run_lower, run_packed, run_upper

WIDTH, LAYERS = 14, 5
BACKENDS = ["reference", "matmul", "sdpa"]


@lru_cache
def _layers() -> nn.ModuleList:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.ModuleList(
            BertLayer(width=WIDTH, heads=2, inner=23, activation=nn.GELU(), eps=1e-12) for _ in range(LAYERS)
        )
        for parameter in layers.parameters():
            nn.init.normal_(parameter, std=0.4)
    return layers.double().eval()


def _states(length: int, seed: int) -> Tensor:
    return torch.randn(1, length, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _plain(question: Tensor, passage: Tensor, split_layer: int) -> Tensor:
    """One pair without padding or mask: each side alone, then both together. What all forms must equal."""
    for layer in _layers()[:split_layer]:
        question, passage = layer(question, backend="reference"), layer(passage, backend="reference")
    both = torch.cat([question, passage], dim=1)
    for layer in _layers()[split_layer:]:
        both = layer(both, backend="reference")
    return both


class Packed(NamedTuple):
    hidden: Tensor
    real: Tensor
    segments: Tensor


def _pack(question: Tensor, passage: Tensor, pads: tuple[int, int, int]) -> Packed:
    """`pads` states of noise before the question, between the sides, and after the passage."""
    parts, real, segments = [], [], []
    pieces = [(None, pads[0], 0), (question, 0, 0), (None, pads[1], 0), (passage, 0, 1), (None, pads[2], 1)]
    for tensor, count, segment in pieces:
        tensor_or_noise = _states(count, 77) * 5 if tensor is None else tensor
        parts.append(tensor_or_noise)
        real += [tensor is not None] * tensor_or_noise.shape[1]
        segments += [segment] * tensor_or_noise.shape[1]
    return Packed(torch.cat(parts, 1), torch.tensor([real]), torch.tensor([segments]))


def _close(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected, atol=1e-10, rtol=0)


LENGTHS = st.integers(1, 9)
PADS = st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4))


@given(
    question=LENGTHS,
    passage=LENGTHS,
    pads=PADS,
    split_layer=st.integers(0, LAYERS - 1),
    seed=st.integers(0, 9),
)
def test_packed_equals_the_plain_loop_with_padding_anywhere(question, passage, pads, split_layer, seed):
    sides = _states(question, seed), _states(passage, seed + 50)
    expected = _plain(*sides, split_layer)[0]
    packed = _pack(*sides, pads)
    for backend in BACKENDS:
        states = run_packed(_layers(), *packed, split_layer=split_layer, backend=backend)
        assert len(states) == LAYERS + 1
        _close(states[-1][packed.real], expected)
        assert bool(states[-1].isfinite().all())


@given(
    question=LENGTHS,
    passage=LENGTHS,
    pads=PADS,
    split_layer=st.integers(0, LAYERS - 1),
    seed=st.integers(0, 9),
)
def test_apart_equals_the_plain_loop_with_padding_anywhere(question, passage, pads, split_layer, seed):
    sides = _states(question, seed), _states(passage, seed + 50)
    noise = [_states(count, 70 + count) for count in pads]
    padded = torch.cat([noise[0], sides[0], noise[1]], 1), torch.cat([sides[1], noise[2]], 1)
    real = (
        torch.tensor([[False] * pads[0] + [True] * question + [False] * pads[1]]),
        torch.tensor([[True] * passage + [False] * pads[2]]),
    )
    lower, upper = _layers()[:split_layer], _layers()[split_layer:]
    for backend in BACKENDS:
        ours = [run_lower(lower, s, r, backend=backend) for s, r in zip(padded, real, strict=True)]
        both, joined = join(ours[0], real[0], ours[1], real[1])
        states = run_upper(upper, both, joined, backend=backend)
        _close(states[joined], _plain(*sides, split_layer)[0])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("split_layer", range(LAYERS))
def test_packed_equals_apart_in_gradients(split_layer, backend):
    def gradients(run):
        sides = [_states(5, 1).requires_grad_(), _states(7, 2).requires_grad_()]
        out = run(*sides)
        weight = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view_as(out)
        return torch.autograd.grad((out * weight).sum(), [*sides, *_layers().parameters()])

    def packed(question, passage):
        row = _pack(question, passage, (2, 3, 1))
        return run_packed(_layers(), *row, split_layer=split_layer, backend=backend)[-1][row.real][None]

    def apart(question, passage):
        ours = [run_lower(_layers()[:split_layer], side, None, backend=backend) for side in (question, passage)]
        both, real = join(ours[0], None, ours[1], None)
        assert real is None
        return run_upper(_layers()[split_layer:], both, real, backend=backend)

    expected = gradients(lambda question, passage: _plain(question, passage, split_layer))
    for run in (packed, apart):
        for got, wanted in zip(gradients(run), expected, strict=True):
            _close(got, wanted)


@given(split_layer=st.integers(0, LAYERS - 1), data=st.data())
def test_reading_some_tokens_gives_their_rows(split_layer, data):
    states, real = _states(11, 3), torch.tensor([[True] * 8 + [False] * 3])
    read = torch.tensor(data.draw(st.lists(st.integers(0, 10), min_size=1, max_size=5)))
    upper = _layers()[split_layer:]
    for backend in BACKENDS:
        whole = run_upper(upper, states, real, backend=backend)
        _close(run_upper(upper, states, real, read=read, backend=backend), whole[:, read])


def test_one_question_shared_by_many_passages_equals_each_pair_alone():
    question, lengths = _states(5, 1), (3, 7, 1)
    passages = torch.zeros(3, 7, WIDTH, dtype=torch.float64)
    real = torch.arange(7) < torch.tensor(lengths)[:, None]
    for row, length in enumerate(lengths):
        passages[row, :length] = _states(length, 10 + row)[0]
    lower, upper = _layers()[:3], _layers()[3:]
    shared = run_lower(lower, question, None, backend="sdpa")
    both, joined = join(shared, None, run_lower(lower, passages, real, backend="sdpa"), real)
    states = run_upper(upper, both, joined, backend="sdpa")
    for row, length in enumerate(lengths):
        _close(states[row, : 5 + length], _plain(question, passages[row : row + 1, :length], 3)[0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_below_the_split_a_passage_does_not_know_its_question(backend):
    passage = _states(7, 2)
    rows = [_pack(question, passage, (1, 2, 1)) for question in (_states(5, 1), _states(5, 9) * 3)]
    first, second = (run_packed(_layers(), *row, split_layer=3, backend=backend) for row in rows)
    of_passage = rows[0].real & (rows[0].segments == 1)
    for layer in range(4):
        assert torch.equal(first[layer][of_passage], second[layer][of_passage])
    for layer in (4, 5):
        assert not torch.allclose(first[layer][of_passage], second[layer][of_passage])


def test_split_at_zero_is_the_joint_model():
    row = _pack(_states(5, 1), _states(7, 2), (0, 0, 0))
    joint = row.hidden
    for layer in _layers():
        joint = layer(joint, backend="reference")
    _close(run_packed(_layers(), *row, split_layer=0, backend="sdpa")[-1], joint)
    assert not torch.allclose(run_packed(_layers(), *row, split_layer=1, backend="sdpa")[-1], joint)


@pytest.mark.parametrize("split_layer", range(LAYERS))
def test_starting_from_stored_states_gives_the_rest(split_layer):
    row = _pack(_states(5, 1), _states(7, 2), (0, 2, 1))
    whole = run_packed(_layers(), *row, split_layer=split_layer, backend="sdpa")
    stored = Packed(whole[split_layer], row.real, row.segments)
    rest = run_packed(_layers(), *stored, split_layer=split_layer, from_layer=split_layer, backend="sdpa")
    assert all(torch.equal(a, b) for a, b in zip(rest, whole[split_layer:], strict=True))
