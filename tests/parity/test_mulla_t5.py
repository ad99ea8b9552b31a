"""With one level a Mulla is LongT5-local, with a window as wide as the text it is T5: encoder, logits, generation."""

import pytest
import torch
from torch import Tensor
from transformers import (
    LongT5Config,
    LongT5EncoderModel,
    LongT5ForConditionalGeneration,
    MT5Config,
    MT5ForConditionalGeneration,
    T5Config,
    T5EncoderModel,
    T5ForConditionalGeneration,
)

from narrows.mulla import MullaT5EncoderModel, MullaT5ForConditionalGeneration

SIZES = {
    "vocab_size": 61,
    "d_model": 24,
    "d_kv": 6,
    "d_ff": 40,
    "num_layers": 3,
    "num_heads": 4,
    "relative_attention_num_buckets": 12,
    "relative_attention_max_distance": 20,
    "decoder_start_token_id": 0,
}
BASE = {"vocab_size": 32128, "d_model": 768, "d_kv": 64, "d_ff": 2048, "num_layers": 2, "num_heads": 12}


def source(kind, config, folder):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = kind(config).eval()
        # Fresh norms are 1 and position scores small, which would hide swapped ones.
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                torch.nn.init.normal_(parameter, mean=0.7, std=0.2)
            elif "relative_attention_bias" in name:
                torch.nn.init.normal_(parameter, std=0.8)
    model.save_pretrained(folder)
    return model


