"""From a margin (best span over "no answer") to a probability and a threshold, fitted on held-out data."""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from narrows.data import QAExample
from narrows.errors import UsageError
from narrows.evaluation.metrics import best_threshold, f1

__all__ = [
    "AnswerThreshold",
    "NoAnswerRule",
    "answer_probability",
    "choose_balanced_threshold",
    "choose_threshold",
    "fit_no_answer",
]

_STEPS = 100
# Keeps the scale finite when one number separates the two kinds.
_RIDGE = 1e-4


class AnswerThreshold(NamedTuple):
    """An answer whose probability is below the threshold is refused; the F1 (in percent) that this gives."""

    threshold: float
    f1: float


class NoAnswerRule(NamedTuple):
    """An answer is given when `answer_probability(margin)` is at least the threshold."""

    scale: float = 1.0
    bias: float = 0.0
    threshold: float = 0.5


def answer_probability(margin: float, *, scale: float, bias: float) -> float:
    """P(the passage answers) = sigmoid(scale · margin + bias); 0 for a margin of -inf.

    Example:
        >>> answer_probability(0.0, scale=2.0, bias=0.0)
        0.5
    """
    if margin == -math.inf:
        return 0.0
    logit = scale * margin + bias
    return 1 / (1 + math.exp(-logit)) if logit >= 0 else math.exp(logit) / (1 + math.exp(logit))


def fit_no_answer(margins: Sequence[float], answerable: Sequence[bool]) -> tuple[float, float]:
    """Logistic regression of "is answerable" on the margin, by damped Newton steps.

    Args:
        margins: one a question.
        answerable: whether it has an answer, in the same order.

    Returns:
        `(scale, bias)` for `answer_probability`.

    Raises:
        UsageError: unlike lengths, a margin that is not finite, or questions of one kind only.
    """
    values, labels = np.asarray(margins, dtype=np.float64), np.asarray(answerable, dtype=np.float64)
    if len(values) != len(labels):
        raise UsageError(
            f"expected one label a margin, got {len(labels)} for {len(values)} margins; pass the same questions"
        )
    if not np.isfinite(values).all():
        raise UsageError("expected finite margins, got one that is not; leave out questions without a passage")
    with_answer = int(labels.sum())
    if not 2 <= with_answer <= len(labels) - 2:
        raise UsageError(
            "expected at least 2 questions with an answer and 2 without, got "
            f"{with_answer} and {len(labels) - with_answer}; calibrate on data in the layout of SQuAD v2.0"
        )
    # Standard units, so that the ridge means the same for every model.
    centre, spread = values.mean(), values.std() or 1.0
    features = np.stack([(values - centre) / spread, np.ones_like(values)], axis=1)
    slope, offset = _newton(features, labels)
    return float(slope / spread), float(offset - slope * centre / spread)


def choose_threshold(
    probabilities: Mapping[str, float], predictions: Mapping[str, str], examples: Sequence[QAExample]
) -> AnswerThreshold:
    """The threshold on the probability with the best v2.0 F1.

    Args:
        probabilities: question id to P(the passage answers).
        predictions: question id to the best span's text.
        examples: the tune questions.

    Raises:
        UsageError: as `narrows.evaluation.metrics.best_threshold`.
    """
    # Negated, not 1 - p, which would round: a question at the threshold has to be answered.
    chosen = best_threshold({name: -p for name, p in probabilities.items()}, predictions, examples)
    return AnswerThreshold(-chosen.threshold, chosen.f1)


def choose_balanced_threshold(
    probabilities: Mapping[str, float], predictions: Mapping[str, str], examples: Sequence[QAExample]
) -> float:
    """The threshold that keeps right answers and refuses impossible questions in equal measure.

    It has the largest sum of two shares: of the F1 that answering everything would give the questions with an answer,
    what is kept; and of the questions without one, how many are refused. Unlike the threshold of the best v2.0 F1 it
    depends neither on how many of the questions are impossible nor on how often the answers are right: a reader that
    is right half of the time gains F1 by refusing most of what it is asked.

    Args:
        probabilities: question id to P(the passage answers).
        predictions: question id to the best span's text.
        examples: the tune questions.

    Returns:
        The lowest probability that is still answered; of equally good ones the highest.

    Raises:
        UsageError: no impossible question, or no answer that is right in a word.
    """
    rights = {e.id: f1(predictions[e.id], [answer.text for answer in e.answers]) for e in examples if e.answers}
    attainable, impossible = sum(rights.values()), len(examples) - len(rights)
    if not attainable or not impossible:
        raise UsageError(
            f"expected answers that are right and questions without an answer, got F1 {attainable:g} over "
            f"{len(rights)} questions and {impossible} without; calibrate a trained model on data in the layout of "
            "SQuAD v2.0"
        )
    gains = sorted(
        ((probabilities[e.id], rights[e.id] / attainable if e.answers else -1 / impossible) for e in examples),
        reverse=True,
    )
    best, best_total, total = math.inf, -math.inf, 0.0
    # Questions with one probability are answered or not together: no threshold lies between them.
    for probability, group in groupby(gains, key=lambda gain: gain[0]):
        total += sum(gain for _, gain in group)
        if total > best_total:
            best, best_total = probability, total
    return best


def _newton(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    ridge = np.diag([_RIDGE, 0.0])

    def loss(weights: np.ndarray) -> float:
        logits = features @ weights
        return float((np.logaddexp(0, logits) - labels * logits).mean() + weights @ ridge @ weights / 2)

    weights, current = np.zeros(2), math.log(2)
    for _ in range(_STEPS):
        logits = features @ weights
        probabilities = np.exp(-np.logaddexp(0, -logits))
        gradient = features.T @ (probabilities - labels) / len(labels) + ridge @ weights
        if np.abs(gradient).max() < 1e-10:
            break
        curvature = (features * (probabilities * (1 - probabilities))[:, None]).T @ features / len(labels) + ridge
        # The second term keeps it invertible when all margins are equal.
        step = np.linalg.solve(curvature + 1e-12 * np.eye(2), gradient)
        size = 1.0
        while size > 1e-8 and loss(weights - size * step) > current:
            size /= 2
        weights = weights - size * step
        current = loss(weights)
    return weights
