"""The mechanism beside its reference: options, windows, padding, a text read in parts, and the article's faults."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from narrows.bottleneck import BottleneckAttention, NarrowConvolution, Reach, Rows, SelfAttention, arrange, heads_of
from narrows.bottleneck.reach import attend_rows
from narrows.bottleneck.reference import reference
from narrows.bottleneck.rotary import rotate, rotation
from narrows.errors import UsageError

_WIDTH, _INNER, _BASE = 12, 8, 100.0
_CPU = torch.device("cpu")


def _layer(*, seed: int = 0, kernel: int = 3, causal: bool = True, window: int | None = None, **options) -> nn.Module:
    torch.manual_seed(seed)
    fields = {"heads": 2, "groups": 1, "key_dim": 3, **options}
    residual = fields.pop("inner_residual", True)
    attention = SelfAttention(_INNER, reach=Reach(causal, window), rotary_base=_BASE, **fields)
    convolution = NarrowConvolution(_INNER, kernel=kernel, causal=causal) if kernel else None
    layer = BottleneckAttention(
        _WIDTH, inner=_INNER, attention=attention, convolution=convolution, inner_residual=residual
    ).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.5)
    return layer


def _rows(real: torch.Tensor | None, length: int, past: int = 0, dims: tuple[int, ...] = (3, 4)) -> Rows:
    return arrange(real, length=length, past=past, dims=dims, base=_BASE, device=_CPU)


class _Memory:
    def __init__(self, *, keeps_states: bool):
        self.tail, self.keeps_states, self.parts = None, keeps_states, None

    def update(self, key_states, value_states):
        new = (key_states, value_states)
        self.parts = new if self.parts is None else tuple(map(lambda a, b: torch.cat([a, b], 2), self.parts, new))
        return self.parts


_OPTIONS = st.fixed_dictionaries(
    {
        "causal": st.booleans(),
        "window": st.sampled_from([None, 1, 2, 5]),
        "kernel": st.sampled_from([0, 1, 3]),
        "groups": st.sampled_from([1, 2]),
        "key_dim": st.sampled_from([1, 3, 4]),
        "inner_residual": st.booleans(),
    }
)


@settings(deadline=None, max_examples=60)
@given(options=_OPTIONS, length=st.integers(1, 9), backend=st.sampled_from(["sdpa", "reference"]))
def test_a_layer_gives_what_the_reference_gives_values_and_gradients(options, length, backend) -> None:
    layer, states = _layer(**options), torch.randn(length, _WIDTH, dtype=torch.float64, requires_grad=True)
    ours = layer(states[None], _rows(None, length, dims=(options["key_dim"],)), backend=backend)[0]
    theirs = reference(layer, states)
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    weights = torch.randn_like(theirs)
    inputs = [states, *layer.parameters()]
    for mine, other in zip(
        torch.autograd.grad((ours * weights).sum(), inputs, allow_unused=True),
        torch.autograd.grad((theirs * weights).sum(), inputs, allow_unused=True),
        strict=True,
    ):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


@settings(deadline=None, max_examples=60)
@given(options=_OPTIONS, masks=st.lists(st.lists(st.booleans(), min_size=7, max_size=7), min_size=1, max_size=3))
def test_padding_anywhere_is_a_no_op(options, masks) -> None:
    layer, real = _layer(**options), torch.tensor(masks)
    states = torch.randn(*real.shape, _WIDTH, dtype=torch.float64)
    rows = _rows(real, 7, dims=(options["key_dim"],))
    given_states = states.masked_fill(~real[..., None], float("nan")).requires_grad_()
    ours = rows.scatter(layer(rows.gather(given_states), rows))
    assert not ours[~real].any()
    for row, mask in enumerate(real):
        if mask.any():
            torch.testing.assert_close(ours[row, mask], reference(layer, states[row, mask]), rtol=1e-5, atol=1e-6)
    gradient = torch.autograd.grad(ours.sum(), given_states)[0]
    assert bool(gradient.isfinite().all()) and not gradient[~real].any()


@settings(deadline=None, max_examples=60)
@given(
    options=_OPTIONS.filter(lambda options: options["causal"]),
    cuts=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    padding=st.lists(st.integers(0, 3), min_size=1, max_size=3),
    keeps_states=st.booleans(),
)
def test_a_text_read_in_parts_equals_the_whole(options, cuts, padding, keeps_states) -> None:
    layer, length = _layer(**options), sum(cuts)
    first = cuts[0]
    padding = [min(number, first - 1) for number in padding]
    real = torch.tensor([[place >= number for place in range(length)] for number in padding])
    states = torch.randn(*real.shape, _WIDTH, dtype=torch.float64)
    memory, parts, past = _Memory(keeps_states=keeps_states), [], 0
    for cut in cuts:
        seen = real[:, : past + cut]
        rows = _rows(None if seen.all() else seen, cut, past, dims=(options["key_dim"],))
        part = rows.gather(states[:, past : past + cut])
        parts.append(rows.scatter(layer(part, rows, memory)))
        past += cut
    whole = torch.cat(parts, 1)
    for row, mask in enumerate(real):
        torch.testing.assert_close(whole[row, mask], reference(layer, states[row, mask]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("window", "length"), [(3, 300), (64, 129), (70, 211), (65, 130)])
def test_tiles_of_a_window_equal_the_dense_mask(causal, window, length) -> None:
    torch.manual_seed(0)
    query, key, value = (
        torch.randn(2, heads, length, 4, dtype=torch.float64, requires_grad=True) for heads in (4, 2, 2)
    )
    lengths, reach = torch.tensor([length, length // 2]), Reach(causal, window)
    ours, theirs = (
        attend_rows(query, key, value, reach=reach, lengths=lengths, backend=backend)
        for backend in ("sdpa", "reference")
    )
    real = (torch.arange(length) < lengths[:, None])[:, None, :, None]
    torch.testing.assert_close(ours * real, theirs * real)
    weights = torch.randn_like(ours) * real
    for mine, other in zip(
        torch.autograd.grad((ours * weights).sum(), (query, key, value)),
        torch.autograd.grad((theirs * weights).sum(), (query, key, value)),
        strict=True,
    ):
        torch.testing.assert_close(mine, other)


def test_a_row_is_the_same_alone_and_in_a_batch_and_its_tokens_do_mix() -> None:
    layer, states = _layer(), torch.randn(3, 6, _WIDTH, dtype=torch.float64)
    batch = layer(states, _rows(None, 6))
    for row in range(3):
        torch.testing.assert_close(batch[row : row + 1], layer(states[row : row + 1], _rows(None, 6)))
    changed = states.clone()
    changed[0, 2] += 1
    apart = (layer(changed, _rows(None, 6)) - batch).abs().amax(-1)
    assert not apart[1:].any()
    assert not apart[0, :2].any() and bool((apart[0, 2:] > 1e-6).all())


def test_at_full_width_with_nothing_around_it_is_torch_s_own_attention() -> None:
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(_WIDTH, 3, batch_first=True).double()
    inner = SelfAttention(_WIDTH, heads=3, reach=Reach(causal=False), rotary_base=None)
    layer = BottleneckAttention(_WIDTH, inner=_WIDTH, attention=inner, activation=nn.Identity()).double()
    with torch.no_grad():
        for linear in (layer.down_proj, layer.up_proj):
            linear.weight.copy_(torch.eye(_WIDTH))
            linear.bias.zero_()
        for linear, weight, bias in zip(
            (inner.q_proj, inner.k_proj, inner.v_proj),
            theirs.in_proj_weight.chunk(3),
            theirs.in_proj_bias.chunk(3),
            strict=True,
        ):
            linear.weight.copy_(weight)
            linear.bias.copy_(bias)
        inner.o_proj.load_state_dict(theirs.out_proj.state_dict())
    states = torch.randn(2, 5, _WIDTH, dtype=torch.float64)
    torch.testing.assert_close(layer(states, _rows(None, 5)), theirs(states, states, states, need_weights=False)[0])


@pytest.mark.parametrize("options", [{}, {"key_dim": None}, {"groups": 2}, {"causal": False}, {"window": 3}])
def test_no_option_leaves_the_fast_kernel(options) -> None:
    layer = _layer(**{"key_dim": 2, **options}).float()
    states = torch.randn(2, 300, _WIDTH, requires_grad=True)
    rows = _rows(torch.arange(300) < torch.tensor([[300], [200]]), 300, dims=(layer.key_dim,))
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION]):
        layer(states, rows).sum().backward()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_under_autocast_the_branch_comes_out_in_single(dtype) -> None:
    layer = _layer().float()
    states = torch.randn(1, 5, _WIDTH)
    with torch.autocast("cpu", dtype):
        output = layer(states, _rows(None, 5))
    assert output.dtype == torch.float32
    torch.testing.assert_close(output, layer(states, _rows(None, 5)), rtol=0.1, atol=0.1)
    assert copy.deepcopy(layer).to(dtype)(states.to(dtype), _rows(None, 5)).dtype == dtype


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: heads_of(125),
            "expected a width of attention that is a multiple of 64 or 32, the width of a head, got 12",
        ),
        (
            lambda: heads_of(40, head_dim=16),
            "that is a multiple of 16, the width of a head, got 40; choose another ratio",
        ),
        (lambda: NarrowConvolution(4, kernel=0, causal=True), "`kernel` must be at least 1, and odd where it looks"),
        (lambda: NarrowConvolution(4, kernel=2, causal=False), "odd where it looks to both sides, got 2; 3 is usual"),
        (
            lambda: SelfAttention(8, heads=3, reach=Reach(True)),
            "expected a number of heads that divides the width 8, got 3; change it",
        ),
        (
            lambda: SelfAttention(8, heads=2, groups=3, reach=Reach(True)),
            "expected a number of key-value heads that divides the 2 of the queries, got 3; change it",
        ),
        (
            lambda: SelfAttention(8, heads=2, key_dim=5, reach=Reach(True)),
            "expected queries and keys of 1 to the 4 numbers of a head's values, got 5; change `key_dim`",
        ),
        (
            lambda: BottleneckAttention(4, inner=8, attention=SelfAttention(8, heads=2, reach=Reach(True))),
            "expected an inner width of 1 to the 4 of the states, got 8; choose another ratio",
        ),
        (
            lambda: attend_rows(*[torch.ones(1, 1, 2, 2)] * 3, reach=Reach(True), lengths=None, backend="fast"),
            "`backend` must be one of sdpa, reference, got 'fast'; choose one of them",
        ),
    ],
)
def test_what_is_refused(make, message) -> None:
    with pytest.raises(UsageError, match=message):
        make()


@pytest.mark.parametrize("dim", [1, 4, 7])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_a_rotation_is_that_of_complex_numbers_in_value_gradient_and_order_in_memory(dim, dtype) -> None:
    torch.manual_seed(0)
    tokens = torch.randn(2, 5, 3 * dim, dtype=dtype, requires_grad=True)
    by, pairs = rotation(torch.arange(5), dim=dim, base=_BASE), dim // 2
    states = tokens.unflatten(-1, (3, dim)).transpose(1, 2)
    wide = states if dtype == torch.float64 else states.float()
    first, second, rest = wide.split((pairs, pairs, dim - 2 * pairs), dim=-1)
    expected = torch.cat([first * by.cosines - second * by.sines, second * by.cosines + first * by.sines, rest], -1)
    turned = rotate(states, by)
    assert turned.stride() == states.stride() and turned.dtype == dtype
    torch.testing.assert_close(turned, expected.to(dtype))
    assert torch.equal(rotate(states.detach(), by), turned)
    weights = torch.randn_like(turned)
    ours, theirs = (torch.autograd.grad((each * weights).sum(), tokens)[0] for each in (turned, expected.to(dtype)))
    torch.testing.assert_close(ours, theirs)
    if dtype == torch.float64:
        assert torch.autograd.gradgradcheck(lambda each: rotate(each, by), (states.detach().requires_grad_(),))
