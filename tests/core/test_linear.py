"""`project` gives what the layer gives, and leaves everything but plain inference to the layer."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from narrows.core import linear
from narrows.core.linear import project

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")

# A number no layer gives: rows that come out as it were multiplied by the other library.
_MARK = 12345.0


@pytest.fixture
def on_amd(monkeypatch):
    """As on an AMD processor, whatever is under the test."""
    monkeypatch.setattr(linear, "_gains_in_fp32", torch.backends.mkldnn.is_available)


@pytest.fixture
def marked(on_amd, monkeypatch):
    """The layer's own forward gives marks, so that it shows which way was taken."""
    monkeypatch.setattr(nn.Linear, "forward", lambda layer, states: torch.full((*states.shape[:-1], 3), _MARK))


def by_layer(layer: nn.Module, states: torch.Tensor) -> bool:
    return bool((project(layer, states) == _MARK).all())


@settings(deadline=None, max_examples=40)
@given(
    shape=st.lists(st.integers(0, 9), min_size=1, max_size=3),
    width=st.integers(1, 70),
    out=st.integers(1, 70),
    bias=st.booleans(),
    turned=st.booleans(),
    activation=st.sampled_from([None, nn.GELU(), nn.GELU("tanh"), nn.ReLU()]),
)
def test_equals_the_layer(shape, width, out, bias, turned, activation) -> None:
    generator = torch.Generator().manual_seed(width * out)
    layer = nn.Linear(width, out, bias=bias)
    states = torch.randn(*shape, width, generator=generator)
    if turned and len(shape) > 1:
        states = states.transpose(0, 1)
    with pytest.MonkeyPatch.context() as patch, torch.inference_mode():
        patch.setattr(linear, "_gains_in_fp32", torch.backends.mkldnn.is_available)
        patch.setattr(linear, "_FEWEST_ROWS", 1)
        want = layer(states) if activation is None else activation(layer(states))
        torch.testing.assert_close(project(layer, states, activation), want, atol=1e-5, rtol=1e-5)


@needs_onednn
@pytest.mark.skipif(not linear._gains_in_bf16(), reason="this processor has no bf16")
@pytest.mark.parametrize("activation", [None, nn.GELU(), nn.GELU("tanh"), nn.ReLU()])
def test_is_as_near_in_bf16_as_the_layer(activation) -> None:
    layer, states = nn.Linear(384, 96).bfloat16(), torch.randn(200, 384, dtype=torch.bfloat16)
    exact = nn.Linear(384, 96)
    exact.load_state_dict(layer.state_dict())
    with torch.no_grad():
        want = exact(states.float()) if activation is None else activation(exact(states.float()))
        found = project(layer, states, activation)
        own = layer(states) if activation is None else activation(layer(states))
    assert found.dtype == torch.bfloat16
    assert (found - want).abs().max() <= (own - want).abs().max() + 1e-3


@pytest.mark.parametrize("size", [(2048, 384), (300, 3072), (64, 768), (63, 768)])
def test_equals_the_layer_at_the_sizes_of_models(on_amd, size) -> None:
    states, layer = torch.randn(*size), nn.Linear(size[1], 96)
    with torch.no_grad():
        torch.testing.assert_close(project(layer, states), layer(states), atol=1e-5, rtol=1e-5)


@needs_onednn
def test_the_other_way_is_taken_in_plain_inference_only(marked) -> None:
    layer, states = nn.Linear(5, 3), torch.randn(70, 5)
    assert by_layer(layer, states), "gradients are wanted"
    with torch.no_grad():
        assert not by_layer(layer, states)
        assert by_layer(layer, states[:63]), "too few rows"
        with torch.backends.mkldnn.flags(enabled=False):
            assert by_layer(layer, states), "the user said so"
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert by_layer(layer, states), "autocast changes the dtype"
        assert by_layer(copy.deepcopy(layer).double(), states.double())
        assert by_layer(copy.deepcopy(layer).to("meta"), states.to("meta"))
        assert by_layer(type("Other", (nn.Linear,), {})(5, 3), states), "a class of its own"
    frozen = nn.Linear(5, 3).requires_grad_(False)
    assert not by_layer(frozen, states), "no gradient flows, so none is lost"
    assert by_layer(frozen, states.clone().requires_grad_()), "one flows to the states"
    with torch.no_grad():
        assert by_layer(nn.Linear(5, 3), states.bfloat16()), "states and weights of two dtypes"
        assert by_layer(nn.Linear(5, 3).half(), states.half())


@needs_onednn
def test_hooks_see_the_call(on_amd) -> None:
    layer, states, seen = nn.Linear(5, 3), torch.randn(70, 5), []
    with torch.no_grad():
        handle = layer.register_forward_hook(lambda *_: seen.append("own"))
        project(layer, states)
        handle.remove()
        handle = nn.modules.module.register_module_forward_hook(lambda *_: seen.append("of all"))
        project(layer, states)
        handle.remove()

        def replaced(input: torch.Tensor) -> torch.Tensor:
            seen.append("replaced")
            return input

        layer.forward = replaced  # as accelerate does to move weights
        project(layer, states)

        activation = nn.GELU()
        activation.register_forward_hook(lambda *_: seen.append("of the activation"))
        project(nn.Linear(5, 3), states, activation)
    assert seen == ["own", "of all", "replaced", "of the activation"]


def test_gradients_are_the_layers(on_amd) -> None:
    layer, states = nn.Linear(5, 3), torch.randn(70, 5, requires_grad=True)
    project(layer, states).square().sum().backward()
    assert states.grad is not None and layer.weight.grad is not None and layer.bias.grad is not None


def test_it_compiles_and_exports_as_the_layer_does(on_amd) -> None:
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(5, 3)

        def forward(self, states):
            return project(self.layer, states)

    model, states = Model().eval(), torch.randn(70, 5)
    with torch.no_grad():
        exported = torch.export.export(model, (states,), dynamic_shapes=({0: torch.export.Dim("rows", min=2)},))
        called = {str(node.target) for node in exported.graph.nodes if node.op == "call_function"}
        assert called == {"aten.linear.default"}
        torch.testing.assert_close(exported.module()(states[:9]), model(states[:9]))
        traced = torch.jit.trace(model, (states,))
        assert "mkldnn" not in str(traced.inlined_graph)  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize(("told", "expected"), [("vendor_id\t: AuthenticAMD\n", True), ("GenuineIntel", False)])
def test_the_maker_is_read_from_the_system(told, expected, monkeypatch, tmp_path) -> None:
    file = tmp_path / "cpuinfo"
    file.write_text(told)
    monkeypatch.setattr(linear, "Path", lambda _: file)
    assert linear._gains_in_fp32.__wrapped__() == (expected and torch.backends.mkldnn.is_available())
    file.unlink()
    monkeypatch.setattr(linear.platform, "processor", lambda: told)
    assert linear._gains_in_fp32.__wrapped__() == (expected and torch.backends.mkldnn.is_available())
