import pytest

from narrows.bench import gate


@pytest.mark.parametrize("check", gate.DEFORMER)
def test_the_gate_holds(check):
    assert gate.DEFORMER[check]() is None


def test_the_gate_sees_states_in_the_wrong_places(monkeypatch):
    encode = gate.Engine.encode_passages
    monkeypatch.setattr(
        gate.Engine, "encode_passages", lambda self, ids: [state.roll(1, 0) for state in encode(self, ids)]
    )
    assert "logits differ by" in gate.packed_equals_apart()


def test_the_gate_sees_a_codec_that_loses_too_much(monkeypatch):
    monkeypatch.setattr(gate.Int8Codec, "max_error", staticmethod(lambda largest: largest / 1000))
    assert "over the bound" in gate.int8_within_its_bound()


def test_the_gate_sees_logits_that_are_no_numbers(monkeypatch):
    read = gate.stored_reading

    def spoiled(*arguments):
        return lambda: [one._replace(start=one.start * float("nan")) for one in read(*arguments)()]

    monkeypatch.setattr(gate, "stored_reading", spoiled)
    assert "logits differ by nan" in gate.stored_equals_computed()
