import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrows.data.packing import (
    equal_length_batches,
    restore,
    shuffled_batches,
    token_budget_batches,
)
from narrows.errors import UsageError

lengths_lists = st.lists(st.integers(0, 50), max_size=120)
budgets = st.integers(1, 120)
limits = st.none() | st.integers(1, 9)


def check_batches(batches, lengths, batch_tokens, max_items):
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        padded = len(batch) * max(lengths[index] for index in batch)
        assert padded <= batch_tokens or len(batch) == 1
        assert max_items is None or len(batch) <= max_items


@given(lengths_lists, budgets, limits)
def test_token_budget(lengths, batch_tokens, max_items):
    batches = token_budget_batches(lengths, batch_tokens=batch_tokens, max_items=max_items)
    check_batches(batches, lengths, batch_tokens, max_items)
    order = [index for batch in batches for index in batch]
    assert order == sorted(order, key=lambda index: (-lengths[index], index))


@given(lengths_lists, budgets)
def test_token_budget_fills_its_batches(lengths, batch_tokens):
    batches = token_budget_batches(lengths, batch_tokens=batch_tokens)
    for batch in batches[:-1]:
        assert (len(batch) + 1) * max(1, *(lengths[index] for index in batch)) > batch_tokens


@given(lengths_lists, budgets)
def test_batches_of_one_length_hold_everything_once(lengths, batch_tokens):
    batches = equal_length_batches(lengths, batch_tokens=batch_tokens)
    check_batches(batches, lengths, batch_tokens, None)
    assert all(len({lengths[index] for index in batch}) == 1 for batch in batches)


@given(lengths_lists, budgets)
def test_restore_undoes_the_order(lengths, batch_tokens):
    batches = token_budget_batches(lengths, batch_tokens=batch_tokens)
    order = [index for batch in batches for index in batch]
    results = [f"result {index}" for index in order]
    assert [results[place] for place in restore(order)] == [f"result {i}" for i in range(len(lengths))]


@given(lengths_lists, budgets, limits, st.integers(0, 5), st.integers(0, 5))
def test_shuffled_batches_hold_everything_once(lengths, batch_tokens, max_items, seed, epoch):
    options = {"batch_tokens": batch_tokens, "max_items": max_items, "seed": seed, "epoch": epoch}
    batches = shuffled_batches(lengths, **options)
    check_batches(batches, lengths, batch_tokens, max_items)
    assert batches == shuffled_batches(lengths, **options)


def test_shuffled_batches_differ_by_seed_and_epoch():
    lengths = [5 + index % 7 for index in range(400)]
    orders = [
        shuffled_batches(lengths, batch_tokens=64, seed=seed, epoch=epoch)
        for seed, epoch in [(0, 0), (0, 1), (1, 0), (1, 2), (2, 1)]
    ]
    assert all(a != b for place, a in enumerate(orders) for b in orders[:place])


def test_shuffled_batches_waste_little_padding():
    lengths = [1 + (37 * index) % 300 for index in range(6000)]
    batches = shuffled_batches(lengths, batch_tokens=2048, seed=0, epoch=0)
    padded = sum(len(batch) * max(lengths[index] for index in batch) for batch in batches)
    assert sum(lengths) / padded > 0.9


@pytest.mark.parametrize("make", [token_budget_batches, lambda *a, **k: shuffled_batches(*a, **k, seed=0, epoch=0)])
def test_impossible_budgets(make):
    with pytest.raises(UsageError, match="expected batch_tokens of at least 1, got 0; pass a larger budget"):
        make([3], batch_tokens=0)
    with pytest.raises(UsageError, match="expected max_items of at least 1, got 0; pass None for no limit"):
        make([3], batch_tokens=8, max_items=0)
    with pytest.raises(UsageError, match="expected lengths of at least 0, got -2; pass token counts"):
        make([3, -2], batch_tokens=8)


@pytest.mark.parametrize(("order", "place"), [([0, 0], 1), ([2, 0], 0), ([1, -1], 1)])
def test_restore_refuses_what_is_no_order(order, place):
    pattern = f"holds each of 0 to 1 once, got {order[place]} at place {place}; pass the batches' indices"
    with pytest.raises(UsageError, match=pattern):
        restore(order)
