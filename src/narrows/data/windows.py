"""Overlapping windows over a sequence that is too long to be read at once."""

from narrows.errors import UsageError

__all__ = ["windows"]


def windows(length: int, *, size: int, overlap: int) -> list[range]:
    """Cuts positions `0 .. length - 1` into windows of at most `size`.

    Consecutive windows share `overlap` positions; the last one is moved back to end with the sequence, so
    it is as wide as the others (and shares more with the one before it).

    Args:
        length: positions to cover, in tokens.
        size: widest window, in tokens.
        overlap: positions that consecutive windows share at least, in tokens.

    Returns:
        One range a window, in order. Every position lies in at least one of them; a length of 0 gives one
        empty window.

    Raises:
        UsageError: `length` or `overlap` is negative, `size` is under 1, or `overlap` is not under `size`.

    Example:
        >>> windows(10, size=6, overlap=2)
        [range(0, 6), range(4, 10)]
        >>> windows(11, size=6, overlap=2)
        [range(0, 6), range(4, 10), range(5, 11)]
    """
    if length < 0:
        raise UsageError(f"expected a length of at least 0, got {length}; pass the number of tokens.")
    if size < 1:
        raise UsageError(f"expected a window size of at least 1, got {size}; pass a larger size.")
    if overlap < 0 or overlap >= size:
        raise UsageError(
            f"expected an overlap from 0 to {size - 1} (under the window size {size}), got {overlap}; "
            "pass a smaller overlap or a larger size."
        )
    if length <= size:
        return [range(length)]
    starts = [*range(0, length - size, size - overlap), length - size]
    return [range(start, start + size) for start in starts]
