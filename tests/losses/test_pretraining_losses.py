"""Losses of pretraining: the plain formulas, transformers' own losses, and steps that do not depend on their split."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertConfig, BertForMaskedLM, ElectraConfig, ElectraForPreTraining

from narrows.errors import UsageError
from narrows.losses import masked_lm_loss, replaced_token_loss, sample_replacements


def _text(seed: int = 0, *, batch: int = 3, length: int = 9, vocabulary: int = 20):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, vocabulary, (batch, length), generator=generator)
    labels = torch.where(torch.rand(batch, length, generator=generator) < 0.3, ids, -100)
    return ids, labels


@given(seed=st.integers(0, 99), items=st.one_of(st.none(), st.integers(1, 50)))
def test_masked_lm_is_the_plain_formula_in_values_and_gradients(seed, items) -> None:
    ids, labels = _text(seed)
    torch.manual_seed(seed)
    states = torch.randn(3, 9, 6, dtype=torch.float64, requires_grad=True)
    head = torch.nn.Linear(6, 20).double()
    loss = masked_lm_loss(states, labels, head, num_items_in_batch=items)
    terms = [
        head(states[row, place]).logsumexp(0) - head(states[row, place])[labels[row, place]]
        for row, place in (labels != -100).nonzero().tolist()
    ]
    plain = sum(terms, states.sum() * 0) / (items or max(1, len(terms)))
    torch.testing.assert_close(loss, plain)
    for one, other in zip(
        torch.autograd.grad(loss, [states, head.weight]), torch.autograd.grad(plain, [states, head.weight]), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_masked_lm_is_transformers_loss_and_computes_no_other_logits() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertForMaskedLM(BertConfig(vocab_size=20, initializer_range=0.5, **sizes)).eval()
    ids, labels = _text()
    theirs = model(input_ids=ids, labels=labels).loss
    shapes = []

    def head(states):
        shapes.append(tuple(states.shape))
        return model.cls(states)

    ours = masked_lm_loss(model.bert(input_ids=ids).last_hidden_state, labels, head)
    torch.testing.assert_close(ours, theirs)
    assert shapes == [(int((labels != -100).sum()), 16)]


def test_a_step_does_not_depend_on_its_split() -> None:
    _, labels = _text(batch=6)
    states, logits = torch.randn(6, 9, 20), torch.randn(6, 9)
    count, real = (labels != -100).sum(), torch.tensor(6 * 9)
    whole = masked_lm_loss(states, labels, torch.nn.Identity())
    parts = [
        masked_lm_loss(states[rows], labels[rows], torch.nn.Identity(), num_items_in_batch=count)
        for rows in ([0], [1, 2], [3, 4, 5])
    ]
    torch.testing.assert_close(sum(parts), whole)
    whole = replaced_token_loss(logits, labels < 0, positive="original")
    parts = [
        replaced_token_loss(logits[rows], labels[rows] < 0, positive="original", num_items_in_batch=real)
        for rows in ([0], [1, 2], [3, 4, 5])
    ]
    torch.testing.assert_close(sum(parts), whole)


def test_without_anything_to_predict_the_loss_is_0_and_has_a_gradient() -> None:
    states = torch.randn(2, 3, 4, requires_grad=True)
    loss = masked_lm_loss(states, torch.full((2, 3), -100), torch.nn.Identity())
    loss.backward()
    assert loss.item() == 0 and states.grad is not None and not states.grad.any()
    logits = torch.randn(2, 3, requires_grad=True)
    nothing = torch.zeros(2, 3, dtype=torch.long)
    loss = replaced_token_loss(logits, nothing > 0, positive="replaced", attention_mask=nothing)
    loss.backward()
    assert loss.item() == 0 and not logits.grad.any()


def test_half_precision_is_summed_in_float32() -> None:
    states = torch.zeros(1, 4000, 30, dtype=torch.bfloat16)
    loss = masked_lm_loss(states, torch.zeros(1, 4000, dtype=torch.long), torch.nn.Identity())
    assert loss.dtype == torch.float32 and abs(float(loss) - math.log(30)) < 1e-5
    loss = replaced_token_loss(states[..., 0], states[..., 0] > 1, positive="original")
    assert loss.dtype == torch.float32 and abs(float(loss) - 50 * math.log(2)) < 1e-4


def test_replaced_tokens_is_the_plain_formula() -> None:
    logits, replaced = torch.tensor([[2.0, -1.0, 3.0]]), torch.tensor([[True, False, False]])
    mask = torch.tensor([[1, 1, 0]])
    # −log of the probability of what is right: σ(2), 1 − σ(−1); where a high logit says original, 1 − σ(2), σ(−1).
    replaced_says = (math.log1p(math.exp(-2)) + math.log1p(math.exp(-1))) / 2
    original_says = (math.log1p(math.exp(2)) + math.log1p(math.exp(1))) / 2
    for positive, expected in (("replaced", replaced_says), ("original", original_says)):
        loss = replaced_token_loss(logits, replaced, positive=positive, attention_mask=mask)
        assert abs(float(loss) - 50 * expected) < 1e-4
        turned = {"replaced": "original", "original": "replaced"}[positive]
        torch.testing.assert_close(replaced_token_loss(-logits, replaced, positive=turned, attention_mask=mask), loss)
    assert float(replaced_token_loss(logits, replaced, positive="replaced", weight=0.0)) == 0
    with pytest.raises(UsageError, match="expected `positive` to be 'replaced' or 'original', got 'real'; choose"):
        replaced_token_loss(logits, replaced, positive="real")


def test_replaced_tokens_is_transformers_loss() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    model = ElectraForPreTraining(
        ElectraConfig(vocab_size=20, embedding_size=16, initializer_range=0.5, **sizes)
    ).eval()
    ids, labels = _text()
    mask = torch.ones_like(ids)
    mask[0, 5:] = mask[2, 2:] = 0
    theirs = model(input_ids=ids, attention_mask=mask, labels=(labels >= 0).long())
    ours = replaced_token_loss(theirs.logits, labels >= 0, positive="replaced", attention_mask=mask, weight=1.0)
    torch.testing.assert_close(ours, theirs.loss)


def test_samples_follow_the_generators_distribution() -> None:
    logits = torch.tensor([1.0, 0.0, -1.0, 2.0, -100.0])
    ids = torch.full((1, 40_000), 4)
    drawn = sample_replacements(ids, ids, logits.expand(40_000, 5), generator=torch.Generator().manual_seed(0))
    shares = torch.bincount(drawn.input_ids[0], minlength=5) / 40_000
    assert (shares - logits.softmax(-1)).abs().max() < 0.01 and drawn.replaced.all()


@given(seed=st.integers(0, 99))
def test_samples_stand_in_the_predicted_places_only(seed) -> None:
    ids, labels = _text(seed)
    seen = ids.masked_fill(labels != -100, 19)
    predicted = labels != -100
    logits = torch.zeros(int(predicted.sum()), 20, requires_grad=True)
    drawn = sample_replacements(seen, labels, logits, generator=torch.Generator().manual_seed(seed))
    assert (drawn.input_ids[~predicted] == ids[~predicted]).all() and not drawn.input_ids.requires_grad
    assert (drawn.replaced == (drawn.input_ids != ids)).all()
    again = sample_replacements(seen, labels, logits, generator=torch.Generator().manual_seed(seed))
    assert torch.equal(drawn.input_ids, again.input_ids)
    # The right token is not a replacement.
    sure = 1000 * torch.nn.functional.one_hot(labels[predicted], 20).float()
    right = sample_replacements(seen, labels, sure, generator=torch.Generator())
    assert torch.equal(right.input_ids, ids) and not right.replaced.any()


def test_logits_of_other_places_are_refused() -> None:
    ids, labels = _text()
    with pytest.raises(UsageError, match=r"expected logits of the \d+ predicted tokens, got 27; pass those"):
        sample_replacements(ids, labels, torch.zeros(27, 20), generator=torch.Generator())


def test_with_a_generator_a_row_a_draw_does_not_depend_on_the_rows_beside_it() -> None:
    ids = torch.randint(0, 20, (4, 6), generator=torch.Generator().manual_seed(0))
    labels = torch.where(torch.rand(4, 6, generator=torch.Generator().manual_seed(1)) < 0.6, ids, -100)
    labels[2] = -100
    logits = torch.randn(4, 6, 20, generator=torch.Generator().manual_seed(2))

    def drawn(rows):
        own = [torch.Generator().manual_seed(7 + row) for row in rows]
        chosen = logits[rows][labels[rows] != -100]
        return sample_replacements(ids[rows], labels[rows], chosen, generator=own).input_ids

    whole = drawn([0, 1, 2, 3])
    assert torch.equal(torch.cat([drawn([0]), drawn([1, 2]), drawn([3])]), whole)
    assert torch.equal(drawn([3, 1]), whole[[3, 1]]) and not torch.equal(whole, ids)
    with pytest.raises(UsageError, match="expected a generator for each of 4 rows, got 1; pass one each, or one for"):
        sample_replacements(ids, labels, logits[labels != -100], generator=[torch.Generator()])
