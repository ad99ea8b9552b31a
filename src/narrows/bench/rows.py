"""What a row of a bench is: a number with a unit, its peer, and the bar that it has to reach."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

__all__ = ["Context", "Group", "Measurement", "Row", "meets"]

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of the table.

    Args:
        name: short and unique in its family.
        unit: of the value, such as `×` or `F1`.
        peer: what the value is compared with; "" when it stands alone.
        bar: what the value has to reach; None for a row that only informs.
        side: `at least`, `at most` or `below` the bar.
        sources: patterns, below the package's folder, of the files that the value depends on: when one
            changes, the value is old.
    """

    name: str
    unit: str
    peer: str = ""
    bar: float | None = None
    side: Literal["at least", "at most", "below"] = "at least"
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What was measured for a row.

    Args:
        value: None when there is nothing to say (it then falls short of any bar).
        spread: lowest and highest of the repeats, or the bootstrap interval.
        arithmetic: what counting operations predicts for the value.
        detail: whatever else belongs to it, such as the median seconds of both sides.
    """

    value: float | None
    spread: tuple[float, float] | None = None
    arithmetic: float | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Context:
    """What a measurement may use.

    Args:
        data: folder of data sets; None when there is none.
        examples: folder with `library/` and `questions.jsonl`.
        models: other checkpoints to score, by name.
        known: the values of rows measured before this one, by name.
        rounds: repeats of a timing; None: what the row takes.
        seconds: time a quick measurement may take; None: no limit.
        say: told what is being done.
    """

    data: Path | None = None
    examples: Path = Path("examples")
    models: Mapping[str, Path] = field(default_factory=dict)
    known: Mapping[str, float | None] = field(default_factory=dict)
    rounds: int | None = None
    seconds: float | None = None
    say: Say = lambda _: None


Measure = Callable[[Context], Mapping[str, Measurement]]


@dataclass(frozen=True, kw_only=True)
class Group:
    """Rows that one measurement gives together.

    Args:
        rows: its rows.
        measure: gives a measurement for every row.
        size: what is measured, such as `32 passages, 15 rounds`.
        quick: the same at a smaller size; None when it does not fit in a quick run.
        quick_size: its size.
        quick_seconds: about how long it takes on two cores.
        quick_judged: whether the bars hold at the smaller size too; if not, a quick value has none.
        missing: says in a few words what is needed and not there; None when all is there.
    """

    rows: tuple[Row, ...]
    measure: Measure
    size: str
    quick: Measure | None = None
    quick_size: str = ""
    quick_seconds: float = 0.0
    quick_judged: bool = True
    missing: Callable[[Context], str | None] = lambda _: None


def meets(row: Row, value: float | None) -> bool | None:
    """Whether a value reaches its row's bar; None without a bar.

    Example:
        >>> meets(Row(name="a", unit="×", bar=2.0), 2.5)
        True
    """
    if row.bar is None:
        return None
    if value is None:
        return False
    return {"at least": value >= row.bar, "at most": value <= row.bar, "below": value < row.bar}[row.side]
