"""Sizes of memory in and out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrows.errors import UsageError
from narrows.inspection.sizes import parse_size, show_size


@pytest.mark.parametrize(
    ("text", "size"),
    [("16G", 16 << 30), ("800m", 800 << 20), ("1.5GiB", 3 << 29), ("2 TB", 2 * 10**12), (" 5B ", 5), (".5k", 512)],
)
def test_sizes_by_hand(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "G", "16X", "-1G", "1e3", "5iB", "0", "0.2B", "9" * 400, "1,5G", "16 G B"])
def test_nonsense_is_told_in_one_sentence(text: str) -> None:
    with pytest.raises(UsageError, match="expected a size such as 16G, 800M or 1.5GiB, got .*; write a number and K"):
        parse_size(text)


@given(st.integers(1, 1 << 50))
def test_what_is_shown_is_read_back(size: int) -> None:
    number, unit = show_size(size).split()
    read = parse_size(number.replace(",", "") + ("B" if unit.startswith("byte") else unit))
    assert read == pytest.approx(size, rel=0.006)


def test_shown_by_hand() -> None:
    assert [show_size(size) for size in (1, 999, 1023, 1024 * 1024 - 1, 123 << 30, 5000 << 40)] == [
        "1 byte",
        "999 bytes",
        "1,023 bytes",
        "1.00 MiB",
        "123 GiB",
        "5,000 TiB",
    ]
