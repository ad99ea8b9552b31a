"""`narrows bench`: the gate, then every row, measured or carried over from the last full run."""

import fnmatch
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from narrows.bench.registry import family as find_family
from narrows.bench.results import describe_run, digest, load_results, record, results_file, save_results
from narrows.bench.rows import Context, Group, Measurement, Row, meets
from narrows.errors import NarrowsError, UsageError

__all__ = ["QUICK_SECONDS", "Line", "run"]

QUICK_SECONDS = 50.0
# What a quick run leaves for its own start and end.
_RESERVE = 5.0
SEED = 0


class Line(NamedTuple):
    """A row as it is shown.

    Attributes:
        name: the row's; with its size when it was measured at a smaller one.
        value: None when it was never measured.
        unit: of the value.
        bar: to reach; None for a row that informs.
        side: of the bar.
        holds: whether it does; None without a bar.
        peer: compared with.
        spread: lowest and highest.
        arithmetic: what counting operations predicts.
        measured: now; False for a value of the last full run.
        file, commit, date: of that run.
        note: why it was not measured, or why it is old.
    """

    name: str
    value: float | None
    unit: str
    bar: float | None
    side: str
    holds: bool | None
    peer: str
    spread: Sequence[float] | None
    arithmetic: float | None
    measured: bool
    file: str | None
    commit: str | None
    date: str | None
    note: str | None


def run(
    name: str,
    context: Context,
    *,
    quick: bool = False,
    only: Sequence[str] = (),
    folder: Path = Path("benchmarks/results"),
    began: float | None = None,
) -> list[Line]:
    """Measure a family.

    Args:
        name: of the family.
        context: data, models, repeats.
        quick: end within `QUICK_SECONDS`: smaller sizes; what does not fit is carried over. Writes nothing. Without a
            results file there is nothing to carry over: such rows have no value and are held to no bar.
        only: names of rows, with `*` for any characters; empty: all.
        folder: of the results files.
        began: `time.monotonic()` when the process started its work; None: now.

    Returns:
        One line a row, in the family's order.

    Raises:
        UsageError: no such family or row.
        NarrowsError: a check of the gate failed.
    """
    began = time.monotonic() if began is None else began
    module = find_family(name)
    groups = module.groups(context)
    wanted = _wanted(groups, only)
    _pass_gate(name, module.CHECKS, context)
    path = results_file(folder, name)
    results = load_results(path)
    alone = quick and not path.is_file()
    if alone:
        context.say(_nothing_to_carry(name, path))
    this_run = describe_run(seed=SEED)
    lines: list[Line] = []
    for group in groups:
        rows = [row for row in group.rows if row.name in wanted]
        if not rows:
            continue
        left = began + QUICK_SECONDS - _RESERVE - time.monotonic() if quick else None
        reason = _reason(group, context, left)
        if reason is not None:
            lines += [_carried(replace(row, bar=None) if alone else row, results, path, reason) for row in rows]
            continue
        known = {row: values["value"] for row, values in results["rows"].items()}
        measure = group.quick if quick and group.quick else group.measure
        context.say(f"measuring {', '.join(row.name for row in rows)}")
        found = measure(replace(context, known=known, seconds=left))
        size = group.quick_size if quick else group.size
        shown = [replace(row, bar=None) if quick and not group.quick_judged else row for row in rows]
        lines += [_measured(row, found[row.name], _done(size, found[row.name]) if quick else "") for row in shown]
        if not quick:
            record(results, this_run, {row.name: _kept(row, found[row.name], size) for row in rows})
            save_results(path, {**results, "family": name})
    return lines


def _nothing_to_carry(name: str, path: Path) -> str:
    return (
        f"expected the results of a full run in {path}, got no such file, so that rows which are not measured now "
        f"have no value; name their folder by --results, or run `narrows bench {name}` without --quick to write them"
    )


def _wanted(groups: Sequence[Group], only: Sequence[str]) -> set[str]:
    names = [row.name for group in groups for row in group.rows]
    if not only:
        return set(names)
    wanted: set[str] = set()
    for pattern in only:
        found = fnmatch.filter(names, pattern)
        if not found:
            raise UsageError(
                f"expected names of rows, got {pattern!r}, which fits none; choose from {', '.join(names)}"
            )
        wanted.update(found)
    return wanted


def _pass_gate(name: str, checks: Mapping[str, Any], context: Context) -> None:
    for check, run_check in checks.items():
        context.say(f"checking: {check}")
        wrong = run_check()
        if wrong is not None:
            raise NarrowsError(
                f"expected the gate of {name} to hold, got a failure of the check {check!r} ({wrong}); "
                "nothing was measured, mend that first"
            )


def _reason(group: Group, context: Context, left: float | None) -> str | None:
    """Why a group is not measured in this run."""
    if (missing := group.missing(context)) is not None:
        return missing
    if left is None:
        return None
    if group.quick is None:
        return "full run only"
    if group.quick_seconds > left:
        return f"no time left in a quick run (takes about {group.quick_seconds:.0f} s)"
    return None


def _measured(row: Row, found: Measurement, size: str) -> Line:
    return Line(
        name=f"{row.name} [{size}]" if size else row.name,
        value=found.value,
        unit=row.unit,
        bar=row.bar,
        side=row.side,
        holds=meets(row, found.value),
        peer=str(found.detail.get("peer", row.peer)),
        spread=found.spread,
        arithmetic=found.arithmetic,
        measured=True,
        file=None,
        commit=None,
        date=None,
        note=found.detail.get("note"),
    )


def _carried(row: Row, results: Mapping[str, Any], path: Path, reason: str) -> Line:
    kept = results["rows"].get(row.name)
    if kept is None:
        return Line(
            name=row.name,
            value=None,
            unit=row.unit,
            bar=row.bar,
            side=row.side,
            holds=meets(row, None),
            peer=row.peer,
            spread=None,
            arithmetic=None,
            measured=False,
            file=str(path),
            commit=None,
            date=None,
            note=f"{reason}; never measured in a full run",
        )
    fresh = kept["digest"] == digest(row.sources)
    holds = meets(row, kept["value"])
    run_of_row = results["runs"][kept["run"]]
    return Line(
        name=row.name,
        value=kept["value"],
        unit=row.unit,
        bar=row.bar,
        side=row.side,
        holds=None if holds is None else holds and fresh,
        peer=kept["peer"],
        spread=kept["spread"],
        arithmetic=kept["arithmetic"],
        measured=False,
        file=str(path),
        commit=run_of_row["commit"],
        date=run_of_row["date"],
        note=reason if fresh else f"{reason}; older than the code it measures",
    )


def _kept(row: Row, found: Measurement, size: str) -> dict[str, Any]:
    return {
        "value": found.value,
        "unit": row.unit,
        "bar": row.bar,
        "side": row.side,
        "holds": meets(row, found.value),
        "peer": str(found.detail.get("peer", row.peer)),
        "spread": None if found.spread is None else list(found.spread),
        "arithmetic": found.arithmetic,
        "size": _done(size, found),
        "detail": dict(found.detail),
        "sources": list(row.sources),
        "digest": digest(row.sources),
    }


def _done(size: str, found: Measurement) -> str:
    """A size with the rounds that were run: `--rounds`, or an end of the time, makes them others than the row's own."""
    rounds = found.detail.get("rounds")
    return size if rounds is None else re.sub(r"\d+ rounds", f"{rounds} rounds", size)
