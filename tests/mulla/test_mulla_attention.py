"""Mulla attention: the reference equals the definition key by key, the tiled form equals the reference, and padding,
batch make-up, checkpointing and memory are as promised."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from narrows.core import attend, compact, relative_bias
from narrows.core.windows import aligned_tile_size
from narrows.errors import UsageError
from narrows.mulla import Pyramid, chosen_backend, mulla_attention, plan_attention

HEADS, DIM = 2, 5
BACKENDS = ["reference", "tiled"]

# Largest difference allowed from the reference, in values and gradients of order 1.
BUDGET = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-1}


def _inputs(pyramid: Pyramid, batch: int, length: int, dtype=torch.float64, shared=False) -> list[torch.Tensor]:
    """Query, key, value and bias, all with gradients."""
    generator = torch.Generator().manual_seed(batch * 1009 + length)
    levels = 1 if shared else len(pyramid.lengths(length))
    shapes = [(batch, HEADS, length, DIM)] * 3 + [(levels, HEADS, 2 * pyramid.radius + 1)]
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]


def _run(backend: str, inputs: list[torch.Tensor], lengths: list[int], pyramid: Pyramid, tile_size=None, dropout=0.0):
    query, key, value, bias = inputs
    plan = plan_attention(
        bias, torch.tensor(lengths), pyramid, length=query.shape[2], backend=backend, tile_size=tile_size
    )
    return mulla_attention(query, key, value, plan, dropout=dropout)


def _values_and_gradients(backend, inputs, lengths, pyramid, tile_size=None, dropout=0.0):
    out = _run(backend, inputs, lengths, pyramid, tile_size, dropout)
    weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
    return [out, *torch.autograd.grad((out * weight).sum(), inputs)]


def _compare(got: list[torch.Tensor], expected: list[torch.Tensor], budget: float) -> None:
    for one, other in zip(got, expected, strict=True):
        assert one.dtype == other.dtype
        scale = max(1.0, float(other.detach().abs().max()))
        torch.testing.assert_close(one, other, atol=budget * scale, rtol=0)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("num_levels", [None, 1, 3])
def test_values_are_those_of_the_formula(backend, num_levels):
    pyramid, lengths = Pyramid(2, 3, num_levels), [17, 4]
    query, key, value, bias = inputs = [states.detach() for states in _inputs(pyramid, 2, 17)]
    out = _run(backend, inputs, lengths, pyramid)
    for row, real in enumerate(lengths):
        for head in range(HEADS):
            for position in range(real):
                scores, seen = [], []
                for level, slots in enumerate(pyramid.visible(position, real)):
                    span = 3**level
                    for slot in slots:
                        covered = slice(slot * span, min((slot + 1) * span, real))
                        score = query[row, head, position] @ key[row, head, covered].mean(0)
                        scores.append(float(score + bias[level, head, slot - position // span + 2]))
                        seen.append(value[row, head, covered].mean(0))
                total = sum(math.exp(score) for score in scores)
                expected = sum(math.exp(s) / total * v for s, v in zip(scores, seen, strict=True))
                torch.testing.assert_close(out[row, head, position], expected, atol=1e-12, rtol=0)


@st.composite
def _cases(draw):
    rate, levels = draw(st.integers(2, 9)), draw(st.sampled_from([None, None, 1, 2, 3]))
    pyramid = Pyramid(draw(st.integers(1, 20)), rate, levels)
    length = draw(st.integers(1, 90))
    lengths = draw(st.lists(st.sampled_from([0, 1, length]) | st.integers(0, length), min_size=1, max_size=4))
    return pyramid, length, lengths, draw(st.none() | st.integers(1, 32)), draw(st.booleans())


@given(_cases())
def test_tiled_equals_the_reference_in_values_and_gradients(case):
    pyramid, length, lengths, wanted, shared = case
    spans = [pyramid.span(level) for level in range(len(pyramid.lengths(length)))]
    tile_size = None if wanted is None else aligned_tile_size(wanted, spans)
    for dtype in (torch.float64, torch.float32):
        inputs = _inputs(pyramid, len(lengths), length, dtype, shared)
        expected = _values_and_gradients("reference", inputs, lengths, pyramid)
        got = _values_and_gradients("tiled", inputs, lengths, pyramid, tile_size)
        _compare(got, expected, BUDGET[dtype])


def test_tiled_equals_the_reference_in_bf16():
    pyramid = Pyramid(7, 4)
    inputs = _inputs(pyramid, 3, 61, torch.bfloat16)
    expected = _values_and_gradients("reference", inputs, [61, 30, 61], pyramid)
    _compare(_values_and_gradients("tiled", inputs, [61, 30, 61], pyramid, 16), expected, BUDGET[torch.bfloat16])


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("num_levels", [None, 2])
def test_gradients_are_those_of_finite_differences(num_levels, dropout):
    pyramid = Pyramid(2, 3, num_levels)

    def seeded(*inputs):
        torch.manual_seed(0)
        return _run("tiled", list(inputs), [8, 3, 0], pyramid, 3, dropout)

    assert torch.autograd.gradcheck(seeded, _inputs(pyramid, 3, 8), fast_mode=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_level_is_local_attention(backend):
    pyramid = Pyramid(4, 2, num_levels=1)
    query, key, value, _ = inputs = _inputs(pyramid, 2, 23)
    inputs[3] = torch.zeros_like(inputs[3])
    positions = torch.arange(23)
    near = ((positions[:, None] - positions).abs() <= 4)[None, None]
    expected = attend(query * math.sqrt(DIM), key, value, mask=near, backend="reference")
    torch.testing.assert_close(_run(backend, inputs, [23, 23], pyramid), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_window_as_wide_as_the_text_is_full_attention_with_t5_bias(backend):
    table = torch.randn(1, 32, HEADS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    pyramid = Pyramid(40, 8)
    query, key, value, _ = inputs = _inputs(pyramid, 2, 40)
    inputs[3] = relative_bias(table, radius=40)
    positions = torch.arange(40)
    bias = inputs[3][0][:, positions - positions[:, None] + 40]
    expected = (query @ key.mT + bias).softmax(-1) @ value
    torch.testing.assert_close(_run(backend, inputs, [40, 40], pyramid), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_row_is_the_same_alone_and_in_a_batch(backend):
    pyramid, lengths = Pyramid(3, 2), [1, 40, 12, 0, 12, 33]
    inputs = _inputs(pyramid, 6, 40, torch.float32, shared=True)
    for backwards in (False, True):
        order = list(range(6))[:: -1 if backwards else 1]
        batch = _run(backend, [t[order] for t in inputs[:3]] + inputs[3:], [lengths[i] for i in order], pyramid)
        for place, row in enumerate(order):
            real = lengths[row]
            alone = _run(backend, [t[row : row + 1, :, :real] for t in inputs[:3]] + inputs[3:], [real], pyramid)
            torch.testing.assert_close(batch[place : place + 1, :, :real], alone, atol=1e-6, rtol=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_padding_gives_zeros_and_passes_nothing_on(backend):
    pyramid = Pyramid(2, 3)
    query, key, value, bias = _inputs(pyramid, 3, 20, torch.float32)
    spoiled = [states.detach().clone() for states in (query, key, value)]
    for states in spoiled:
        states[0, :, 11:], states[1] = float("nan"), float("nan")
    inputs = [*(states.requires_grad_() for states in spoiled), bias]
    out, *gradients = _values_and_gradients(backend, inputs, [11, 0, 20], pyramid)
    clean = _values_and_gradients(backend, [query, key, value, bias], [11, 0, 20], pyramid)
    assert not out[0, :, 11:].any() and not out[1].any()
    for got, expected in zip([out, *gradients], clean, strict=True):
        assert torch.equal(got, expected)
    for gradient in gradients[:3]:
        assert not gradient[0, :, 11:].any() and not gradient[1].any()


@pytest.mark.parametrize("backend", BACKENDS)
@given(st.lists(st.booleans(), min_size=1, max_size=30))
def test_padding_anywhere_is_a_no_op_through_compact(backend, real):
    pyramid, mask = Pyramid(2, 3), torch.tensor([real])
    inputs = _inputs(pyramid, 1, len(real), torch.float32, shared=True)
    moved = compact(mask)
    query, key, value = (moved.gather(states.transpose(1, 2)).transpose(1, 2) for states in inputs[:3])
    out = _run(backend, [query, key, value, inputs[3]], moved.lengths.tolist(), pyramid)
    out = moved.scatter(out.transpose(1, 2)).transpose(1, 2)
    dense = [states[:, :, mask[0]] for states in inputs[:3]]
    expected = _run(backend, [*dense, inputs[3]], [int(mask.sum())], pyramid)
    torch.testing.assert_close(out[:, :, mask[0]], expected, atol=1e-6, rtol=0)
    assert not out[:, :, ~mask[0]].any()


def test_dropout_keeps_the_mean_and_follows_the_seed():
    pyramid = Pyramid(3, 2)
    inputs = [states.detach() for states in _inputs(pyramid, 2, 19)]
    exact = _run("tiled", inputs, [19, 7], pyramid, 4)
    torch.manual_seed(0)
    drawn = torch.stack([_run("tiled", inputs, [19, 7], pyramid, 4, 0.3) for _ in range(150)])
    assert float((drawn.mean(0) - exact).abs().max()) < 0.3
    assert not torch.equal(drawn[0], drawn[1])
    torch.manual_seed(0)
    assert torch.equal(_run("tiled", inputs, [19, 7], pyramid, 4, 0.3), drawn[0])


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_changes_nothing(reentrant):
    pyramid, lengths = Pyramid(3, 2), torch.tensor([19, 7])
    query, key, value, bias = inputs = _inputs(pyramid, 2, 19)

    def two_layers(checkpointed: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        plan = plan_attention(bias, lengths, pyramid, length=19, tile_size=4)

        def layer(q, k, v, scores):
            return mulla_attention(q, k, v, plan.with_bias(scores), dropout=0.2)

        states = query
        for _ in range(2):
            arguments = states, key, value, plan.bias
            states = checkpoint(layer, *arguments, use_reentrant=reentrant) if checkpointed else layer(*arguments)
        for leaf in inputs:
            leaf.grad = None
        states.square().sum().backward()
        return [states, *(leaf.grad for leaf in inputs)]

    _compare(two_layers(True), two_layers(False), 1e-12)


def test_a_plan_may_serve_many_layers_and_keeps_nothing():
    pyramid = Pyramid(3, 2)
    query, key, value, bias = _inputs(pyramid, 1, 19)
    plan = plan_attention(bias, torch.tensor([19]), pyramid, length=19, tile_size=4)
    first = mulla_attention(query, key, value, plan)
    mulla_attention(key, value, query, plan)
    assert torch.equal(mulla_attention(query, key, value, plan), first)


class _Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation returned."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.untyped_storage().nbytes() // tensor.element_size())
        return result


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_no_tensor_is_larger_than_a_tile_of_scores_or_the_states(dropout):
    length, radius = 4096, 127
    pyramid = Pyramid(radius, 8)
    inputs = [states.bfloat16().detach().requires_grad_() for states in _inputs(pyramid, 1, length, torch.float32)]
    with _Largest() as seen:
        _values_and_gradients("tiled", inputs, [length], pyramid, dropout=dropout)
    tile_of_scores = HEADS * 128 * sum(2 * radius + max(1, 128 // 8**level) for level in range(3))
    assert seen.elements <= tile_of_scores
    # Of all scores within the windows of one level it is less than an eighth.
    assert tile_of_scores * 8 < length * (2 * radius + 1) * HEADS


def test_auto_says_what_it_chooses():
    assert chosen_backend("auto") == "tiled"
    bias, pyramid = torch.zeros(1, HEADS, 7), Pyramid(3, 2)
    for backend in ("auto", "flex", *BACKENDS):
        plan = plan_attention(bias, torch.tensor([5]), pyramid, length=9, backend=backend)
        assert plan.backend == chosen_backend(backend)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"backend": "flash"},
            "`backend` must be auto or one of reference, tiled, flex, got 'flash'; choose one of them",
        ),
        (
            {"lengths": [9, 10]},
            "`lengths` must lie from 0 to the length of a row, 9, got 10 for row 1; count the real tokens of each row",
        ),
        (
            {"bias": (2, HEADS, 7)},
            "`bias` must be [1 or 3 levels, heads, 7 offsets] for radius 3 and length 9, got [2, 2, 7]; "
            "make it by `relative_bias` with this radius",
        ),
        (
            {"bias": (1, HEADS, 9)},
            "`bias` must be [1 or 3 levels, heads, 7 offsets] for radius 3 and length 9, got [1, 2, 9]; "
            "make it by `relative_bias` with this radius",
        ),
        (
            {"tile_size": 6},
            "`tile_size` must be a multiple or a divisor of each of 1, 2, 4, got 6; the nearest is 8",
        ),
    ],
)
def test_a_plan_that_cannot_be_is_refused_by_name(change, message):
    lengths, bias = torch.tensor(change.pop("lengths", [9, 5])), torch.zeros(change.pop("bias", (1, HEADS, 7)))
    with pytest.raises(UsageError) as caught:
        plan_attention(bias, lengths, Pyramid(3, 2), length=9, **change)
    assert str(caught.value) == message


@pytest.mark.parametrize("dropout", [-0.1, 1.0])
def test_a_dropout_that_is_no_probability_is_refused(dropout):
    with pytest.raises(
        UsageError, match=rf"`dropout` must be a probability from 0 to below 1, got {dropout}; pass 0 outside training"
    ):
        _run("tiled", _inputs(Pyramid(3, 2), 1, 9), [9], Pyramid(3, 2), dropout=dropout)


def test_states_of_another_shape_than_the_plans_are_refused():
    pyramid = Pyramid(3, 2)
    query, key, value, bias = _inputs(pyramid, 2, 9)
    plan = plan_attention(bias, torch.tensor([9, 9]), pyramid, length=9)
    with pytest.raises(UsageError) as caught:
        mulla_attention(query[:1], key[:1], value[:1], plan)
    assert str(caught.value) == (
        "`query` must be [batch, heads, length, dim] with the plan's [2, 2, 9] in front, got [1, 2, 9, 5]; "
        "make the plan anew for each batch"
    )
