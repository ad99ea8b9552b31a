"""Tiles and their windows against plain loops, at any length, radius and tile size."""

from hypothesis import given
from hypothesis import strategies as st

from narrows.core.windows import aligned_tile_size, is_aligned, tile_offsets, tiles, window, window_width

LENGTHS, RADII, SIZES = st.integers(0, 97), st.integers(1, 23), st.integers(1, 29)
SPANS = st.sampled_from([1, 2, 3, 4, 9, 16, 50])


@given(LENGTHS, SIZES)
def test_tiles_hold_every_query_once_in_order(length, size):
    parts = list(tiles(length, size))
    assert [query for part in parts for query in part] == list(range(length))
    assert all(part.start % size == 0 and 0 < len(part) <= size for part in parts)


@given(LENGTHS, SIZES, RADII, SPANS)
def test_a_window_holds_what_some_query_of_its_tile_sees(length, size, radius, span):
    slots = -(-length // span)
    for queries in tiles(length, size):
        part = window(queries, radius=radius, length=slots, span=span)
        seen = [key for key in range(slots) if any(abs(key - query // span) <= radius for query in queries)]
        assert list(range(slots))[part.keys] == seen
        assert part.width == len(seen) == part.columns.stop - part.columns.start


@given(LENGTHS, SIZES, RADII, SPANS)
def test_offsets_say_which_key_of_an_aligned_tile_each_query_sees(length, size, radius, span):
    if not is_aligned(size, [span]):
        return
    offsets = tile_offsets(size, radius=radius, span=span)
    assert offsets.shape == (size, window_width(size, radius=radius, span=span))
    slots = -(-length // span)
    for queries in tiles(length, size):
        part = window(queries, radius=radius, length=slots, span=span)
        table = offsets[: len(queries), part.columns].tolist()
        for query, row in zip(queries, table, strict=True):
            distances = [key - query // span for key in range(slots)[part.keys]]
            assert row == [d + radius if abs(d) <= radius else -1 for d in distances]


@given(st.integers(1, 300), st.integers(2, 40), st.integers(1, 4))
def test_the_aligned_tile_size_is_the_nearest_one(wanted, rate, levels):
    spans = [rate**level for level in range(levels)]
    size = aligned_tile_size(wanted, spans)
    ratio = max(size / wanted, wanted / size)
    assert is_aligned(size, spans)
    assert not any(
        is_aligned(other, spans) and max(other / wanted, wanted / other) < ratio for other in range(1, 4 * wanted + 1)
    )


def test_powers_of_two_need_no_other_tile_size():
    for rate in (2, 4, 8, 16):
        for wanted in (64, 128, 256):
            assert aligned_tile_size(wanted, [rate**level for level in range(6)]) == wanted
