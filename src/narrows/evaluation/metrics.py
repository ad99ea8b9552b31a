"""Exact match and F1 of answers, as the official SQuAD v1.1 and v2.0 scripts count them.

The two scripts differ in one place: v2.0 drops references that are empty once normalised (such as "The")
and gives an F1 of 1 to two empty answers. That rule is used for both.
"""

import math
import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from narrows.data.squad import QAExample
from narrows.errors import UsageError

__all__ = [
    "NoAnswerThreshold",
    "SquadScores",
    "best_threshold",
    "exact_match",
    "f1",
    "normalize_answer",
    "squad_scores",
]

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


class SquadScores(NamedTuple):
    """Scores in percent, from 0 to 100. A share of nothing (no impossible question, say) is None.

    Attributes:
        exact: mean exact match over all questions.
        f1: mean F1 over all questions.
        total: questions.
        has_answer_exact: `exact` over the questions that have an answer.
        has_answer_f1: `f1` over the questions that have an answer.
        no_answer_accuracy: impossible questions that got an empty prediction.
        balanced_accuracy: answering or not, as a decision: the mean of `no_answer_accuracy` and of the share
            of answerable questions that got any answer.
        missing: questions without a prediction. They count as wrong everywhere (the v2.0 script leaves
            them out, the v1.1 script counts them).
    """

    exact: float
    f1: float
    total: int
    has_answer_exact: float | None
    has_answer_f1: float | None
    no_answer_accuracy: float | None
    balanced_accuracy: float | None
    missing: int


class NoAnswerThreshold(NamedTuple):
    """A threshold on the null-score difference and the F1 (in percent) that it gives."""

    threshold: float
    f1: float


class _Score(NamedTuple):
    exact: float
    f1: float
    has_answer: bool
    answered: bool | None


