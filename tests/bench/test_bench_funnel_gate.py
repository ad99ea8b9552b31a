"""The gate of Funnel holds, and each check of it sees the mistake that it is there for."""

import pytest
import torch

from narrows.bench import funnel_gate
from narrows.funnel import attention, encoder, layers, pooling
from narrows.funnel.layers import FunnelFeedForward


@pytest.mark.parametrize("check", funnel_gate.FUNNEL)
def test_the_gate_holds(check):
    assert funnel_gate.FUNNEL[check]() is None


@pytest.mark.parametrize("backend", ["tiled", "sdpa"])
def test_the_gate_sees_a_fast_form_that_is_off(backend, monkeypatch):
    form = attention._BACKENDS[backend]
    monkeypatch.setitem(attention._BACKENDS, backend, lambda *states, **options: form(*states, **options) * 1.001)
    assert f"values or gradients ({backend}) differ by" in funnel_gate.fast_equals_reference()


def test_the_gate_sees_factors_of_other_positions(monkeypatch):
    tables = layers.factor_tables
    monkeypatch.setattr(
        layers, "factor_tables", lambda *places, **options: tables(*places, **options)._replace(key=torch.zeros(1, 24))
    )
    assert "states differ by" in funnel_gate.factorized_equals_shifted()


def test_the_gate_sees_pooling_by_another_rule(monkeypatch):
    monkeypatch.setattr(pooling.Pooling, "_end", lambda self, length: length)
    assert "states differ by" in funnel_gate.hf_equals_transformers()


def test_the_gate_sees_padding_that_is_read(monkeypatch):
    see = encoder.see
    monkeypatch.setattr(encoder, "see", lambda *slots, **options: see(*slots, **options)._replace(mask=None))
    assert "states differ by" in funnel_gate.padding_is_a_no_op()


def test_the_gate_sees_a_checkpoint_that_draws_anew(monkeypatch):
    from torch.utils import checkpoint

    whole = checkpoint.checkpoint
    monkeypatch.setattr(
        "torch.utils.checkpoint.checkpoint",
        lambda *states, **options: whole(*states, **{**options, "preserve_rng_state": False}),
    )
    monkeypatch.setattr(
        "transformers.modeling_utils.checkpoint",
        lambda *states, **options: whole(*states, **{**options, "preserve_rng_state": False}),
    )
    assert "values or gradients differ by" in funnel_gate.checkpointing_changes_nothing()


def test_the_gate_sees_a_loss_of_other_states(monkeypatch):
    forward = FunnelFeedForward.forward
    monkeypatch.setattr(FunnelFeedForward, "forward", lambda self, states: forward(self, states) * 1.01)
    assert "losses differ by" in funnel_gate.masked_lm_equals_transformers()


def test_a_state_that_is_no_number_differs():
    found = [torch.zeros(1), torch.full((1,), float("nan")), torch.zeros(1)]
    assert "states differ by nan" in funnel_gate._apart("states", found, [torch.zeros(1)] * 3)
