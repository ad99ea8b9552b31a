"""A folder a class, a file a text, as IMDB's and Pang and Lee's reviews; on disk or in a .zip."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from narrows.data.class_layouts.record import ClassExample, Layout, TextExample, require_text
from narrows.data.files import archived_texts, unreadable
from narrows.errors import UsageError

__all__ = ["FOLDERS"]

# IMDB's reviews without a class.
_WITHOUT_A_CLASS = "unsup"


def _read(path: Path, fields: Mapping[str, str], skip: bool) -> Iterator[ClassExample]:
    found = False
    for name, text in archived_texts(path) if path.suffix == ".zip" else _on_disk(path):
        label = name.split("/")[-2]
        if label != _WITHOUT_A_CLASS:
            found = True
            yield TextExample(name, require_text(text, "text", f"{path}: {name}"), None, label)
    if not found:
        raise UsageError(f"{path}: expected .txt files in a folder a class, got none; pass the folder above them.")


def _on_disk(path: Path) -> Iterator[tuple[str, str]]:
    if not path.is_dir():
        raise UsageError(f"{path}: expected a folder or a .zip with a folder a class, got none; check the path.")
    for file in sorted(path.glob("*/*.txt")):
        try:
            yield f"{file.parent.name}/{file.name}", file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise unreadable(file, error) from error


FOLDERS = Layout(_read, TextExample)
"""Texts in the order of their names, so that folds are the same everywhere."""
