"""Deltas: what is stored comes back within its bits, and only for the model that it was made for."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from narrows.deformer import DeformerConfig
from narrows.deformer.delta import BITS, apply_delta, compress_delta
from narrows.deformer.shipped import load_shipped, shipped_fields, shipped_names
from narrows.errors import ConversionError, UsageError

WORDS = "deformer.backbone.embeddings.word.weight"


def models(rows: int, columns: int, seed: int = 0):
    torch.manual_seed(seed)
    base = {
        "layer.weight": torch.randn(rows, columns),
        "layer.bias": torch.randn(rows),
        "same.weight": torch.randn(3, 5),
        WORDS: torch.randn(41, columns),
    }
    trained = {name: value + 0.01 * torch.randn_like(value) for name, value in base.items()}
    trained["same.weight"] = base["same.weight"].clone()
    trained["head.weight"] = torch.randn(2, columns)
    return base, trained


@given(rows=st.integers(1, 23), columns=st.integers(1, 37), bits=st.sampled_from(BITS))
def test_compressed_change_comes_back_within_its_bits(rows, columns, bits):
    base, trained = models(rows, columns)
    target = {**base, "head.weight": torch.zeros(2, columns)}
    restored = apply_delta(target, compress_delta(trained, base, bits=bits, embedding_rank=columns))
    change = (trained["layer.weight"] - base["layer.weight"]).abs().max()
    bound = {2: 1.0, 4: 0.6, 8: 0.6}[bits]
    assert (restored["layer.weight"] - trained["layer.weight"]).abs().max() <= bound * change
    assert torch.equal(restored["same.weight"], base["same.weight"])
    torch.testing.assert_close(restored["layer.bias"], trained["layer.bias"], atol=2e-3, rtol=1e-3)
    torch.testing.assert_close(restored["head.weight"], trained["head.weight"], atol=2e-3, rtol=1e-3)


def test_more_bits_are_closer():
    base, trained = models(64, 96)
    target = {**base, "head.weight": torch.zeros(2, 96)}
    errors = []
    for bits in BITS:
        restored = apply_delta(target, compress_delta(trained, base, bits=bits))
        errors.append(float((restored["layer.weight"] - trained["layer.weight"]).norm()))
    change = float((trained["layer.weight"] - base["layer.weight"]).norm())
    assert errors[0] < 0.5 * change
    assert errors[1] < 0.15 * change
    assert errors[2] < 0.02 * change


def test_embeddings_keep_the_directions_that_changed():
    base, trained = models(8, 24)
    trained[WORDS] = base[WORDS] + torch.randn(41, 2) @ torch.randn(2, 24)
    target = {**base, "head.weight": torch.zeros(2, 24)}
    restored = apply_delta(target, compress_delta(trained, base, embedding_rank=2))
    assert (restored[WORDS] - trained[WORDS]).norm() < 0.02 * (trained[WORDS] - base[WORDS]).norm()
    left_out = apply_delta(target, compress_delta(trained, base, embedding_rank=0))
    assert torch.equal(left_out[WORDS], base[WORDS])


def test_wrong_bits_model_and_shape_are_refused():
    base, trained = models(8, 24)
    with pytest.raises(UsageError, match="`bits` must be one of 2, 4, 8, got 3; choose one of them"):
        compress_delta(trained, base, bits=3)
    delta = compress_delta(trained, base)
    with pytest.raises(ConversionError, match=r"got one with head.weight, which it does not have; use the base"):
        apply_delta(base, delta)
    with pytest.raises(ConversionError, match=r"expected head.weight of shape \(2, 5\), got \(2, 24\); use the base"):
        apply_delta({**base, "head.weight": torch.zeros(2, 5)}, delta)


def test_a_shipped_config_holds_what_was_fitted():
    fitted = {
        "no_answer_scale": 0.2,
        "no_answer_bias": -0.4,
        "no_answer_threshold": 0.6,
        "retrieval_weight": 1.5,
        "store_no_answer_scale": 0.1,
        "store_no_answer_bias": -0.8,
        "store_no_answer_threshold": 0.55,
    }
    fields = shipped_fields(DeformerConfig(**fitted))
    assert {name: fields[name] for name in fitted} == fitted
    assert DeformerConfig(**json.loads(json.dumps(fields))).store_no_answer_threshold == 0.55
    assert shipped_fields(DeformerConfig())["store_no_answer_scale"] is None


def test_an_unknown_shipped_model_is_refused():
    with pytest.raises(UsageError, match="got 'writer'; choose one of them"):
        load_shipped("writer")


@pytest.mark.parametrize("name", ["reader", "teacher"])
def test_shipped_models_load_and_fit_the_package(name):
    if name not in shipped_names():
        pytest.fail(f"the package must hold the shipped model {name!r}")
    model, tokenizer = load_shipped(name)
    assert (model.config.split_layer == 0) == (name == "teacher")
    assert tokenizer.is_fast
    assert not model.training
