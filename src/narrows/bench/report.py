"""Results files to Markdown tables, and the tables into the pages that show them.

    python -m narrows.bench.report --write

fills every block `<!-- bench:FAMILY -->` … `<!-- /bench -->` of README.md and docs/benchmarks.md.
"""

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from narrows.bench.results import load_results, results_file

__all__ = ["PAGES", "fill", "number", "tables"]

PAGES = ("README.md", "docs/benchmarks.md")
_BLOCK = re.compile(r"(<!-- bench:(\w+) -->\n).*?(<!-- /bench -->)", re.DOTALL)
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
        return "_Nothing was measured yet._\n"
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
        bar = "" if row["bar"] is None else f"{_SIDES[row['side']]} {number(row['bar'])}"
        mark = " **short**" if row["holds"] is False else ""
        spread = "" if row["spread"] is None else " … ".join(number(end) for end in row["spread"])
        arithmetic = "" if row["arithmetic"] is None else number(row["arithmetic"])
        cells = (
            name,
            f"{number(row['value'])} {row['unit']}{mark}",
            bar,
            row["peer"],
            spread,
            arithmetic,
            row["size"],
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def fill(page: str, folder: Path) -> str:
    """A page with its blocks filled from the results files in `folder`."""
    return _BLOCK.sub(lambda block: block[1] + tables(load_results(results_file(folder, block[2]))) + block[3], page)


def main() -> int:
    """Say which pages differ from the results, or with `--write` mend them."""
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