def batch(length: int, vocabulary: int = 61) -> dict[str, Tensor]:
    """Rows without padding, with padding on the right and on the left."""
    generator = torch.Generator().manual_seed(1)
    mask = torch.ones(4, length, dtype=torch.long)
    mask[1, length * 2 // 3 :] = 0
    mask[2, : length // 3] = 0
    mask[3, 1:] = 0
    return {"input_ids": torch.randint(2, vocabulary, (4, length), generator=generator) * mask, "attention_mask": mask}


def largest_difference(ours, theirs, inputs: dict[str, Tensor]) -> float:
    real = inputs["attention_mask"].bool()
    with torch.no_grad():
        expected = theirs(**inputs).last_hidden_state[real]
        return float((ours(**inputs).last_hidden_state[real] - expected).abs().max())


@pytest.mark.parametrize("length", [7, 23, 64])
@pytest.mark.parametrize("feed_forward", ["gated-gelu", "relu"])
def test_one_level_is_longt5_local(length, feed_forward, tmp_path):
    config = LongT5Config(**SIZES, local_radius=5, feed_forward_proj=feed_forward)
    theirs = source(LongT5EncoderModel, config, tmp_path)
    ours = MullaT5EncoderModel.from_longt5(tmp_path, variant="fixed", num_levels=1)
    assert ours.config.local_radius == 5
    assert largest_difference(ours, theirs, batch(length)) < 1e-5


@pytest.mark.parametrize("backend", ["reference", "tiled"])
def test_a_window_as_wide_as_the_text_is_t5(backend, tmp_path):
    theirs = source(T5EncoderModel, T5Config(**SIZES), tmp_path)
    options = {"variant": "fixed", "num_levels": 1, "mulla_backend": backend}
    ours = MullaT5EncoderModel.from_longt5(tmp_path, local_radius=40, **options)
    assert largest_difference(ours, theirs, batch(41)) < 1e-5
    # And it is the window that does it.
    narrow = MullaT5EncoderModel.from_longt5(tmp_path, local_radius=5, **options)
    assert largest_difference(narrow, theirs, batch(41)) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("length", [300, 1024])
def test_base_size_is_longt5_local(length, tmp_path):
    config = LongT5Config(**BASE, feed_forward_proj="gated-gelu")
    theirs = LongT5EncoderModel(config).eval()
    theirs.save_pretrained(tmp_path)
    ours = MullaT5EncoderModel.from_longt5(tmp_path, variant="fixed", num_levels=1)
    inputs = batch(length, 32128)
    real = inputs["attention_mask"].bool()
    with torch.no_grad():
        expected = theirs(**inputs).last_hidden_state[real]
    assert largest_difference(ours, theirs, inputs) < 1e-5 * max(1.0, float(expected.abs().max()))


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """An untied LongT5-local whose generation is not the same token over and over, and the Mulla of it."""
    folder = tmp_path_factory.mktemp("longt5")
    theirs = source(LongT5ForConditionalGeneration, LongT5Config(**SIZES, local_radius=5), folder)
    ours = MullaT5ForConditionalGeneration.from_longt5(folder, variant="fixed", num_levels=1)
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(2)
        head = torch.randn(61, 24)
        for model in (theirs, ours):
            model.lm_head.weight = torch.nn.Parameter(head.clone())
    return ours, theirs


def test_logits_and_loss_are_those_of_longt5(pair):
    inputs = batch(23)
    labels = torch.randint(2, 61, (4, 9), generator=torch.Generator().manual_seed(3))
    labels[1, 5:] = -100
    with torch.no_grad():
        ours, theirs = (model(**inputs, labels=labels) for model in pair)
    torch.testing.assert_close(ours.logits, theirs.logits, atol=1e-5, rtol=0)
    torch.testing.assert_close(ours.loss, theirs.loss, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "options",
    [{}, {"num_beams": 3}, {"do_sample": True, "top_k": 0}, {"num_beams": 2, "do_sample": True}, {"use_cache": False}],
    ids=str,
)
def test_generation_is_that_of_longt5_token_by_token(pair, options):
    written = []
    for model in pair:
        torch.manual_seed(4)
        written.append(model.generate(**batch(23), max_new_tokens=12, min_new_tokens=6, **options))
    assert torch.equal(*written)
    assert len(set(written[0].flatten().tolist())) > 8


def test_a_static_cache_writes_the_same(pair):
    ours, theirs = pair
    written = ours.generate(**batch(23), max_new_tokens=12, cache_implementation="static")
    assert torch.equal(written, theirs.generate(**batch(23), max_new_tokens=12))


def test_gradients_are_those_of_longt5(pair):
    inputs = batch(23)
    labels = torch.randint(2, 61, (4, 9), generator=torch.Generator().manual_seed(3))
    gradients = []
    for model in pair:
        model.zero_grad()
        model(**inputs, labels=labels).loss.backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
        model.zero_grad()
    ours, theirs = gradients
    pairs = {
        "shared.weight": "shared.weight",
        "encoder.relative_attention_bias.0.weight": (
            "encoder.block.0.layer.0.LocalSelfAttention.relative_attention_bias.weight"
        ),
        "encoder.block.0.layer.0.SelfAttention.k.weight": "encoder.block.0.layer.0.LocalSelfAttention.k.weight",
        "encoder.block.2.layer.1.DenseReluDense.wo.weight": "encoder.block.2.layer.1.DenseReluDense.wo.weight",
    }
    for one, other in pairs.items():
        scale = float(theirs[other].abs().max())
        torch.testing.assert_close(ours[one], theirs[other], atol=1e-5 * max(scale, 1.0), rtol=0)
        assert scale > 1e-4


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (T5ForConditionalGeneration, T5Config(**SIZES)),
        (T5ForConditionalGeneration, T5Config(**SIZES, feed_forward_proj="gated-gelu", tie_word_embeddings=False)),
        (MT5ForConditionalGeneration, MT5Config(**SIZES)),
    ],
    ids=["t5", "t5-v1.1", "mt5"],
)
def test_a_wide_window_gives_the_logits_of_t5(kind, config, tmp_path):
    theirs = source(kind, config, tmp_path)
    ours = MullaT5ForConditionalGeneration.from_longt5(tmp_path, variant="fixed", num_levels=1)
    assert ours.config.local_radius == 127
    with torch.no_grad():
        expected, got = (m(**batch(23), decoder_input_ids=batch(9)["input_ids"]).logits for m in (theirs, ours))
    torch.testing.assert_close(got, expected, atol=1e-5 * max(1.0, float(expected.abs().max())), rtol=0)
