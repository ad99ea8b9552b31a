"""Linear probes: how much of a class a plain logistic regression reads off vectors that are not trained for it."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from narrows._optional import require
from narrows.errors import UsageError

__all__ = ["ProbeResult", "linear_probe"]

_PURPOSE = "fit linear probes"
# Inverse strengths of the penalty; the vectors are brought to unit variance first, so that one range serves all.
_STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
_HELD_OUT = 5
_ITERATIONS = 1000


class ProbeResult(NamedTuple):
    """What the probes found.

    Attributes:
        tested: numbers of the texts that were tested, in their order.
        right: whether the class of each was found.
        strengths: the inverse penalty chosen for each part.
        train_texts: texts that the probe of the last part was fitted on.
    """

    tested: list[int]
    right: list[bool]
    strengths: list[float]
    train_texts: int


def linear_probe(vectors: np.ndarray, labels: Sequence[int], parts: Sequence[int], *, seed: int = 0) -> ProbeResult:
    """Tests each part with a logistic regression fitted on all texts outside of it.

    The penalty is chosen on a fifth of the training texts, drawn at random, and the probe is then fitted again on all
    of them: the tested texts choose nothing. Of equal penalties the strongest is taken.

    Args:
        vectors: one a text, finite, `[texts, width]`.
        labels: classes, from 0.
        parts: the number of the part that a text is tested in; -1: it is trained on only.
        seed: of the draw.

    Raises:
        MissingExtraError: scikit-learn is not installed.
        UsageError: unlike numbers of vectors, labels and parts, a vector that is not finite, no part to test, or too
            few texts of each class to train on.

    Example:
        `linear_probe(vectors, labels=[0, 1, 0, 1], parts=[-1, -1, 0, 0]).right`
    """
    classes, places = np.asarray(labels), np.asarray(parts)
    if not len(vectors) == len(classes) == len(places):
        raise UsageError(
            f"expected a vector, a label and a part for each text, got {len(vectors)}, {len(classes)} and "
            f"{len(places)}; pass as many of each."
        )
    if not np.isfinite(vectors).all():
        raise UsageError("expected finite vectors, got NaN or infinity among them; check the encoder.")
    numbers = sorted(set(places[places >= 0].tolist()))
    if not numbers:
        raise UsageError("expected texts to test on, got none; give some of them a part from 0 on.")
    tested, right, strengths, count = [], [], [], 0
    for number in numbers:
        test = np.flatnonzero(places == number)
        train = np.flatnonzero(places != number)
        strength = _choose(vectors[train], classes[train], seed=seed)
        found = _fit(vectors[train], classes[train], strength).predict(vectors[test])
        tested += test.tolist()
        right += (found == classes[test]).tolist()
        strengths.append(strength)
        count = len(train)
    return ProbeResult(tested, right, strengths, count)


def _choose(vectors: np.ndarray, labels: np.ndarray, *, seed: int) -> float:
    order = np.random.default_rng(seed).permutation(len(labels))
    held, kept = order[: len(order) // _HELD_OUT], order[len(order) // _HELD_OUT :]
    if not len(held) or len(set(labels[kept].tolist())) < 2:
        raise UsageError(
            f"expected texts of two classes or more to train on, and a fifth of them to choose the penalty with, got "
            f"{len(order)}; pass more."
        )
    scores = [
        float((_fit(vectors[kept], labels[kept], s).predict(vectors[held]) == labels[held]).mean()) for s in _STRENGTHS
    ]
    return _STRENGTHS[int(np.argmax(scores))]


def _fit(vectors: np.ndarray, labels: np.ndarray, strength: float) -> Any:
    linear: Any = require("sklearn.linear_model", extra="eval", purpose=_PURPOSE)
    pipeline: Any = require("sklearn.pipeline", extra="eval", purpose=_PURPOSE)
    preprocessing: Any = require("sklearn.preprocessing", extra="eval", purpose=_PURPOSE)
    probe = pipeline.make_pipeline(
        preprocessing.StandardScaler(), linear.LogisticRegression(C=strength, max_iter=_ITERATIONS)
    )
    return probe.fit(vectors.astype(np.float64), labels)
