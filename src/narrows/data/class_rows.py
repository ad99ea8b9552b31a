"""Labelled texts as a model reads them: token ids, classes, and batches."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from narrows._plural import count
from narrows._text import shown
from narrows.data.classes import ChoiceExample, ClassExample, TextExample, WordsExample
from narrows.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["IGNORED", "PROBLEMS", "ClassRow", "ClassRows", "collate_classes", "encode_classes", "label_names"]

PROBLEMS: Mapping[str, type] = {
    "classes": TextExample,
    "regression": TextExample,
    "choices": ChoiceExample,
    "tags": WordsExample,
}
"""What is learnt, and the kind of examples that it takes."""

IGNORED = -100
"""The label of a token that has none."""

# The tokenizer is faster over several texts at once.
_AT_ONCE = 256
_INPUTS = ("input_ids", "token_type_ids")


class ClassRow(NamedTuple):
    """One example.

    Attributes:
        inputs: by name, a row of ids for each choice; one row where there are no choices.
        label: the class or the right choice, a number of a regression; of tags those of all words.
        words: of tags, the first token of each word; -1 of a word that was cut off.
    """

    inputs: Mapping[str, tuple[np.ndarray, ...]]
    label: int | float | tuple[int, ...]
    words: tuple[int, ...] = ()


class ClassRows:
    """Encoded examples; made by `encode_classes`.

    Attributes:
        lengths: tokens of each row: of all its choices, as long as the longest.
        truncated: rows that were cut.
        problem: a name of `PROBLEMS`.
    """

    def __init__(self, rows: Sequence[ClassRow], *, problem: str, truncated: int):
        self._rows, self.problem, self.truncated = rows, problem, truncated
        self.lengths = [len(row.inputs["input_ids"]) * max(map(len, row.inputs["input_ids"])) for row in rows]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> ClassRow:
        return self._rows[index]

    @property
    def labels(self) -> list[Any]:
        """The label of every row."""
        return [row.label for row in self._rows]


class _Cut(NamedTuple):
    tokenizer: Any
    max_tokens: int
    truncate: bool


def label_names(examples: Iterable[ClassExample]) -> list[str]:
    """The classes or tags of examples, sorted; numbers by their size. None of choices."""
    names: set[str] = set()
    for example in examples:
        if isinstance(example, TextExample):
            names.add(example.label)
        elif isinstance(example, WordsExample):
            names.update(example.tags)
    return sorted(names, key=int) if all(name.isdecimal() for name in names) else sorted(names)


def encode_classes(
    examples: Sequence[ClassExample],
    tokenizer: Any,
    *,
    problem: str,
    labels: Sequence[str],
    max_tokens: int,
    truncate: bool = False,
) -> ClassRows:
    """Tokenizes examples as `narrows classify` does.

    Args:
        examples: all of the kind that the problem takes.
        tokenizer: of transformers.
        problem: `classes`, `regression`, `choices` or `tags`.
        labels: names of the classes or tags, in the model's order.
        max_tokens: of a row, special ones included.
        truncate: whether longer ones are cut: the longer text of a pair at its end, of choices the text they belong to.

    Raises:
        UsageError: examples of another kind, labels that are unknown or no numbers, choices of different number, or a
            text that is too long.
    """
    cut = _Cut(tokenizer, max_tokens, truncate)
    numbers = {name: index for index, name in enumerate(labels)}
    rows: list[ClassRow] = []
    truncated = 0
    for start in range(0, len(examples), _AT_ONCE):
        part = examples[start : start + _AT_ONCE]
        for example in part:
            if not isinstance(example, PROBLEMS[problem]):
                raise UsageError(
                    f"expected examples for {problem!r}, got {type(example).__name__}; change the format or problem."
                )
        made, cuts = _MAKERS[problem](part, cut, numbers)
        rows += made
        truncated += cuts
    choices = {len(row.inputs["input_ids"]) for row in rows}
    if len(choices) > 1:
        raise UsageError(
            f"expected as many choices in every example, got {min(choices)} and {max(choices)}; leave the others out."
        )
    return ClassRows(rows, problem=problem, truncated=truncated)


def collate_classes(rows: Sequence[ClassRow], *, pad: int, pad_type: int = 0, least: int = 1) -> "dict[str, Tensor]":
    """Rows padded on the right to the longest, and to `least` tokens.

    Returns:
        `input_ids`, `attention_mask` and where the tokenizer makes them `token_type_ids`, `[batch, length]`, or of
        choices `[batch, choices, length]`; `labels`, `[batch]`, or of tags `[batch, length]`.
    """
    # Recipes name what is here, and are read without torch.
    import torch

    several = len(rows[0].inputs["input_ids"]) > 1
    longest = max(least, *(len(ids) for row in rows for ids in row.inputs["input_ids"]))
    batch: dict[str, Tensor] = {}
    for name in rows[0].inputs:
        fill = pad_type if name == "token_type_ids" else pad
        made = np.full((len(rows), len(rows[0].inputs[name]), longest), fill, dtype=np.int64)
        for place, row in enumerate(rows):
            for choice, ids in enumerate(row.inputs[name]):
                made[place, choice, : len(ids)] = ids
        batch[name] = torch.from_numpy(made if several else made[:, 0])
    lengths = torch.tensor([[len(ids) for ids in row.inputs["input_ids"]] for row in rows])
    mask = (torch.arange(longest) < lengths[..., None]).long()
    batch["attention_mask"] = mask if several else mask[:, 0]
    batch["labels"] = _labels(rows, longest)
    return batch


def _labels(rows: Sequence[ClassRow], longest: int) -> "Tensor":
    import torch

    if not isinstance(rows[0].label, tuple):
        return torch.tensor([row.label for row in rows])
    made = torch.full((len(rows), longest), IGNORED)
    for place, row in enumerate(rows):
        assert isinstance(row.label, tuple)
        for token, label in zip(row.words, row.label, strict=True):
            if token >= 0:
                made[place, token] = label
    return made


def _texts(
    part: Sequence[TextExample], cut: _Cut, numbers: Mapping[str, int], *, regression: bool = False
) -> tuple[list[ClassRow], int]:
    ids = [example.id for example in part]
    found, cuts = _encoded(ids, [e.text for e in part], [e.pair for e in part], cut, strategy=True)
    label = _number if regression else lambda example: _class(example.label, example.id, numbers)
    made = zip(found, part, strict=True)
    return [
        ClassRow({n: (inputs[n],) for n in _INPUTS if n in inputs}, label(example)) for inputs, example in made
    ], cuts


def _choices(part: Sequence[ChoiceExample], cut: _Cut, numbers: Mapping[str, int]) -> tuple[list[ClassRow], int]:
    flat = [(example, choice) for example in part for choice in example.choices]
    found, _ = _encoded([e.id for e, _ in flat], [e.text for e, _ in flat], [c for _, c in flat], cut, "only_first")
    rows, cuts, start = [], 0, 0
    for example in part:
        chosen = found[start : start + len(example.choices)]
        start += len(chosen)
        cuts += any("cut" in inputs for inputs in chosen)
        names = [name for name in chosen[0] if name in _INPUTS]
        rows.append(ClassRow({name: tuple(inputs[name] for inputs in chosen) for name in names}, example.label))
    return rows, cuts


def _tagged(part: Sequence[WordsExample], cut: _Cut, numbers: Mapping[str, int]) -> tuple[list[ClassRow], int]:
    options = {"is_split_into_words": True, "split_special_tokens": True, "verbose": False}
    found = cut.tokenizer([list(example.words) for example in part], **options)
    rows, cuts = [], 0
    for place, example in enumerate(part):
        encoding, at = found, place
        if len(found["input_ids"][place]) > cut.max_tokens:
            _require_room(len(found["input_ids"][place]), example.id, cut)
            cuts += 1
            encoding = cut.tokenizer([list(example.words)], **options, truncation=True, max_length=cut.max_tokens)
            at = 0
        firsts: dict[int, int] = {}
        for token, word in enumerate(encoding.word_ids(at)):
            if word is not None:
                firsts.setdefault(word, token)
        inputs = {name: (np.asarray(encoding[name][at], dtype=np.int32),) for name in _INPUTS if name in encoding}
        labels = tuple(_class(tag, example.id, numbers) for tag in example.tags)
        rows.append(ClassRow(inputs, labels, tuple(firsts.get(word, -1) for word in range(len(example.words)))))
    return rows, cuts


def _encoded(
    ids: Sequence[str], texts: Sequence[str], pairs: Sequence[str | None], cut: _Cut, strategy: str | bool
) -> tuple[list[dict[str, Any]], int]:
    """Inputs of each text, with a key `cut` where it was."""
    alone = pairs.count(None)  # type: ignore[attr-defined]
    if 0 < alone < len(pairs):
        raise UsageError("expected texts only, or pairs only, got both; keep them in different recipes.")
    # A text's own "[SEP]" is text.
    options = {"split_special_tokens": True, "verbose": False}
    found = cut.tokenizer(list(texts), None if alone else list(pairs), **options)
    made, cuts = [], 0
    for place, one in enumerate(ids):
        row = {name: found[name][place] for name in _INPUTS if name in found}
        if len(row["input_ids"]) > cut.max_tokens:
            _require_room(len(row["input_ids"]), one, cut)
            pair = None if alone else [pairs[place]]
            try:
                shorter = cut.tokenizer([texts[place]], pair, **options, truncation=strategy, max_length=cut.max_tokens)
            except Exception as error:
                raise _no_room(one, cut) from error
            row = {name: shorter[name][0] for name in row}
            if len(row["input_ids"]) > cut.max_tokens:
                raise _no_room(one, cut)
            cuts += 1
            made.append({"cut": True, **{name: np.asarray(v, dtype=np.int32) for name, v in row.items()}})
        else:
            made.append({name: np.asarray(values, dtype=np.int32) for name, values in row.items()})
    return made, cuts


def _require_room(tokens: int, name: str, cut: _Cut) -> None:
    if not cut.truncate:
        raise UsageError(
            f"expected texts of at most {count(cut.max_tokens, 'token')}, got {tokens:,} in example {shown(name)}; set "
            "data.truncate (--truncate) to read the beginning only, or raise the number."
        )


def _no_room(name: str, cut: _Cut) -> UsageError:
    return UsageError(
        f"expected choices that leave room for their text in {count(cut.max_tokens, 'token')}, got none in example "
        f"{shown(name)}; raise data.max_tokens."
    )


def _class(label: str, name: str, numbers: Mapping[str, int]) -> int:
    if label not in numbers:
        raise UsageError(
            f"expected one of the labels {', '.join(numbers)}, got {shown(label)} in example {shown(name)}; "
            "correct it, or name all labels."
        )
    return numbers[label]


def _number(example: TextExample) -> float:
    try:
        value = float(example.label)
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise UsageError(
            f"expected a number as the label of a regression, got {shown(example.label)} in example "
            f"{shown(example.id)}; correct it, or choose another problem."
        )
    return value


def _numbers(part: Sequence[TextExample], cut: _Cut, numbers: Mapping[str, int]) -> tuple[list[ClassRow], int]:
    return _texts(part, cut, numbers, regression=True)


_MAKERS: Mapping[str, Any] = {"classes": _texts, "regression": _numbers, "choices": _choices, "tags": _tagged}
