"""Masked LM and ELECTRA: the authors' heads written out, hidden keys, shared embeddings, and what a step is made of."""

import math

import pytest
import torch
from torch.nn import functional

from narrows.errors import UsageError
from narrows.funnel.config import FunnelConfig
from narrows.funnel.heads import (
    FunnelForElectraPreTraining,
    FunnelForMaskedLM,
    FunnelForReplacedTokenDetection,
    FunnelForSequenceClassification,
    generator_config,
)

SIZES = {
    "vocab_size": 43,
    "d_model": 16,
    "n_head": 4,
    "d_head": 4,
    "d_inner": 24,
    "block_sizes": [1, 1],
    "num_decoder_layers": 1,
    "initializer_std": 0.3,
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
}
MASK = 42


def build(kind, **changes):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = kind(FunnelConfig(**{**SIZES, **changes}))
    return model.eval()


def hidden_rows(batch=2, length=12):
    """Texts with two hidden tokens each, and the labels."""
    ids = torch.randint(1, 40, (batch, length), generator=torch.Generator().manual_seed(0))
    labels = torch.full_like(ids, -100)
    labels[:, [3, 8]] = ids[:, [3, 8]]
    return ids.masked_fill(labels != -100, MASK), labels


@torch.no_grad()
def test_the_authors_head_is_dense_activation_norm_and_the_embeddings() -> None:
    model = build(FunnelForMaskedLM, lm_head_transform=True)
    ids, labels = hidden_rows()
    states = model.funnel(ids).last_hidden_state
    head = model.lm_transform
    projected = functional.gelu(head.dense(states), approximate="tanh")
    projected = functional.layer_norm(projected, (16,), head.layer_norm.weight, head.layer_norm.bias, 1e-9)
    logits = projected @ model.funnel.embeddings.word_embeddings.weight.T + model.lm_head.bias
    outputs = model(ids, labels=labels)
    torch.testing.assert_close(outputs.logits, logits, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(outputs.loss, functional.cross_entropy(logits.flatten(0, 1), labels.flatten()))


def test_embeddings_of_another_width_bring_the_head_along() -> None:
    model = build(FunnelForMaskedLM, d_embed=8)
    assert model.lm_head.weight is model.funnel.embeddings.word_embeddings.weight
    assert model(hidden_rows()[0]).logits.shape == (2, 12, 43)
    assert build(FunnelForMaskedLM).lm_transform is None
    untied = build(FunnelForMaskedLM, tie_word_embeddings=False)
    assert untied.lm_head.weight is not untied.funnel.embeddings.word_embeddings.weight


def test_in_training_only_predicted_tokens_meet_the_vocabulary() -> None:
    model, (ids, labels) = build(FunnelForMaskedLM), hidden_rows()
    expected = model(ids, labels=labels)
    outputs = model.train()(ids, labels=labels)
    assert outputs.logits is None
    torch.testing.assert_close(outputs.loss, expected.loss)
    assert model(ids).logits is not None


@torch.no_grad()
def test_hidden_keys_are_seen_by_nobody_and_their_states_are_still_computed() -> None:
    model = build(FunnelForMaskedLM, hide_masked_keys=True, mask_token_id=MASK)
    ids, _ = hidden_rows()
    before = model(ids).logits
    # What [MASK] is changes its own states and those that are pooled with them, but nobody else's in the first block.
    first = model.funnel(ids, key_mask=ids != MASK, output_hidden_states=True).hidden_states[0][-1]
    model.funnel.embeddings.word_embeddings.weight[MASK] *= torch.linspace(-1, 1, 16)
    second = model.funnel(ids, key_mask=ids != MASK, output_hidden_states=True).hidden_states[0][-1]
    others = ids != MASK
    torch.testing.assert_close(second[others], first[others])
    assert not torch.allclose(second[~others], first[~others])
    assert not torch.allclose(model(ids).logits[~others], before[~others])


@torch.no_grad()
def test_keys_that_a_caller_hides_are_hidden_beside_the_masks_own() -> None:
    ids, _ = hidden_rows()
    others = torch.ones_like(ids)
    others[:, 5] = 0
    plain, hiding = (build(FunnelForMaskedLM, hide_masked_keys=hides, mask_token_id=MASK) for hides in (False, True))
    torch.testing.assert_close(plain(ids, key_mask=ids != MASK).logits, hiding(ids).logits)
    both = plain(ids, key_mask=(ids != MASK) & (others != 0)).logits
    torch.testing.assert_close(hiding(ids, key_mask=others).logits, both)
    assert not torch.allclose(both, hiding(ids).logits)


@torch.no_grad()
def test_in_the_authors_semantics_hidden_keys_are_masked_like_padding() -> None:
    model = build(FunnelForMaskedLM, hide_masked_keys=True, mask_token_id=MASK, semantics="official")
    plain = build(FunnelForMaskedLM, semantics="official")
    ids, _ = hidden_rows()
    torch.testing.assert_close(model(ids).logits, plain(ids, attention_mask=ids != MASK).logits)


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing_beside_hidden_keys(side) -> None:
    model = build(FunnelForMaskedLM, hide_masked_keys=True, mask_token_id=MASK)
    ids, _ = hidden_rows()
    pads = (3, 2) if side == "left" else (0, 5)
    padded, mask = functional.pad(ids, pads), functional.pad(torch.ones_like(ids), pads)
    logits = model(padded, attention_mask=mask).logits[:, pads[0] : pads[0] + 12]
    torch.testing.assert_close(logits, model(ids).logits, atol=1e-5, rtol=1e-5)
    assert model(torch.full((1, 4), MASK)).logits.isfinite().all()


def test_a_hidden_key_needs_its_id() -> None:
    with pytest.raises(UsageError, match="expected `mask_token_id` with `hide_masked_keys`, got None; set it to"):
        build(FunnelForMaskedLM, hide_masked_keys=True)
    model = build(FunnelForMaskedLM, hide_masked_keys=True, mask_token_id=MASK)
    with pytest.raises(UsageError, match="expected input_ids with `hide_masked_keys`, got inputs_embeds"):
        model(inputs_embeds=torch.zeros(1, 3, 16))


@pytest.mark.parametrize("transform", [False, True])
def test_a_random_model_knows_nothing(transform) -> None:
    sizes = {"vocab_size": 2000, "d_model": 64, "d_head": 16, "d_inner": 256, "initializer_std": 0.02}
    model = build(FunnelForMaskedLM, **sizes, lm_head_transform=transform)
    ids = torch.randint(2000, (4, 64), generator=torch.Generator().manual_seed(0))
    assert model(ids, labels=ids).loss.item() == pytest.approx(math.log(2000), rel=0.2)


@torch.no_grad()
def test_the_sign_of_a_discriminator_is_that_of_the_config() -> None:
    ids, _ = hidden_rows()
    replaced = (ids % 3 == 0).long()
    one, other = (
        build(FunnelForReplacedTokenDetection),
        build(FunnelForReplacedTokenDetection, discriminator_positive="original"),
    )
    other.discriminator_predictions.dense_prediction.weight.neg_()
    torch.testing.assert_close(one(ids).logits, -other(ids).logits)
    torch.testing.assert_close(one(ids, labels=replaced).loss, other(ids, labels=replaced).loss)


def test_the_generator_is_narrower_and_shares_the_embeddings() -> None:
    model = build(FunnelForElectraPreTraining)
    ours, theirs = model.funnel.embeddings, model.generator.funnel.embeddings
    assert theirs.word_embeddings.weight is ours.word_embeddings.weight
    assert theirs.layer_norm.weight is ours.layer_norm.weight
    assert model.generator.lm_head.weight is ours.word_embeddings.weight
    config = model.generator.config
    assert (config.d_model, config.d_inner, config.n_head, config.d_head, config.d_embed) == (4, 6, 1, 4, 16)
    assert config.block_sizes == [1, 1]
    tables = [name for name, _ in model.named_parameters() if "word_embeddings" in name or "lm_head.weight" in name]
    assert tables == ["funnel.embeddings.word_embeddings.weight"]


def test_a_step_is_the_generators_loss_and_fifty_times_the_discriminators() -> None:
    model, (ids, labels) = build(FunnelForElectraPreTraining), hidden_rows()
    mask = torch.ones_like(ids)
    mask[0, 10:] = 0
    outputs = model(ids, attention_mask=mask, labels=labels, generator=torch.Generator().manual_seed(3))
    alone = model.generator(ids, attention_mask=mask, labels=labels)
    torch.testing.assert_close(outputs.generator_loss, alone.loss.detach())
    predicted, original = labels != -100, ids.where(labels == -100, labels)
    assert torch.equal(outputs.input_ids[~predicted], ids[~predicted])
    assert torch.equal(outputs.replaced, outputs.input_ids != original)
    logits = model.discriminator_predictions(model.funnel(outputs.input_ids, attention_mask=mask).last_hidden_state)
    real = mask != 0
    binary = functional.binary_cross_entropy_with_logits(logits[real], outputs.replaced[real].float())
    torch.testing.assert_close(outputs.discriminator_loss, 50 * binary.detach())
    torch.testing.assert_close(outputs.loss.detach(), outputs.generator_loss + outputs.discriminator_loss)
    outputs.loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters() if parameter.requires_grad)


