"""Texts with classes, numbers, choices or tags: the public layouts and our own JSON lines, into records."""

from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from types import MappingProxyType

from narrows.data.class_layouts.conll import CONLL
from narrows.data.class_layouts.folders import FOLDERS
from narrows.data.class_layouts.json_lines import JSON_LINES
from narrows.data.class_layouts.listops import LISTOPS
from narrows.data.class_layouts.race import RACE
from narrows.data.class_layouts.record import ChoiceExample, ClassExample, Layout, TextExample, WordsExample
from narrows.data.class_layouts.tables import CSV, GLUE
from narrows.errors import UsageError

__all__ = ["CLASS_LAYOUTS", "ChoiceExample", "ClassExample", "TextExample", "WordsExample", "read_examples"]

CLASS_LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        **GLUE,
        "csv": CSV,
        "folders": FOLDERS,
        "jsonl": JSON_LINES,
        "listops": LISTOPS,
        "race": RACE,
        "conll": CONLL,
    }
)
"""The layouts by name; their files under `class_layouts` say what they hold."""


def read_examples(
    path: str | PathLike[str],
    *,
    layout: str,
    fields: Mapping[str, str] | None = None,
    skip_broken: bool = False,
    folds: int | None = None,
    take: Sequence[int] = (),
    stratified: bool = True,
) -> list[ClassExample]:
    """Reads labelled data.

    Args:
        path: a file, plain or `.gz`; of `folders` a folder or a `.zip`, of `race` a file or a folder.
        layout: a name of `CLASS_LAYOUTS`: GLUE's tasks, `csv` (Yelp, Amazon), `folders` (IMDB, movie reviews),
            `jsonl`, `listops`, `race`, `conll`.
        fields: names in the file of `text`, `pair` and `label` (`csv`, `jsonl`), or numbers of the columns `word` and
            `tag` (`conll`).
        skip_broken: whether lines with another number of columns are left out; otherwise they are refused.
        folds: cuts the examples, in their order, into so many parts of one size.
        take: the numbers of the folds that are kept, from 0; all when empty.
        stratified: whether folds are cut out of each class alike. Not of a regression, where almost every label is a
            class of its own.

    Returns:
        `TextExample`s, `ChoiceExample`s (`race`) or `WordsExample`s (`conll`), in the order of the data.

    Raises:
        UsageError: an unknown layout or field, a file that cannot be read or has no examples, a bad record, or folds
            that do not go together.

    Example:
        `read_examples("RTE/dev.tsv", layout="rte")[0].label`
    """
    if layout not in CLASS_LAYOUTS:
        near = get_close_matches(layout, CLASS_LAYOUTS, n=1)
        raise UsageError(
            f"expected a layout of labelled data ({', '.join(CLASS_LAYOUTS)}), got {layout!r}; "
            + (f"did you mean {near[0]!r}?" if near else "name one of them.")
        )
    chosen = CLASS_LAYOUTS[layout]
    for name in fields or {}:
        if name not in chosen.fields:
            known = ", ".join(chosen.fields) or "none"
            raise UsageError(f"expected fields of the layout {layout} ({known}), got {name!r}; leave it out.")
    examples = list(chosen.read(Path(path), fields or {}, skip_broken))
    if folds is not None or take:
        examples = _folded(examples, folds, take, stratified=stratified)
    if not examples:
        raise UsageError(f"{path}: expected at least one example, got none; check the file.")
    return examples


def _folded(
    examples: list[ClassExample], folds: int | None, take: Sequence[int], *, stratified: bool
) -> list[ClassExample]:
    if folds is None or folds < 1 or not take or not all(0 <= fold < folds for fold in take):
        raise UsageError(
            f"expected folds, and numbers below it to take, got {folds} and {list(take)}; give both, such as "
            "folds: 10, take: [9]."
        )
    groups = [example.label if stratified and isinstance(example, TextExample) else "" for example in examples]
    sizes, seen = Counter(groups), Counter[str]()
    kept = []
    for example, group in zip(examples, groups, strict=True):
        if seen[group] * folds // sizes[group] in take:
            kept.append(example)
        seen[group] += 1
    return kept
