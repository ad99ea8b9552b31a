import pytest

from narrows.bench import report
from narrows.bench.results import record, save_results

RUN = {
    "date": "2026-01-02T03:04:05+00:00",
    "machine": {"cpu": "A CPU", "threads": 2, "memory_gib": 16.0, "load_average": [0.1, 0.2, 0.3]},
    "versions": {"python": "3.12.1", "torch": "2.13.0"},
    "commit": "0123456789abcdef",
    "dirty": False,
    "seed": 0,
}


def _row(**changes):
    row = {
        "value": 2.871, "unit": "×", "bar": 2.7, "side": "at least", "holds": True, "peer": "joint",
        "spread": [2.8, 2.9], "arithmetic": 2.98, "size": "15 rounds", "detail": {}, "digest": "",
    }  # fmt: skip
    return {**row, **changes}


def _results(**rows):
    results = {"rows": {}, "runs": {}}
    record(results, RUN, rows)
    return results


def test_a_table_has_every_row_with_machine_and_commit():
    text = report.tables(_results(fast=_row(), slow=_row(value=1.0, holds=False)))
    assert "commit 0123456789. A CPU, 2 threads, 16.0 GiB, load 0.1" in text
    assert "| fast | 2.87 × | ≥ 2.70 | joint | 2.80 … 2.90 | 2.98 | 15 rounds |" in text
    assert "| slow | 1.00 × **short** |" in text


def test_no_results_say_so():
    assert "Nothing was measured yet" in report.tables({"rows": {}, "runs": {}})


def test_only_the_block_of_a_page_changes(tmp_path):
    save_results(tmp_path / "toy.json", _results(fast=_row()))
    page = "before\n<!-- bench:toy -->\nold\n<!-- /bench -->\nafter\n"
    filled = report.fill(page, tmp_path)
    assert filled.startswith("before\n<!-- bench:toy -->\n2026-01-02") and filled.endswith("<!-- /bench -->\nafter\n")
    assert "old" not in filled
    assert report.fill(filled, tmp_path) == filled


def test_a_block_that_names_rows_holds_these_in_their_order_with_their_date(tmp_path):
    save_results(tmp_path / "toy.json", _results(slow=_row(), fast=_row(value=1.0, holds=False), other=_row()))
    page = "<!-- bench:toy slow fa* never-run -->\n<!-- /bench -->\n<!-- bench:toy never-* -->\n<!-- /bench -->\n"
    lines = report.fill(page, tmp_path).splitlines()
    assert lines[3].startswith("| slow | 2.87 × |") and lines[3].endswith("| 2026-01-02, 0123456789 |")
    assert lines[4].startswith("| fast | 1.00 × **short** |")
    assert lines[5] == "<!-- /bench -->"
    assert lines[7] == "_Nothing was measured yet._"


@pytest.mark.parametrize("name", report.PAGES)
def test_the_tables_are_those_of_the_results_files(name, repository_root):
    page = repository_root / name
    if not page.is_file() or "<!-- bench:" not in page.read_text(encoding="utf-8"):
        pytest.skip(f"{name} has no table of a bench")
    text = page.read_text(encoding="utf-8")
    filled = report.fill(text, repository_root / "benchmarks" / "results")
    assert filled == text, f"{name} differs from the results; run `python -m narrows.bench.report --write`"