@torch.no_grad()
def test_a_step_of_electra_does_not_depend_on_how_it_is_split() -> None:
    model, (ids, labels) = build(FunnelForElectraPreTraining), hidden_rows()
    # So sure of its tokens that all draws are the same.
    model.generator.lm_head.bias[5] = 1e4
    whole = model(ids, labels=labels).loss
    for tokens in (24, None):
        parts = [
            model(ids[[row]], labels=labels[[row]], num_items_in_batch=4, num_tokens_in_batch=tokens).loss
            for row in (0, 1)
        ]
        torch.testing.assert_close(sum(parts), whole, rtol=1e-5, atol=1e-4)


@torch.no_grad()
def test_draws_come_from_the_generator_that_is_passed_or_from_torchs_own() -> None:
    model, (ids, labels) = build(FunnelForElectraPreTraining), hidden_rows(8, 12)

    def drawn(**arguments):
        return model(ids, labels=labels, **arguments).input_ids

    assert torch.equal(*(drawn(generator=torch.Generator().manual_seed(1)) for _ in range(2)))
    torch.manual_seed(0)
    first, second = drawn(), drawn()
    torch.manual_seed(0)
    assert torch.equal(drawn(), first) and not torch.equal(first, second)


def test_what_was_pretrained_is_read_by_other_heads(tmp_path) -> None:
    model = build(FunnelForElectraPreTraining)
    model.save_pretrained(tmp_path)
    again = FunnelForElectraPreTraining.from_pretrained(tmp_path)
    assert again.generator.lm_head.weight is again.funnel.embeddings.word_embeddings.weight
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    ids = hidden_rows()[0]
    judge = FunnelForReplacedTokenDetection.from_pretrained(tmp_path).eval()
    expected = model.discriminator_predictions(model.funnel(ids).last_hidden_state)
    torch.testing.assert_close(judge(ids).logits, expected)
    reader, loading = FunnelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not loading["unexpected_keys"]
    assert {name.split(".")[0] for name in loading["missing_keys"]} == {"classifier"}
    assert torch.equal(reader.funnel.embeddings.word_embeddings.weight, model.funnel.embeddings.word_embeddings.weight)


def test_electra_used_wrongly() -> None:
    with pytest.raises(UsageError, match="expected `labels` with the ids of the hidden tokens, got none"):
        build(FunnelForElectraPreTraining)(hidden_rows()[0])
    with pytest.raises(UsageError, match="`generator_ratio` must leave at least one head and an even width, got 0.1"):
        generator_config(FunnelConfig(**SIZES, generator_ratio=0.1))
    with pytest.raises(UsageError, match="relative positions and tied embeddings, .* got position_type='absolute'"):
        build(FunnelForElectraPreTraining, position_type="absolute")
    with pytest.raises(UsageError, match="tied embeddings, .* got tie_word_embeddings=False"):
        build(FunnelForElectraPreTraining, tie_word_embeddings=False)
    with pytest.raises(UsageError, match="`discriminator_positive` must be one of replaced, original, got 'fake'"):
        FunnelConfig(discriminator_positive="fake")
