"""Rows, batches and logits of pretraining: pure functions of the seed, and no more computed than is asked for."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, BertConfig, BertForMaskedLM, FunnelConfig, FunnelForMaskedLM

from narrows.data import TokenCache
from narrows.errors import UsageError
from narrows.funnel import FunnelConfig as OurFunnelConfig
from narrows.funnel import FunnelForMaskedLM as OurFunnelForMaskedLM
from narrows.losses import masked_lm_loss
from narrows.training.pretraining.data import Item, RowPlan, collate_rows, read_corpus
from narrows.training.pretraining.objective import MaskedTokens, MaskedTokensObjective
from narrows.training.pretraining.parts import corpus_of, rows_of
from narrows.training.pretraining.speed import TokenRate


@pytest.fixture
def make_rows(pretraining_recipe, tiny_bert, text_folder, tmp_path):
    """Rows of a recipe, and its tokenizer."""

    def make(*, held_out: bool = False, **sections):
        recipe, tokenizer = pretraining_recipe(**sections), AutoTokenizer.from_pretrained(tiny_bert)
        return rows_of(recipe, corpus_of(recipe, tokenizer, text_folder, tmp_path), held_out=held_out), tokenizer

    return make


@given(
    rows=st.integers(1, 30), batch_rows=st.integers(1, 9), batches=st.integers(1, 40), seed=st.integers(0, 2**32 - 1)
)
def test_a_plan_is_epochs_one_after_another(rows, batch_rows, batches, seed) -> None:
    plan = RowPlan(rows=rows, batch_rows=batch_rows, batches=batches, seed=seed)
    made = list(plan)
    assert len(made) == len(plan) == batches and all(len(batch) == batch_rows for batch in made)
    items = [item for batch in made for item in batch]
    assert [item.epoch for item in items] == [place // rows for place in range(len(items))]
    for epoch in range(len(items) // rows):
        assert sorted(item.row for item in items if item.epoch == epoch) == list(range(rows))
    # A longer run begins with the same batches, and so does a second look.
    longer = RowPlan(rows=rows, batch_rows=batch_rows, batches=batches + 3, seed=seed)
    assert list(longer)[:batches] == made == list(plan)


def test_epochs_and_seeds_differ() -> None:
    def order(seed: int) -> list[Item]:
        return next(iter(RowPlan(rows=50, batch_rows=100, batches=1, seed=seed)))

    first, second = [item.row for item in order(0)[:50]], [item.row for item in order(0)[50:]]
    assert first != second and first != [item.row for item in order(1)[:50]]
    with pytest.raises(UsageError, match="expected at least one batch of 9 rows, got 5 rows and too few epochs; raise"):
        RowPlan(rows=5, batch_rows=9, batches=0, seed=0)


@pytest.mark.parametrize("strategy", ["single_token", "whole_word", "token_span", "word_span"])
def test_a_row_is_the_text_with_hidden_tokens(strategy, make_rows) -> None:
    rows, tokenizer = make_rows(masking={"strategy": strategy}, data={"segments": 2})
    plain, _ = make_rows(masking={"as_mask": 0.0, "as_random": 0.0}, data={"segments": 2})
    for number in range(6):
        row, text = rows[Item(2, number)], plain[Item(2, number)]
        predicted = row.labels != -100
        assert predicted.sum() == 32 // 6
        assert (np.where(predicted, row.labels, row.input_ids) == text.input_ids).all()
        assert not np.isin(row.labels[predicted], tokenizer.all_special_ids).any()
        again, other = rows[Item(2, number)], rows[Item(3, number)]
        assert all(np.array_equal(one, same) for one, same in zip(row, again, strict=True))
        assert not np.array_equal(row.labels, other.labels)


def test_tune_rows_are_the_same_for_every_seed(make_rows) -> None:
    rows, _ = make_rows(held_out=True)
    other, _ = make_rows(held_out=True, optimiser={"seed": 99})
    assert len(rows) == len(other) > 3
    for number in range(len(rows)):
        assert np.array_equal(rows[Item(0, number)].labels, other[Item(0, number)].labels)
    trained = [make_rows(optimiser={"seed": seed})[0][Item(0, 0)].labels for seed in (3, 99)]
    assert not np.array_equal(*trained)


def test_tune_documents_are_not_trained_on(pretraining_recipe, tiny_bert, text_folder, tmp_path) -> None:
    cache = TokenCache(tmp_path, tokenizer=AutoTokenizer.from_pretrained(tiny_bert))
    named = read_corpus(pretraining_recipe().data, text_folder, cache)
    assert (named.held_out.sum(), (~named.held_out).sum()) == (20, 120)
    share = pretraining_recipe(data={"tune": [], "tune_share": 0.25}).data
    held = read_corpus(share, text_folder, cache)
    assert 15 < held.held_out.sum() < 45 and len(held.held_out) == 120
    again = read_corpus(share, text_folder, cache)
    assert np.array_equal(held.held_out, again.held_out)


def _batch(length: int = 12, batch: int = 3) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 20, (batch, length), generator=generator)
    labels = torch.where(torch.rand(batch, length, generator=generator) < 0.4, ids, -100)
    segments = (torch.arange(length) > 6).long().expand(batch, length)
    return {"input_ids": ids, "token_type_ids": segments, "labels": labels}


def _bert() -> BertForMaskedLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    return BertForMaskedLM(BertConfig(vocab_size=20, initializer_range=0.5, **sizes)).eval()


def _funnel() -> FunnelForMaskedLM:
    torch.manual_seed(0)
    config = FunnelConfig(vocab_size=20, block_sizes=[1, 1], d_model=16, n_head=2, d_head=8, d_inner=32)
    return FunnelForMaskedLM(config).eval()


def _our_funnel() -> OurFunnelForMaskedLM:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 32, "d_embed": 8, "num_decoder_layers": 1}
    config = OurFunnelConfig(vocab_size=20, block_sizes=[1, 1], initializer_std=0.3, **sizes)
    return OurFunnelForMaskedLM(config).eval()


@pytest.mark.parametrize("make", [_bert, _funnel, _our_funnel])
@pytest.mark.parametrize("hide_keys", [False, True])
def test_logits_are_those_of_the_whole_model_in_values_and_gradients(make, hide_keys) -> None:
    model, batch = make(), _batch()
    if hide_keys and make is _funnel:
        with pytest.raises(UsageError, match="expected a model with a mask of keys alone"):
            MaskedTokens(model, segments=2, hide_keys=True)
        return
    predicted = batch["labels"] != -100
    mask = (~predicted).long() if hide_keys else None
    inputs = {"input_ids": batch["input_ids"], "token_type_ids": batch["token_type_ids"]}
    # Of ours the hidden keys are no padding: they are pooled.
    whole = model(**inputs, **{"key_mask" if make is _our_funnel else "attention_mask": mask}).logits[predicted]
    rows: list[int] = []
    handle = model.get_output_embeddings().register_forward_hook(lambda module, given, made: rows.append(len(given[0])))
    ours = MaskedTokens(model, segments=2, hide_keys=hide_keys)(model, batch)
    handle.remove()
    assert rows == [int(predicted.sum())]
    torch.testing.assert_close(ours, whole)
    weights = [parameter for parameter in model.parameters() if parameter.requires_grad]
    noise = torch.randn_like(whole)
    expected = torch.autograd.grad((whole * noise).sum(), weights, allow_unused=True)
    found = torch.autograd.grad((ours * noise).sum(), weights, allow_unused=True)
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(one, other)
    # The hook is gone.
    assert model(**inputs).logits.shape == (3, 12, 20)


def test_a_head_that_is_no_module_is_asked_for_all_and_chosen_from() -> None:
    model, batch = _bert(), _batch()
    ask = MaskedTokens(model, segments=1, hide_keys=False)
    expected = ask(model, batch)
    model.get_output_embeddings = lambda: None  # type: ignore[method-assign]
    torch.testing.assert_close(ask(model, batch), expected)


def test_the_objective_is_the_mean_over_the_step() -> None:
    model, batch = _bert(), _batch(batch=5)
    objective = MaskedTokensObjective(MaskedTokens(model, segments=2, hide_keys=False))
    states = model.bert(batch["input_ids"], token_type_ids=batch["token_type_ids"]).last_hidden_state
    expected = masked_lm_loss(states, batch["labels"], model.cls)
    parts = [{name: tensor[rows] for name, tensor in batch.items()} for rows in ([0], [1, 2, 3], [4])]
    for split in ([batch], parts):
        counts = objective.counts(split)
        torch.testing.assert_close(sum(objective(model, part, counts) for part in split), expected)


def test_a_batch_has_the_families_segment_of_cls(make_rows) -> None:
    rows, _ = make_rows(data={"segments": 2})
    made = [rows[Item(0, number)] for number in range(3)]
    batch = collate_rows(made, cls_segment=2)
    assert batch["token_type_ids"][:, 0].tolist() == [2, 2, 2] and batch["token_type_ids"][:, 1:].max() == 1
    assert made[0].token_type_ids[0] == 0 and batch["follows"].tolist() == [row.follows for row in made]
    assert all(batch[name].dtype == torch.int64 for name in ("input_ids", "token_type_ids", "labels"))


def test_the_rate_is_that_of_steps_alone(monkeypatch) -> None:
    from narrows.training.pretraining import speed

    now = [0.0]
    monkeypatch.setattr(speed.time, "monotonic", lambda: now[0])
    rate, events = TokenRate(100), (None, None, None)
    rate.on_train_begin(*events)
    for _ in range(4):
        now[0] += 2.0
        rate.on_step_end(*events)
    now[0] += 50.0
    rate.on_evaluate(*events)
    logs = {"loss": 1.0}
    rate.on_log(*events, logs=logs)
    assert logs["tokens_per_second"] == 50
    now[0] += 1.0
    rate.on_step_end(*events)
    now[0] += 50.0
    rate.on_save(*events)
    other = {"eval_loss": 1.0}
    rate.on_log(*events, logs=other)
    logs = {"loss": 1.0}
    rate.on_log(*events, logs=logs)
    assert logs["tokens_per_second"] == 100 and other == {"eval_loss": 1.0}
