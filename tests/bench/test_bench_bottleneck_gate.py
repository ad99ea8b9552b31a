"""The gate of bottleneck attention holds, and each check of it sees the mistake that it is there for."""

import pytest
import torch

from narrows.bench import bottleneck_gate
from narrows.bottleneck import attention, cache, model, reach
from narrows.bottleneck.attention import NarrowConvolution
from narrows.bottleneck.rows import Rows


@pytest.mark.parametrize("check", bottleneck_gate.BOTTLENECK)
def test_the_gate_holds(check):
    assert bottleneck_gate.BOTTLENECK[check]() is None


def test_the_gate_sees_rotations_that_are_off(monkeypatch):
    rotate = attention.rotate
    monkeypatch.setattr(attention, "rotate", lambda states, by: rotate(states, by._replace(sines=by.sines * 1.001)))
    assert "values or gradients (narrows r=2/layer" in bottleneck_gate.layer_equals_reference()


def test_the_gate_sees_gradients_that_are_off(monkeypatch):
    rotate = attention.rotate
    monkeypatch.setattr(attention, "rotate", lambda states, by: rotate(2 * states - states.detach(), by))
    assert "values or gradients (narrows r=2/layer" in bottleneck_gate.layer_equals_reference()


def test_the_gate_sees_a_full_layer_that_scales_otherwise(monkeypatch):
    scaled = attention.SelfAttention._scaled
    monkeypatch.setattr(attention.SelfAttention, "_scaled", lambda self, query: 1.001 * scaled(self, query))
    assert "states differ by" in bottleneck_gate.full_equals_torch()


def test_the_gate_sees_padding_that_is_read(monkeypatch):
    monkeypatch.setattr(Rows, "blank", lambda self, states: states)
    monkeypatch.setattr(
        model, "arrange", lambda real, **fields: arranged(real, **fields)._replace(lengths=None, order=None)
    )
    from narrows.bottleneck.rows import arrange as arranged

    assert "states differ by" in bottleneck_gate.padding_is_a_no_op()


def test_the_gate_sees_a_convolution_that_forgets_what_was_before(monkeypatch):
    forward = NarrowConvolution.forward
    monkeypatch.setattr(NarrowConvolution, "forward", lambda self, states, before=None: forward(self, states))
    assert "logits (keys_values) differ by" in bottleneck_gate.cached_equals_whole()


def test_the_gate_sees_room_that_is_written_over(monkeypatch):
    added = cache._added

    def over_the_first(room, held, new):
        room[:, :, :1] = new
        return added(room, held, new)

    monkeypatch.setattr(cache, "_added", over_the_first)
    assert "logits (keys_values) differ by" in bottleneck_gate.cached_equals_whole()


def test_the_gate_sees_a_look_ahead(monkeypatch):
    attend = reach.attend_rows
    monkeypatch.setattr(
        attention,
        "attend_rows",
        lambda *states, reach, **options: attend(*states, reach=reach._replace(causal=False), **options),
    )
    assert "states differ by" in bottleneck_gate.the_future_is_not_seen()


def test_a_state_that_is_no_number_differs():
    found = [torch.zeros(1), torch.full((1,), float("nan")), torch.zeros(1)]
    assert "states differ by nan" in bottleneck_gate._apart("states", found, [torch.zeros(1)] * 3)
