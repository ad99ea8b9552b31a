"""Texts with a class each: GLUE's tab-separated files, and archives with a folder a class."""

from os import PathLike
from pathlib import Path
from typing import NamedTuple

from narrows.data.files import archived_texts, lines
from narrows.errors import UsageError

__all__ = ["LabelledTexts", "read_labelled"]

TRAIN_ONLY = -1
_FOLDS = 10
_KINDS = "a folder with train.tsv and test.tsv (or .gz), or a .zip with a folder a class"


class LabelledTexts(NamedTuple):
    """Texts and their classes, in parts.

    Attributes:
        texts: all of them.
        labels: the class of each, from 0.
        parts: of each, the number of the part that it is tested in; -1: it is trained on only. A part is tested with
            what was trained on all texts outside of it.
        classes: names of the classes.
    """

    texts: tuple[str, ...]
    labels: tuple[int, ...]
    parts: tuple[int, ...]
    classes: tuple[str, ...]


def read_labelled(path: str | PathLike[str]) -> LabelledTexts:
    """Reads labelled texts; the layout is told by what lies at the path.

    Args:
        path: a folder with `train.tsv[.gz]` and `test.tsv[.gz]`, columns `sentence` and `label` under a header: the
            test file is the one part (GLUE). Or a `.zip` of text files in a folder a class (the movie reviews of Pang
            and Lee): ten parts, by the order of the names in each class, so that every text is tested once.

    Raises:
        UsageError: another layout, a file that cannot be read, or fewer than two classes.

    Example:
        `read_labelled("textcls/nltk/movie_reviews.zip").classes  # ('neg', 'pos')`
    """
    path = Path(path)
    if path.is_dir():
        rows = _read_tables(path)
    elif path.suffix == ".zip":
        rows = _read_archive(path)
    else:
        raise UsageError(f"{path}: expected {_KINDS}, got another one; pass one of these.")
    classes = tuple(sorted({name for _, name, _ in rows}))
    if len(classes) < 2:
        raise UsageError(f"{path}: expected texts of at least 2 classes, got {len(classes)}; check the labels.")
    return LabelledTexts(
        tuple(text for text, _, _ in rows),
        tuple(classes.index(name) for _, name, _ in rows),
        tuple(part for _, _, part in rows),
        classes,
    )


def _read_tables(folder: Path) -> list[tuple[str, str, int]]:
    rows = []
    for name, part in (("train", TRAIN_ONLY), ("test", 0)):
        found = next((folder / n for n in (f"{name}.tsv.gz", f"{name}.tsv") if (folder / n).is_file()), None)
        if found is None:
            raise UsageError(f"{folder}: expected {name}.tsv or {name}.tsv.gz in it, got neither; pass {_KINDS}.")
        for number, line in enumerate(lines(found), start=1):
            parts = line.rstrip("\r\n").split("\t")
            if number == 1 and parts == ["sentence", "label"]:
                continue
            if len(parts) != 2 or not parts[0].strip():
                raise UsageError(
                    f"{found}: line {number}: expected a sentence and a label between a tab, got {line[:60]!r}; "
                    "correct the line."
                )
            rows.append((parts[0].strip(), parts[1], part))
    return rows


def _read_archive(path: Path) -> list[tuple[str, str, int]]:
    by_class: dict[str, list[str]] = {}
    for name, text in archived_texts(path):
        by_class.setdefault(name.split("/")[-2], []).append(text.strip())
    return [
        (text, label, place * _FOLDS // len(texts))
        for label, texts in by_class.items()
        for place, text in enumerate(texts)
    ]
