"""What attention sees, as runs of keys: a query sees a run of consecutive keys in each block of them.

All that is counted and drawn follows from where each query's runs begin and end, so that memory is
`length × blocks` and never the square.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int32, Int64

from narrows._plural import count
from narrows.errors import UsageError

__all__ = ["LONGEST", "Block", "Counts", "Pattern", "Runs", "Subject", "count_pairs", "covered_runs", "runs_of"]

LONGEST = 1 << 20
"""Most tokens of a pattern: each is asked one by one what it sees."""

_ASKED_AT_ONCE = 1024

Runs = Int32[np.ndarray, "blocks length 2"]
"""First key that a query sees in a block, and the one after the last."""


class Block(NamedTuple):
    """Keys that stand side by side: the tokens, or the slots of a coarser level."""

    name: str
    borders: Int64[np.ndarray, " keys_and_1"]
    """The first token that each key covers, and at the end the number of tokens."""

    @property
    def keys(self) -> int:
        """How many keys there are."""
        return len(self.borders) - 1


class Pattern(NamedTuple):
    """What the queries of a text see in one layer, in one softmax over all blocks."""

    name: str
    length: int
    """Queries: the tokens, or in a layer that pools them, their slots."""
    blocks: tuple[Block, ...]
    see: Callable[[int], Sequence[range]]
    """The run of keys that a query sees in each block."""

    @property
    def tokens(self) -> int:
        """Tokens of the text, all of which the keys of a block cover."""
        return int(self.blocks[0].borders[-1])


class Subject(NamedTuple):
    """What a picture is of: the settings, with nothing left open, and a pattern for each kind of layer."""

    settings: dict[str, Any]
    patterns: tuple[Pattern, ...]


class Counts(NamedTuple):
    """Numbers of a pattern; a reach is the tokens behind the keys that a query sees."""

    length: int
    """Tokens of the text."""
    visible_pairs: tuple[int, ...]
    """Query-key pairs in each block."""
    least_reach: tuple[int, ...]
    """Tokens that the query with the smallest reach reaches through each block alone."""
    mean_reach: tuple[float, ...]
    least_reach_of_all: int
    """The same through all blocks together."""

    @property
    def full_pairs(self) -> int:
        """Pairs of full attention over the same tokens."""
        return self.length**2

    @property
    def share_of_full(self) -> float:
        """All visible pairs over those of full attention; above 1 where pooled keys make up for more than is saved."""
        return sum(self.visible_pairs) / self.full_pairs

    @property
    def sees_whole_text(self) -> bool:
        """Whether every query reaches every token in some block."""
        return self.least_reach_of_all == self.length


def runs_of(pattern: Pattern, advance: Callable[[int], None] = lambda _: None) -> Runs:
    """Ask every query of a pattern what it sees.

    Args:
        pattern: of at most `LONGEST` tokens.
        advance: called with the number of queries asked since the last call.

    Returns:
        `[blocks, length, 2]`, int32.

    Raises:
        UsageError: the pattern is longer than `LONGEST`.

    Example:
        >>> block = Block("tokens", np.arange(4))
        >>> runs_of(Pattern("first", 3, (block,), lambda query: [range(query + 1)])).tolist()
        [[[0, 1], [0, 2], [0, 3]]]
    """
    if pattern.length > LONGEST:
        raise UsageError(
            f"expected a text of at most {count(LONGEST, 'token')}, got {pattern.length:,}; look at a shorter one"
        )
    runs = np.empty((len(pattern.blocks), pattern.length, 2), dtype=np.int32)
    for start in range(0, pattern.length, _ASKED_AT_ONCE):
        stop = min(start + _ASKED_AT_ONCE, pattern.length)
        for query in range(start, stop):
            runs[:, query] = [(keys.start, keys.stop) for keys in pattern.see(query)]
        advance(stop - start)
    return runs


def covered_runs(pattern: Pattern, runs: Runs) -> Runs:
    """The same runs in tokens: a run of slots covers the tokens from its first slot's to its last one's."""
    covered = np.empty_like(runs)
    for index, block in enumerate(pattern.blocks):
        covered[index] = block.borders[runs[index]]
    return covered


def count_pairs(pattern: Pattern, runs: Runs) -> Counts:
    """Count what a pattern sees, exactly.

    Example:
        >>> pattern = Pattern("all", 3, (Block("tokens", np.arange(4)),), lambda query: [range(3)])
        >>> count_pairs(pattern, runs_of(pattern)).share_of_full
        1.0
    """
    covered = covered_runs(pattern, runs)
    reach = covered[..., 1] - covered[..., 0]
    widths = (runs[..., 1] - runs[..., 0]).sum(1, dtype=np.int64)
    return Counts(
        length=pattern.tokens,
        visible_pairs=tuple(widths.tolist()),
        least_reach=tuple(reach.min(1).tolist()),
        mean_reach=tuple(reach.mean(1).tolist()),
        least_reach_of_all=int(_together(covered).min()),
    )


def _together(runs: Runs) -> Int64[np.ndarray, " length"]:
    """Tokens in the union of each query's runs."""
    order = np.argsort(runs[..., 0], axis=0, kind="stable")
    starts, stops = (np.take_along_axis(runs[..., side], order, axis=0) for side in (0, 1))
    total, end = np.zeros(runs.shape[1], dtype=np.int64), np.zeros(runs.shape[1], dtype=np.int32)
    for start, stop in zip(starts, stops, strict=True):
        total += np.maximum(stop - np.maximum(start, end), 0)
        end = np.maximum(end, stop)
    return total
