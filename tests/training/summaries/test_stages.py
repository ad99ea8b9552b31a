"""The plan of a run whose inputs grow: every record once an epoch, shares of the tokens, the same at every start."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrows.errors import UsageError
from narrows.training.summaries.stages import GrowingPlan, Stage


def _stages(count: int, lengths: list[int], shares: list[float]) -> list[Stage]:
    return [
        Stage(share, [length] * count, [[row] for row in range(count)])
        for length, share in zip(lengths, shares, strict=True)
    ]


@given(
    count=st.integers(1, 40),
    epochs=st.integers(1, 3),
    shares=st.lists(st.floats(0.1, 1), min_size=1, max_size=4),
    seed=st.integers(0, 100),
)
def test_each_record_is_seen_once_an_epoch_whatever_the_stages(count, epochs, shares, seed) -> None:
    lengths = [10 * (2**number) for number in range(len(shares))]
    stages = _stages(count, lengths, [share / sum(shares) for share in shares])
    plan = GrowingPlan(stages, batch_tokens=100, epochs=epochs, seed=seed)
    batches = list(plan)
    assert len(plan) == len(batches)
    assert batches == list(GrowingPlan(stages, batch_tokens=100, epochs=epochs, seed=seed))
    items = [item for batch in batches for item in batch]
    for epoch in range(epochs):
        assert sorted(item.row for item in items if item.epoch == epoch) == list(range(count))
    assert [item.stage for item in items] == sorted(item.stage for item in items)
    for batch in batches:
        assert len({(item.stage, item.epoch) for item in batch}) == 1
        length = lengths[batch[0].stage]
        assert len(batch) == 1 or len(batch) * length <= 100


def test_shares_are_of_the_steps() -> None:
    stages = _stages(4000, [100, 200, 400], [0.5, 0.25, 0.25])
    batches = list(GrowingPlan(stages, batch_tokens=800, epochs=3, seed=1))
    shares = [sum(batch[0].stage == number for batch in batches) / len(batches) for number in range(3)]
    assert shares == pytest.approx([0.5, 0.25, 0.25], abs=0.005)


def test_a_record_stands_as_often_as_it_is_to_be_seen_and_with_all_its_rows() -> None:
    stage = Stage(1.0, [5, 5, 9], [[0, 1], [2], [2]])
    items = [item.row for batch in GrowingPlan([stage], batch_tokens=10, epochs=1, seed=0) for item in batch]
    assert sorted(items) == [0, 1, 2, 2]
    assert len(list(GrowingPlan([stage], batch_tokens=5, epochs=0.4, seed=0))) < 4


def test_so_few_epochs_that_nothing_is_left_are_refused() -> None:
    with pytest.raises(
        UsageError, match="expected at least one batch in 0.01 epochs, got none; raise optimiser.epochs"
    ):
        GrowingPlan(_stages(4, [10], [1.0]), batch_tokens=100, epochs=0.01, seed=0)
