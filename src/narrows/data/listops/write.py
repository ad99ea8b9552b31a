"""Expressions of ListOps in files to train, tune and test on."""

import gzip
import io
import json
import os
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import IO

from narrows.data.listops.generate import ListOps, generate_listops
from narrows.errors import OutputError, UsageError

__all__ = ["write_listops"]

# A twentieth larger than the best, in a quarter of the time.
_LEVEL = 6
# Expressions in a row that were there before, after which no new ones are looked for.
_MOST_REPEATS = 10_000


def write_listops(
    folder: str | PathLike[str],
    *,
    rows: int,
    held_out: int = 2000,
    on_row: Callable[[], object] | None = None,
    **settings: int,
) -> dict[str, Counter[int]]:
    """Writes `train.tsv.gz`, `tune.tsv.gz` and `test.tsv.gz`, a label, a tab and an expression a line.

    No expression stands in them twice. The same arguments give the same files; more rows to train on leave the others
    as they are. Beside them `listops.json` keeps the settings and how often each label comes.

    Args:
        folder: to make; it is there whole or not at all.
        rows: of `train`.
        held_out: rows of `tune`, and of `test`.
        on_row: called after each, for a progress bar.
        settings: of `generate_listops`: `least`, `most`, `max_depth`, `max_arguments`, `seed`.

    Returns:
        By the name of a part, how often each label comes.

    Raises:
        UsageError: no rows, a folder that is there already, settings that do not go together, or fewer expressions than
            are asked for.
        OutputError: the disk is full or cannot be written.

    Example:
        `write_listops("listops", rows=96_000, least=500, most=2000, seed=1)["train"]`
    """
    for name, value in (("rows", rows), ("held_out", held_out)):
        if value < 1:
            raise UsageError(f"expected {name} of at least 1, got {value}; raise it.")
    examples = _different(generate_listops(**settings))
    # In this order, so that what is held out does not depend on how much there is to train on.
    sizes = {"test": held_out, "tune": held_out, "train": rows}
    labels: dict[str, Counter[int]] = {part: Counter() for part in reversed(sizes)}
    with _new_folder(Path(folder)) as partial:
        for part, size in sizes.items():
            with _packed(partial / f"{part}.tsv.gz") as file:
                for _ in range(size):
                    example = next(examples)
                    labels[part][example.label] += 1
                    file.write(f"{example.label}\t{example.expression}\n")
                    if on_row is not None:
                        on_row()
        whole = {"rows": rows, "held_out": held_out, **(generate_listops.__kwdefaults__ or {}), **settings}
        _write_settings(partial / "listops.json", whole, labels)
    return labels


def _different(examples: Iterator[ListOps]) -> Iterator[ListOps]:
    """Those that were not there before."""
    seen: set[bytes] = set()
    repeats = 0
    for example in examples:
        digest = blake2b(example.expression.encode(), digest_size=16).digest()
        repeats = repeats + 1 if digest in seen else 0
        if not repeats:
            seen.add(digest)
            yield example
        elif repeats == _MOST_REPEATS:
            raise UsageError(
                f"expected expressions of ListOps that differ, got no more than about {len(seen):,}; ask for fewer or "
                "longer ones."
            )


@contextmanager
def _packed(path: Path) -> Iterator[IO[str]]:
    # Without a time and a name in it, so that equal expressions are equal files.
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) as packed,
        io.TextIOWrapper(packed, encoding="ascii", newline="\n") as text,
    ):
        yield text


def _write_settings(path: Path, settings: Mapping[str, int], labels: Mapping[str, Counter[int]]) -> None:
    ordered = {part: dict(sorted(found.items())) for part, found in labels.items()}
    path.write_text(json.dumps({**settings, "labels": ordered}, indent=1) + "\n", encoding="utf-8")


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """A folder beside `folder` to write into, which becomes `folder` in one step, or goes."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UsageError(f"expected a new or empty folder to write to, got {folder}; name another or remove it.")
    partial = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # A name of its own, in which a killed process may leave it.
        partial = folder.parent / f".{folder.name[:40]}-{os.getpid()}-{secrets.token_hex(4)}"
        partial.mkdir()
        yield partial
        os.replace(partial, folder)
    except OSError as error:
        raise OutputError(
            f"expected room and permission to write {folder}, got {error.strerror}; make room or choose another place."
        ) from error
    finally:
        if partial is not None:
            shutil.rmtree(partial, ignore_errors=True)
