"""`--report` writes over an older report of its kind, and over nothing else."""

import json
from pathlib import Path

import pytest

from narrows.bench import layouts, planted
from narrows.bench.kept import check_report, load_report, save_report
from narrows.errors import UsageError

_OLDER = {"run": {}, "tasks": []}


def test_an_older_report_an_empty_file_and_a_new_name_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    check_report(path, "tasks", [tmp_path / "runs"])
    path.touch()
    check_report(path, "tasks", [tmp_path / "runs"])
    save_report(path, _OLDER)
    check_report(path, "tasks", [tmp_path / "runs"])
    assert load_report(path, "tasks") == _OLDER and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "content", ["{", "[]", "notes", '{"my": "thesis"}', '{"run": {}, "findings": []}', '{"run": {}, "tasks": [NaN]}']
)
def test_other_files_are_left_as_they_are(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(
        UsageError, match="with 'tasks' in .*a.json, got something else; move that file away or name an"
    ):
        check_report(path, "tasks", [tmp_path / "runs"])
    with pytest.raises(UsageError, match="got something else"):
        layouts.load_findings(path)
    assert path.read_text() == content


def test_places_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path, problem in (
        (tmp_path / "folder", "which is a folder or device; name a file"),
        (Path("/dev/full"), "which is a folder or device; name a file"),
        (tmp_path / "no" / "a.json", "which is none; make it first"),
        (tmp_path / "folder" / "a.json", "expected --report outside of the runs in .*; choose another place"),
    ):
        runs = tmp_path / "folder" if path.name == "a.json" and path.parent.is_dir() else tmp_path / "runs"
        with pytest.raises(UsageError, match=problem):
            check_report(path, "tasks", [runs])


def test_reports_with_other_keys(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"run": {}, "tasks": [{"foreign": 1}], "findings": [{"foreign": 1}]}))
    for load in (layouts.load_findings, planted.load_findings):
        with pytest.raises(UsageError, match="in .*a.json, got other keys; write them again"):
            load(path)