def normalize_answer(text: str) -> str:
    """Lower-cases, removes ASCII punctuation and the articles a, an, the, and writes single spaces.

    Example:
        >>> normalize_answer("The  Denver-Broncos!")
        'denverbroncos'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, golds: Sequence[str]) -> float:
    """1.0 when the prediction equals a reference after normalisation, else 0.0.

    Args:
        prediction: the answer given; `""` says that there is none.
        golds: reference answers; with none that has a word, only an empty prediction is right.
    """
    found = normalize_answer(prediction)
    return float(any(found == normalize_answer(gold) for gold in _golds(golds)))


def f1(prediction: str, golds: Sequence[str]) -> float:
    """The best word F1 with a reference, from 0.0 to 1.0.

    Args:
        prediction: the answer given; `""` says that there is none.
        golds: reference answers; with none that has a word, only an empty prediction is right.

    Example:
        >>> f1("the Denver Broncos", ["Broncos", "Carolina"])
        0.6666666666666666
    """
    found = normalize_answer(prediction).split()
    return max(_word_f1(found, normalize_answer(gold).split()) for gold in _golds(golds))


def squad_scores(
    predictions: Mapping[str, str],
    examples: Iterable[QAExample],
    *,
    no_answer_probability: Mapping[str, float] | None = None,
    threshold: float = 0.5,
) -> SquadScores:
    """Scores predictions on SQuAD v1.1 or v2.0.

    Args:
        predictions: question id to answer text; `""` says that there is no answer. Ids that are not in
            `examples` are left aside, so that a whole prediction file can be scored on a part.
        examples: the questions, each id once.
        no_answer_probability: question id to how sure it is that there is no answer, on any scale (a
            probability, or the null-score difference of `best_threshold`). The prediction of a question
            with a value over `threshold` counts as empty.
        threshold: see `no_answer_probability`.

    Returns:
        The scores, in percent.

    Raises:
        UsageError: no examples, an id that stands twice, or a predicted question without a no-answer value.
    """
    scores: dict[str, _Score] = {}
    for example in examples:
        if example.id in scores:
            raise UsageError(f"expected each question id once, got {example.id!r} twice; remove one of the two.")
        prediction = predictions.get(example.id)
        if no_answer_probability is not None and prediction is not None:
            if example.id not in no_answer_probability:
                raise UsageError(
                    f"expected a no-answer value for every predicted question, got none for {example.id!r}; "
                    "pass the values of the same run."
                )
            prediction = prediction if no_answer_probability[example.id] <= threshold else ""
        scores[example.id] = _score(prediction, example)
    if not scores:
        raise UsageError("expected at least one example to score, got none; check the titles that were kept.")
    return _summary(list(scores.values()))


def best_threshold(
    null_score_differences: Mapping[str, float],
    predictions: Mapping[str, str],
    examples: Iterable[QAExample],
) -> NoAnswerThreshold:
    """The threshold that gives the best F1 when every difference over it means "no answer".

    Choose it on a tune split and report with it on another one.

    Args:
        null_score_differences: question id to the score of "no answer" less that of the best span.
        predictions: question id to the best span's text (not yet emptied by any threshold).
        examples: the tune questions.

    Returns:
        The threshold, for `squad_scores(..., no_answer_probability=null_score_differences,
        threshold=...)`, and the F1 it gives here. It is the highest difference that is still answered, or
        just under the lowest when answering nothing is best. Of equal thresholds, the lowest.

    Raises:
        UsageError: no examples, or one without a prediction or a finite difference.
    """
    gains: list[tuple[float, float]] = []
    total = 0.0
    for example in examples:
        difference = null_score_differences.get(example.id, math.nan)
        if example.id not in predictions or not math.isfinite(difference):
            raise UsageError(
                f"expected a prediction and a finite null-score difference for every question, got none for "
                f"{example.id!r}; pass the outputs of one run over these examples."
            )
        unanswered = _score("", example).f1
        total += unanswered
        gains.append((difference, _score(predictions[example.id], example).f1 - unanswered))
    if not gains:
        raise UsageError("expected at least one example to choose a threshold on, got none; check the titles.")
    gains.sort()
    best, best_total = math.nextafter(gains[0][0], -math.inf), total
    # Questions with one difference are answered or not together: no threshold lies between them.
    for difference, group in groupby(gains, key=lambda gain: gain[0]):
        total += sum(gain for _, gain in group)
        if total > best_total:
            best, best_total = difference, total
    return NoAnswerThreshold(best, 100 * best_total / len(gains))


def _golds(golds: Sequence[str]) -> Sequence[str]:
    return [gold for gold in golds if normalize_answer(gold)] or [""]


def _word_f1(found: list[str], gold: list[str]) -> float:
    if not found or not gold:
        return float(found == gold)
    common = (Counter(found) & Counter(gold)).total()
    if common == 0:
        return 0.0
    precision, recall = common / len(found), common / len(gold)
    return 2 * precision * recall / (precision + recall)


def _score(prediction: str | None, example: QAExample) -> _Score:
    has_answer = bool(example.answers)
    if prediction is None:
        return _Score(0.0, 0.0, has_answer, None)
    golds = [answer.text for answer in example.answers]
    answered = bool(normalize_answer(prediction))
    return _Score(exact_match(prediction, golds), f1(prediction, golds), has_answer, answered)


def _summary(scores: Sequence[_Score]) -> SquadScores:
    answerable = [score for score in scores if score.has_answer]
    impossible = [score for score in scores if not score.has_answer]
    no_answer_accuracy = _percent([score.answered is False for score in impossible])
    answer_accuracy = _percent([score.answered is True for score in answerable])
    balanced = None
    if no_answer_accuracy is not None and answer_accuracy is not None:
        balanced = (no_answer_accuracy + answer_accuracy) / 2
    return SquadScores(
        exact=100 * math.fsum(score.exact for score in scores) / len(scores),
        f1=100 * math.fsum(score.f1 for score in scores) / len(scores),
        total=len(scores),
        has_answer_exact=_percent([score.exact for score in answerable]),
        has_answer_f1=_percent([score.f1 for score in answerable]),
        no_answer_accuracy=no_answer_accuracy,
        balanced_accuracy=balanced,
        missing=sum(score.answered is None for score in scores),
    )


def _percent(values: Sequence[float]) -> float | None:
    return 100 * math.fsum(values) / len(values) if values else None
