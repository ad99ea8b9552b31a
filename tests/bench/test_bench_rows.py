import pytest

from narrows.bench import cost
from narrows.bench.probes import fastest, in_own_process, in_turn, peak_above, ratio
from narrows.bench.registry import FAMILIES, family
from narrows.bench.rows import Row, meets
from narrows.errors import NarrowsError, UsageError


@pytest.mark.parametrize(
    ("side", "value", "holds"),
    [
        ("at least", 2.0, True),
        ("at least", 1.9, False),
        ("at most", 2.0, True),
        ("at most", 2.1, False),
        ("below", 2.0, False),
        ("below", 1.9, True),
        ("at least", None, False),
    ],
)
def test_a_bar_is_met_on_its_side(side, value, holds):
    assert meets(Row(name="a", unit="×", bar=2.0, side=side), value) is holds


def test_a_row_without_a_bar_neither_holds_nor_falls_short():
    assert meets(Row(name="a", unit="×"), None) is None


def test_a_layer_costs_its_maps_and_its_attention():
    length, width = 5, 7
    maps = 2 * length * width * width * 4 + 2 * length * width * 4 * width * 2
    attention = 2 * 2 * length * length * width
    assert cost.layer_flops(length, width) == maps + attention


def test_split_0_saves_nothing_and_each_layer_more_saves_more():
    size = cost.EncoderSize("x", 6, 384, 12)
    savings = [cost.saving(size, split_layer=k, question=27, passage=293, passages=32) for k in range(6)]
    assert savings[0] == 1.0
    assert savings == sorted(savings)
    assert savings[4] < 3.0


def test_contenders_take_turns_after_the_warm_up():
    order = []
    times = in_turn({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds=2, warm_up=1)
    assert order == ["a", "b"] * 3
    assert [len(seconds) for seconds in times.values()] == [2, 2]


def test_one_round_is_measured_however_little_time_there_is():
    times = in_turn({"a": lambda: None}, rounds=50, seconds=0.0)
    assert len(times["a"]) == 1


def test_a_ratio_is_the_median_of_pairs_not_the_ratio_of_medians():
    assert ratio([1.0, 100.0, 3.0], [1.0, 10.0, 1.0]) == (3.0, 1.0, 10.0)


def test_the_fastest_contender_has_the_lowest_median():
    assert fastest({"a": [1.0, 1.0, 9.0], "b": [2.0, 2.0, 2.0], "c": [0.0]}, ["a", "b"]) == "a"


def test_a_peak_counts_what_is_freed_again():
    def work():
        block = bytearray(64 * 2**20)
        block[:: 2**12] = b"x" * len(block[:: 2**12])

    assert 60 * 2**20 < peak_above(work) < 120 * 2**20


def test_a_process_of_its_own_answers_in_json():
    found = in_own_process("narrows.bench.cost:layer_flops", length=2, width=3)
    assert found == cost.layer_flops(2, 3)


def test_a_process_of_its_own_has_the_variables_given_beside_ours(monkeypatch):
    monkeypatch.setenv("NARROWS_A", "1")
    read = in_own_process("os:getenv", environment={"NARROWS_B": "2"}, key="NARROWS_B")
    assert (read, in_own_process("os:getenv", environment={}, key="NARROWS_A")) == ("2", "1")


def test_a_process_that_fails_says_why():
    with pytest.raises(NarrowsError, match=r"to end in a process of its own, got exit code 1 \(.*width"):
        in_own_process("narrows.bench.cost:layer_flops", length=2)


def test_an_unknown_family_names_the_known_ones():
    with pytest.raises(UsageError, match=f"one of {', '.join(FAMILIES)}, got 'nothing'"):
        family("nothing")
