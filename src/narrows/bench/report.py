"""Results files to Markdown tables, and the tables into the pages that show them.

    python -m narrows.bench.report --write

fills every block `<!-- bench:FAMILY -->` … `<!-- /bench -->` of the pages with all rows, a table a run. A block that
names rows, `<!-- bench:FAMILY f1-teacher minilm-* -->`, holds these alone, in that order, in one table. A block
`<!-- planted:FILE -->` holds a sweep of planted facts by length, `<!-- planted:FILE 512 8192 -->` by distance at these
lengths; a block `<!-- tasks:FILE -->` the test scores of sweeps of the same models over several tasks; a block
`<!-- ratios:FILE -->` a sweep over bottleneck ratios, `<!-- ratios:FILE rule -->` what it says of the article's rule.
"""

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from narrows._text import one_line
from narrows.bench import layouts, ratios
from narrows.bench.planted import distance_table, length_table, load_findings
from narrows.bench.results import load_results, results_file
from narrows.errors import NarrowsError

__all__ = ["PAGES", "chosen_table", "fill", "number", "tables"]

PAGES = (
    "README.md",
    "docs/benchmarks.md",
    "docs/bottleneck.md",
    "docs/deformer.md",
    "docs/funnel.md",
    "docs/mulla.md",
    "docs/training.md",
)
_BLOCK = re.compile(r"(<!-- (bench|planted|ratios|tasks):([\w-]+)((?: [\w*?-]+)*) -->\n).*?(<!-- /\2 -->)", re.DOTALL)
_NOTHING = "_Nothing was measured yet._\n"
_SIDES = {"at least": "≥", "at most": "≤", "below": "<"}


def number(value: float | None) -> str:
    """Three figures, or a dash.

    Example:
        >>> number(2.8712), number(73.149), number(1234.5), number(None)
        ('2.87', '73.1', '1234', '–')
    """
    if value is None:
        return "–"
    size = abs(value)
    return f"{value:.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def tables(results: Mapping[str, Any]) -> str:
    """The rows of a results file as Markdown: a table for each run, its machine above."""
    if not results["rows"]:
        return _NOTHING
    parts = []
    for name, run in sorted(results["runs"].items(), reverse=True):
        rows = {row: values for row, values in results["rows"].items() if values["run"] == name}
        if rows:
            parts.append(f"{_heading(run)}\n\n{_table(rows)}")
    return "\n".join(parts)


def _heading(run: Mapping[str, Any]) -> str:
    machine, versions = run["machine"], run["versions"]
    commit = "no commit" if run["commit"] is None else f"commit {run['commit'][:10]}"
    changed = " with changes" if run["dirty"] else ""
    load = machine["load_average"][0]
    return (
        f"{run['date'][:10]}, {commit}{changed}. {machine['cpu']}, {machine['threads']} threads, "
        f"{machine['memory_gib']} GiB, load {load} at the start; "
        + ", ".join(f"{name} {number}" for name, number in versions.items())
        + "."
    )


def _table(rows: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [
        "| row | value | bar | beside | spread | arithmetic | size |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in sorted(rows):
        row = rows[name]
        arithmetic = "" if row["arithmetic"] is None else number(row["arithmetic"])
        cells = (name, _value(row), _bar(row), row["peer"], _spread(row), arithmetic, row["size"])
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def chosen_table(results: Mapping[str, Any], patterns: Sequence[str]) -> str:
    """One Markdown table of the rows that the patterns name, in their order; what was not measured is left out.

    Each row says when and at which commit it was measured: rows of several runs stand together.
    """
    names = [name for pattern in patterns for name in sorted(results["rows"]) if fnmatchcase(name, pattern)]
    if not names:
        return _NOTHING
    lines = ["| row | value | bar | beside | spread | size | measured |", "|---|---|---|---|---|---|---|"]
    for name in dict.fromkeys(names):
        row = results["rows"][name]
        run = results["runs"][row["run"]]
        measured = f"{run['date'][:10]}, {(run['commit'] or 'no commit')[:10]}"
        cells = (name, _value(row), _bar(row), row["peer"], _spread(row), row["size"], measured)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _value(row: Mapping[str, Any]) -> str:
    return f"{number(row['value'])} {row['unit']}{' **short**' if row['holds'] is False else ''}"


def _bar(row: Mapping[str, Any]) -> str:
    return "" if row["bar"] is None else f"{_SIDES[row['side']]} {number(row['bar'])}"


def _spread(row: Mapping[str, Any]) -> str:
    return "" if row["spread"] is None else " … ".join(number(end) for end in row["spread"])


def fill(page: str, folder: Path) -> str:
    """A page with its blocks filled from the results files in `folder`."""

    def filled(block: re.Match[str]) -> str:
        path, words = results_file(folder, block[3]), block[4].split()
        return block[1] + _MADE[block[2]](path, words) + block[5]

    return _BLOCK.sub(filled, page)


def _bench_tables(path: Path, patterns: Sequence[str]) -> str:
    results = load_results(path)
    return chosen_table(results, patterns) if patterns else tables(results)


def _planted_tables(path: Path, lengths: Sequence[str]) -> str:
    findings = load_findings(path)
    if not findings:
        return _NOTHING
    return "\n".join(distance_table(findings, int(length)) for length in lengths) or length_table(findings)


def _task_table(path: Path, _words: Sequence[str]) -> str:
    findings = layouts.load_findings(path)
    if findings is None:
        return _NOTHING
    run = json.loads(path.read_text(encoding="utf-8"))["run"]
    return f"{_heading(run)}\n\n{layouts.task_table(findings)}"


def _ratio_tables(path: Path, words: Sequence[str]) -> str:
    findings = ratios.load_findings(path)
    if not findings:
        return _NOTHING
    run = json.loads(path.read_text(encoding="utf-8"))["run"]
    table = ratios.rule_table(findings) if list(words) == ["rule"] else ratios.ratio_table(findings)
    return f"{_heading(run)}\n\n{table}"


_MADE = {"bench": _bench_tables, "planted": _planted_tables, "ratios": _ratio_tables, "tasks": _task_table}


def main() -> int:
    """Say which pages differ from the results, or with `--write` mend them; 2 where results cannot be read."""
    try:
        return _main()
    except NarrowsError as error:
        sys.stderr.write(f"narrows.bench.report: error: {one_line(str(error))}\n")
        return error.exit_code


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m narrows.bench.report", description=__doc__)
    parser.add_argument("--write", action="store_true", help="Write the pages; without it only say what differs.")
    parser.add_argument("--root", type=Path, default=Path(), help="The checkout.")
    options = parser.parse_args()
    old = []
    for name in PAGES:
        path = options.root / name
        if not path.is_file():
            continue
        page = path.read_text(encoding="utf-8")
        filled = fill(page, options.root / "benchmarks" / "results")
        if filled != page:
            old.append(name)
            if options.write:
                path.write_text(filled, encoding="utf-8")
    sys.stdout.write(f"{'Written' if options.write else 'Different'}: {', '.join(old) or 'none'}\n")
    return 1 if old and not options.write else 0


if __name__ == "__main__":
    sys.exit(main())
