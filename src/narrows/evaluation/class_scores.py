"""Scores of classes, numbers and tags, in percent, as functions of which examples are counted."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["accuracy", "f1", "marks_spans", "matthews", "pearson", "score_functions", "spearman", "tag_spans"]

Score = Callable[[np.ndarray], float]
"""The score over examples of these numbers; a number may stand several times."""


def accuracy(predicted: np.ndarray, gold: np.ndarray) -> float:
    """Share of classes that are right."""
    return 100 * float((predicted == gold).mean())


def f1(predicted: np.ndarray, gold: np.ndarray, *, classes: int) -> float:
    """Of two classes the F1 of the second one; of more the mean over those that stand in either array.

    Example:
        >>> f1(np.array([1, 1, 0]), np.array([1, 0, 0]), classes=2)
        66.66666666666667
    """
    table = _table(predicted, gold, classes)
    both = table.sum(0) + table.sum(1)
    each = np.divide(200.0 * table.diagonal(), both, out=np.zeros(classes), where=both > 0)
    return float(each[1] if classes == 2 else each[both > 0].mean())


def matthews(predicted: np.ndarray, gold: np.ndarray, *, classes: int) -> float:
    """Matthews' correlation, of several classes as Gorodkin (2004); 0 where one of the two is constant."""
    table = _table(predicted, gold, classes).astype(np.float64)
    total, right = table.sum(), table.trace()
    given, said = table.sum(1), table.sum(0)
    spread = (total**2 - (said**2).sum()) * (total**2 - (given**2).sum())
    return 0.0 if spread <= 0 else float(100 * (right * total - given @ said) / np.sqrt(spread))


def pearson(predicted: np.ndarray, gold: np.ndarray) -> float:
    """Pearson's correlation; 0 where one of the two is constant."""
    first, second = predicted - predicted.mean(), gold - gold.mean()
    spread = np.sqrt((first @ first) * (second @ second))
    # The mean of equal numbers is not always that number.
    level = 1e-12 * len(gold) * max(1.0, float(np.abs(predicted).max()) * float(np.abs(gold).max()))
    return 0.0 if spread <= level else float(100 * (first @ second) / spread)


def spearman(predicted: np.ndarray, gold: np.ndarray) -> float:
    """Pearson's correlation of the ranks; equal numbers share the mean of theirs."""
    return pearson(_ranks(predicted), _ranks(gold))


def marks_spans(labels: Sequence[str]) -> bool:
    """Whether tags mark spans (IOB), which F1 is counted over.

    Example:
        >>> marks_spans(["O", "B-PER"]), marks_spans(["NOUN", "VERB"])
        (True, False)
    """
    return any(label.startswith(("B-", "I-")) for label in labels)


def tag_spans(tags: Sequence[str]) -> set[tuple[int, int, str]]:
    """What tags in the IOB or IOB2 scheme mark: first word, word behind the last, kind; as conlleval reads them.

    Example:
        >>> sorted(tag_spans(["B-PER", "I-PER", "O", "B-LOC"]))
        [(0, 2, 'PER'), (3, 4, 'LOC')]
    """
    spans, start, kind = set(), 0, ""
    for place, tag in enumerate([*tags, "O"]):
        mark, _, name = tag.partition("-")
        if kind and (mark != "I" or name != kind):
            spans.add((start, place, kind))
            kind = ""
        if mark in ("B", "I") and name and not kind:
            start, kind = place, name
    return spans


def score_functions(problem: str, predicted: Any, gold: Any, *, labels: Sequence[str]) -> dict[str, Score]:
    """The scores of a problem over chosen examples.

    Args:
        problem: `classes`, `regression`, `choices` or `tags`.
        predicted: a class or number an example; of tags a list for each sentence, -1 where a word was not read.
        gold: the same.
        labels: names of classes or tags.

    Returns:
        `accuracy`, `f1` and `matthews` of classes; `pearson` and `spearman`; `accuracy` of choices; of tags
        `accuracy`, over words, and where the tags mark spans (IOB) `f1` over these.
    """
    if problem == "tags":
        return _of_tags(predicted, gold, labels)
    said, given = np.asarray(predicted), np.asarray(gold)
    if problem == "regression":
        kinds: Mapping[str, Any] = {"pearson": pearson, "spearman": spearman}
        return {name: lambda chosen, kind=kind: kind(said[chosen], given[chosen]) for name, kind in kinds.items()}
    scores: dict[str, Score] = {"accuracy": lambda chosen: accuracy(said[chosen], given[chosen])}
    if problem == "classes":
        scores["f1"] = lambda chosen: f1(said[chosen], given[chosen], classes=len(labels))
        scores["matthews"] = lambda chosen: matthews(said[chosen], given[chosen], classes=len(labels))
    return scores


def _of_tags(predicted: Any, gold: Any, labels: Sequence[str]) -> dict[str, Score]:
    both = list(zip(predicted, gold, strict=True))
    right = np.array([sum(p == g for p, g in zip(ours, theirs, strict=True)) for ours, theirs in both])
    words = np.array([len(tags) for tags in gold])
    scores: dict[str, Score] = {"accuracy": lambda chosen: 100 * float(right[chosen].sum() / words[chosen].sum())}
    if marks_spans(labels):
        names = [*labels, "O"]  # -1, a word that was not read, is no part of a span.
        ours = [tag_spans([names[tag] for tag in tags]) for tags in predicted]
        theirs = [tag_spans([names[tag] for tag in tags]) for tags in gold]
        common = np.array([len(one & other) for one, other in zip(ours, theirs, strict=True)])
        marked = np.array([len(one) + len(other) for one, other in zip(ours, theirs, strict=True)])
        scores["f1"] = lambda chosen: 200 * float(common[chosen].sum() / max(1, marked[chosen].sum()))
    return scores


def _table(predicted: np.ndarray, gold: np.ndarray, classes: int) -> np.ndarray:
    """How often each class (rows: given, columns: said)."""
    return np.bincount(gold * classes + predicted, minlength=classes * classes).reshape(classes, classes)


def _ranks(values: np.ndarray) -> np.ndarray:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[places]
