"""The file of measured rows, one a family: what was measured, on which machine, with which code."""

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from narrows.errors import UsageError

__all__ = ["describe_run", "digest", "load_results", "record", "results_file", "save_results"]

_PACKAGE = Path(__file__).resolve().parent.parent
_VERSIONS = {"torch": "torch", "transformers": "transformers", "lance": "pylance", "narrows": "narrows"}


def results_file(folder: Path, family: str) -> Path:
    """Where a family's rows are kept."""
    return folder / f"{family}.json"


def load_results(path: Path) -> dict[str, Any]:
    """What is in a results file: `rows` by name, and the `runs` that measured them; empty without a file.

    Raises:
        UsageError: the file is not one of ours.
    """
    if not path.is_file():
        return {"rows": {}, "runs": {}}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {**content, "rows": dict(content["rows"]), "runs": dict(content["runs"])}
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"expected the results of `narrows bench` in {path}, got something else; remove the file"
        ) from error


def save_results(path: Path, results: dict[str, Any]) -> None:
    """Write a results file, whole or not at all; runs that no row names any more are dropped."""
    used = {row["run"] for row in results["rows"].values()}
    content = {**results, "runs": {name: run for name, run in results["runs"].items() if name in used}}
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".json.new")
    unfinished.write_text(json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(unfinished, path)


def record(results: dict[str, Any], run: dict[str, Any], rows: dict[str, dict[str, Any]]) -> None:
    """Put rows of a run in place of what was there under their names."""
    name = run["date"]
    results["runs"][name] = run
    results["rows"].update({row: {**values, "run": name} for row, values in rows.items()})


def digest(sources: Sequence[str], package: Path = _PACKAGE) -> str:
    """sha256 over the names and bytes of the files that a row depends on.

    Args:
        sources: patterns below the package's folder, such as `store/**/*.py`.
        package: that folder.

    Raises:
        UsageError: a pattern that finds no file.
    """
    files: set[Path] = set()
    for pattern in sources:
        found = [path for path in package.glob(pattern) if path.is_file() and "__pycache__" not in path.parts]
        if not found:
            raise UsageError(f"expected files at {pattern} in {package}, got none; correct the sources of the row")
        files.update(found)
    total = hashlib.sha256()
    for path in sorted(files):
        total.update(path.relative_to(package).as_posix().encode() + b"\0")
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def describe_run(*, seed: int) -> dict[str, Any]:
    """The machine, its load, versions and commit, for the results file."""
    import psutil
    import torch

    commit, dirty = _commit()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpu": _cpu_name(),
            "cores": psutil.cpu_count(logical=False),
            "threads": torch.get_num_threads(),
            "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
            "load_average": [round(load, 2) for load in os.getloadavg()],
        },
        "versions": {
            "python": platform.python_version(),
            **{name: _version(package) for name, package in _VERSIONS.items()},
        },
        "commit": commit,
        "dirty": dirty,
        "seed": seed,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> tuple[str | None, bool | None]:
    """The commit of the checkout the package lies in, and whether its code differs; None outside of one."""
    # No optional locks: a look at the tree must not stand in the way of a commit being made.
    git = ["git", "--no-optional-locks", "-C", str(_PACKAGE)]
    try:
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
        status = subprocess.run([*git, "status", "--porcelain", "--", "."], capture_output=True, text=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        return None, None
    return head.stdout.strip(), bool(status.stdout.strip())
