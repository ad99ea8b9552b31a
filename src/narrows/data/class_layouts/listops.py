"""ListOps: an expression and the digit that it is worth, a line each."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from narrows._plural import count
from narrows._text import shown
from narrows.data.class_layouts.record import ClassExample, Layout, TextExample
from narrows.data.files import lines
from narrows.data.listops import listops_tokens
from narrows.errors import UsageError

__all__ = ["LISTOPS"]

# The header of Long Range Arena's files, whose labels come last.
_LABELS_LAST = ["Source", "Target"]
_LABELS = frozenset(map(str, range(10)))


def _read(path: Path, fields: Mapping[str, str], skip: bool) -> Iterator[ClassExample]:
    last = False
    for number, line in enumerate(lines(path), start=1):
        cells = line.rstrip("\r\n").split("\t")
        if number == 1 and cells == _LABELS_LAST:
            last = True
            continue
        where = f"{path}: line {number}"
        if len(cells) != 2:
            if skip:
                continue
            raise UsageError(
                f"{where}: expected a label and an expression of ListOps with a tab between them, got "
                f"{count(len(cells), 'column')}; correct the line, or set skip_broken to leave such lines out."
            )
        label, expression = reversed(cells) if last else cells
        if label not in _LABELS:
            raise UsageError(f"{where}: expected a label from 0 to 9, got {shown(label)}; correct it.")
        try:
            words = listops_tokens(expression)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from error
        if not words:
            raise UsageError(f"{where}: expected an expression of ListOps, got none; fill it or remove the line.")
        yield TextExample(str(number), " ".join(words), None, label)


LISTOPS = Layout(_read, TextExample)
"""A label and an expression, or as Long Range Arena has them; round brackets are left out, labels are not checked."""
