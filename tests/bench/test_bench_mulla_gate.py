"""The gate of Mulla holds, and each check of it sees the mistake that it is there for."""

import pytest
import torch

from narrows.bench import mulla_gate
from narrows.mulla import levels, tiled
from narrows.mulla.layers import MullaT5Block


@pytest.mark.parametrize("check", mulla_gate.MULLA)
def test_the_gate_holds(check):
    assert mulla_gate.MULLA[check]() is None


def test_the_gate_sees_wrong_gradients(monkeypatch):
    unpool = tiled.unpool_
    monkeypatch.setattr(tiled, "unpool_", lambda gradients, **options: unpool(gradients, **options).mul_(1.01))
    assert "values or gradients (dynamic) differ by" in mulla_gate.tiled_equals_reference()


def test_the_gate_sees_pooled_levels_that_hold_something_else(monkeypatch):
    pool = tiled.pool
    monkeypatch.setattr(
        tiled, "pool", lambda states, **options: [level.roll(1, 2) for level in pool(states, **options)]
    )
    assert "values or gradients" in mulla_gate.tiled_equals_reference()
    # Of a single level too: it is no longer the text.
    assert "states differ by" in mulla_gate.one_level_equals_longt5_local()
    assert "states differ by" in mulla_gate.wide_window_equals_t5()
    assert "tokens differ" in mulla_gate.generation_equals_longt5_local()


def test_the_gate_sees_a_chunk_that_is_left_out(monkeypatch):
    whole = MullaT5Block._feed_forward
    monkeypatch.setattr(
        MullaT5Block,
        "_feed_forward",
        lambda self, states: states if states.shape[0] == 7 else whole(self, states),
    )
    assert "values or gradients differ by" in mulla_gate.chunks_equal_whole()


def test_the_gate_sees_padding_that_is_read(monkeypatch):
    monkeypatch.setattr(
        "narrows.mulla.encoder._moved",
        lambda mask, inputs: (None, torch.full(inputs.shape[:1], inputs.shape[1])),
    )
    assert "states differ by" in mulla_gate.padding_is_a_no_op()


def test_the_gate_sees_a_last_level_that_is_missing(monkeypatch):
    lengths = levels.Pyramid.lengths
    monkeypatch.setattr(
        levels.Pyramid, "lengths", lambda self, length: lengths(self, length)[: -1 if length > self.radius else None]
    )
    assert "pairs of a query and a token have no weight at 12 tokens" in mulla_gate.dynamic_sees_the_whole_text()


def test_a_state_that_is_no_number_differs():
    found = [torch.zeros(1), torch.full((1,), float("nan")), torch.zeros(1)]
    assert "states differ by nan" in mulla_gate._apart("states", found, [torch.zeros(1)] * 3)
