import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrows.data.truncation import TRUNCATIONS, Head, HeadTail, Retriever, Windows, take, truncation
from narrows.errors import UsageError

texts = st.lists(st.integers(0, 9), max_size=60)
makers = st.one_of(
    st.builds(Head),
    st.builds(HeadTail, head_share=st.floats(0, 1)),
    st.builds(Windows, overlap=st.integers(0, 4)),
    st.builds(Retriever, part_tokens=st.integers(1, 12)),
)


@given(makers, texts, st.integers(5, 40), st.lists(st.integers(0, 9), max_size=4))
def test_nothing_is_beyond_the_budget_out_of_order_or_unaccounted(choose, ids, budget, query):
    parts, report = choose(ids, budget=budget, query_ids=query)
    seen = set()
    for part in parts:
        positions = [position for stretch in part for position in stretch]
        assert len(positions) <= budget
        assert positions == sorted(set(positions))
        assert all(0 <= position < len(ids) for position in positions)
        assert all(part) and all(a.stop < b.start for a, b in zip(part, part[1:], strict=False))
        assert take(ids, part) == [ids[position] for position in positions]
        seen |= set(positions)
    assert report == (len(ids), len(seen), len(ids) - len(seen), len(parts))
    # Nothing is dropped for nothing.
    assert report.kept == (len(ids) if isinstance(choose, Windows) else min(len(ids), budget))
    assert parts
    if len(ids) <= budget:
        assert [take(ids, part) for part in parts] == [ids]


@given(makers, texts, st.integers(5, 40))
def test_arrays_are_cut_like_lists(choose, ids, budget):
    array = np.array(ids, dtype=np.int32)
    assert choose(array, budget=budget) == choose(ids, budget=budget)
    assert choose(ids, budget=budget, query_ids=array[:2]) == choose(ids, budget=budget, query_ids=ids[:2])
    assert take(array, [range(len(ids))]) == ids


def test_head_and_tail():
    ids = list(range(10))
    assert take(ids, Head()(ids, budget=3).parts[0]) == [0, 1, 2]
    assert take(ids, HeadTail()(ids, budget=5).parts[0]) == [0, 1, 7, 8, 9]
    assert take(ids, HeadTail(head_share=0)(ids, budget=3).parts[0]) == [7, 8, 9]
    assert HeadTail(head_share=1)(ids, budget=3) == Head()(ids, budget=3)


def test_windows_share_tokens():
    parts, report = Windows(overlap=2)(range(11), budget=6)
    assert parts == ((range(0, 6),), (range(4, 10),), (range(5, 11),))
    assert report == (11, 11, 0, 3)


def test_the_retriever_finds_what_is_asked_and_keeps_the_order():
    ids = [1, 1, 7, 1, 1, 1, 1, 8, 1]
    choose = Retriever(part_tokens=3)
    assert choose(ids, budget=3, query_ids=[8]).parts == ((range(6, 9),),)
    assert choose(ids, budget=6, query_ids=[8, 8, 7]).parts == ((range(0, 3), range(6, 9)),)
    # What is left of the budget cuts the last stretch.
    assert choose(ids, budget=4, query_ids=[8, 8, 7]).parts == ((range(0, 1), range(6, 9)),)
    # Nothing is shared: the former goes first.
    assert choose(ids, budget=4, query_ids=[9]).parts == ((range(0, 4),),)


def test_without_a_query_the_retriever_asks_for_the_beginning():
    ids = [5, 6, 1, 1, 2, 2, 5, 6]
    assert Retriever(part_tokens=2)(ids, budget=4).parts == ((range(0, 2), range(6, 8)),)


def test_truncations_by_name():
    made = [truncation("head"), truncation("head+tail", head_share=0.25), truncation("windows", overlap=9)]
    assert made == [Head(), HeadTail(head_share=0.25), Windows(overlap=9)]
    assert truncation("retriever", part_tokens=7) == Retriever(part_tokens=7)
    assert [type(truncation(name)) for name in TRUNCATIONS] == list(TRUNCATIONS.values())


@pytest.mark.parametrize(
    ("make", "pattern"),
    [
        (
            lambda: truncation("tail"),
            r"expected a truncation \(head, head\+tail, windows, retriever\), got 'tail'; did",
        ),
        (lambda: truncation("xyz"), "got 'xyz'; name one of them"),
        (lambda: truncation("head", overlap=3), "the truncation 'head' with no options, got 'overlap'; leave it out"),
        (lambda: truncation("windows", part_tokens=3), "'windows' with overlap, got 'part_tokens'; leave it out"),
        (lambda: HeadTail(head_share=1.5), "expected a head_share from 0 to 1, got 1.5; pass a share such as 0.5"),
        (lambda: HeadTail(head_share=float("nan")), "expected a head_share from 0 to 1, got nan"),
        (lambda: Windows(overlap=-1), "expected an overlap of at least 0, got -1; pass a number of tokens"),
        (lambda: Windows(overlap=4)([1] * 9, budget=4), "expected an overlap from 0 to 3 .*, got 4; pass a smaller"),
        (lambda: Retriever(part_tokens=0), "expected part_tokens of at least 1, got 0; pass a number of tokens"),
        *(
            (lambda make=make: make()([1], budget=0), "a budget of at least 1 token, got 0")
            for make in TRUNCATIONS.values()
        ),
    ],
)
def test_what_cannot_be_is_refused(make, pattern):
    with pytest.raises(UsageError, match=pattern):
        make()
