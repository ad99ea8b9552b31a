"""Percentile bootstrap intervals: how far a score, or a difference, is chance of the test questions."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from narrows.errors import UsageError

__all__ = ["Interval", "MeanInterval", "bootstrap", "bootstrap_score", "paired_bootstrap"]


class Interval(NamedTuple):
    """Mean of `a - b` and its interval; systems differ beyond chance when it does not hold 0."""

    mean_difference: float
    low: float
    high: float


class MeanInterval(NamedTuple):
    """Mean of one system's scores and its interval."""

    mean: float
    low: float
    high: float


def paired_bootstrap(
    a: Sequence[float],
    b: Sequence[float],
    *,
    samples: int = 2000,
    seed: int = 0,
    level: float = 0.95,
) -> Interval:
    """Interval for the difference of two systems that were scored on the same questions.

    Questions are drawn with replacement, and both systems' scores of a drawn question stay together.

    Args:
        a: scores of the first system, one a question.
        b: scores of the second system, for the same questions in the same order.
        samples: resamples to draw.
        seed: of the draws; the same seed gives the same interval.
        level: share of resamples that the interval holds, over 0 and under 1.

    Raises:
        UsageError: the two are not of one length, empty or not finite, or an option is out of range.

    Example:
        >>> paired_bootstrap([1.0, 1.0, 1.0], [0.5, 0.5, 0.5])
        Interval(mean_difference=0.5, low=0.5, high=0.5)
    """
    first, second = _scores(a), _scores(b)
    if len(first) != len(second):
        raise UsageError(
            f"expected scores of the same questions, got {len(first)} and {len(second)}; "
            "pass one score a question for both systems."
        )
    return Interval(*_interval(first - second, samples=samples, seed=seed, level=level))


def bootstrap(a: Sequence[float], *, samples: int = 2000, seed: int = 0, level: float = 0.95) -> MeanInterval:
    """Interval for the mean score of one system; arguments as in `paired_bootstrap`.

    Raises:
        UsageError: `a` is empty or not finite, or an option is out of range.
    """
    return MeanInterval(*_interval(_scores(a), samples=samples, seed=seed, level=level))


def bootstrap_score(
    score: Callable[[np.ndarray], float],
    items: int,
    *,
    samples: int = 1000,
    seed: int = 0,
    level: float = 0.95,
) -> MeanInterval:
    """Interval for a score that is no mean over items, such as F1 or a correlation.

    Args:
        score: of the items of these numbers, of which one may stand several times.
        items: how many there are.
        samples, seed, level: as in `paired_bootstrap`.

    Returns:
        The score of all items once, under `mean`, and its interval.

    Raises:
        UsageError: no items, or an option is out of range.

    Example:
        >>> values = np.array([1.0, 1.0])
        >>> bootstrap_score(lambda chosen: float(values[chosen].max()), 2)
        MeanInterval(mean=1.0, low=1.0, high=1.0)
    """
    if items < 1:
        raise UsageError(f"expected at least 1 item to score, got {items}; pass some.")
    _check_options(samples, level)
    generator = np.random.default_rng(seed)
    found = [score(generator.integers(items, size=items)) for _ in range(samples)]
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return MeanInterval(score(np.arange(items)), float(low), float(high))


def _scores(values: Sequence[float]) -> np.ndarray:
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 1 or len(scores) == 0:
        raise UsageError(f"expected one score a question, got an array of shape {scores.shape}; pass a flat list.")
    if not np.isfinite(scores).all():
        place = int(np.flatnonzero(~np.isfinite(scores))[0])
        raise UsageError(f"expected finite scores, got {scores[place]} at place {place}; remove or correct it.")
    return scores


def _interval(scores: np.ndarray, *, samples: int, seed: int, level: float) -> tuple[float, float, float]:
    _check_options(samples, level)
    generator = np.random.default_rng(seed)
    means = np.empty(samples)
    # One resample at a time: all at once would hold samples x questions indices in memory.
    for sample in range(samples):
        means[sample] = scores[generator.integers(len(scores), size=len(scores))].mean()
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(scores.mean()), float(low), float(high)


def _check_options(samples: int, level: float) -> None:
    if samples < 1:
        raise UsageError(f"expected at least 1 resample, got {samples}; pass a larger number of samples.")
    if not 0 < level < 1:
        raise UsageError(f"expected a level over 0 and under 1, got {level}; pass a fraction such as 0.95.")
