import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrows.data.windows import windows
from narrows.errors import UsageError


@st.composite
def cuts(draw):
    size = draw(st.integers(1, 40))
    return draw(st.integers(0, 200)), size, draw(st.integers(0, size - 1))


@given(cuts())
def test_windows_cover_and_end_flush(cut):
    length, size, overlap = cut
    result = windows(length, size=size, overlap=overlap)
    assert sorted(set().union(*result)) == list(range(length))
    assert result[-1].stop == length
    assert all(len(window) == min(size, length) for window in result)
    for before, after in zip(result, result[1:], strict=False):
        assert before.start < after.start
        assert before.stop - after.start >= overlap
    assert all(before.stop - after.start == overlap for before, after in zip(result[:-1], result[1:-1], strict=False))


def test_no_window_is_spare():
    assert windows(0, size=4, overlap=1) == [range(0)]
    assert windows(4, size=4, overlap=3) == [range(4)]
    assert windows(10, size=6, overlap=2) == [range(0, 6), range(4, 10)]


@pytest.mark.parametrize(
    ("length", "size", "overlap", "pattern"),
    [
        (-1, 4, 0, "expected a length of at least 0, got -1; pass the number of tokens"),
        (9, 0, 0, "expected a window size of at least 1, got 0; pass a larger size"),
        (
            9,
            4,
            -1,
            r"overlap from 0 to 3 \(under the window size 4\), got -1; pass a smaller overlap or a larger",
        ),
        (9, 4, 4, r"overlap from 0 to 3 \(under the window size 4\), got 4"),
    ],
)
def test_impossible_windows(length, size, overlap, pattern):
    with pytest.raises(UsageError, match=pattern):
        windows(length, size=size, overlap=overlap)
