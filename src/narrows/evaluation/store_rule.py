"""Which of many passages to answer from, and when to refuse: fitted on questions asked of a store."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from narrows.data import QAExample
from narrows.errors import UsageError
from narrows.evaluation.calibration import (
    NoAnswerRule,
    answer_probability,
    choose_balanced_threshold,
    fit_no_answer,
)
from narrows.evaluation.metrics import best_threshold
from narrows.evaluation.run import Prediction

__all__ = ["Choice", "StoreRule", "choose", "fit_store_rule"]

# Logits a standard deviation of BM25: none, then from a tenth on, each √2 times the last.
_WEIGHTS = (0.0, *(0.1 * 2 ** (step / 2) for step in range(15)))


class Choice(NamedTuple):
    """The best span of a passage: its text, its margin over no answer in logits, the passage's `Candidate.evidence`."""

    text: str
    margin: float
    evidence: float


@dataclass(frozen=True)
class StoreRule:
    """How a store is answered from.

    Attributes:
        retrieval_weight: logits that a unit of evidence is worth.
        rule: when the best answer is given; its margins hold the weighted evidence.
        curve: the best F1 (in percent, refused questions counted as in SQuAD v2.0) by weight that was tried.
    """

    retrieval_weight: float
    rule: NoAnswerRule
    curve: Mapping[float, float]


def choose(choices: Sequence[Choice], weight: float) -> Prediction:
    """The choice with the largest margin + weight · evidence, the first of equals; "" and -inf when there is none.

    Example:
        >>> choose([Choice("gold", 1.0, 8.0), Choice("lead", 2.0, 4.0)], 0.5)
        Prediction(text='gold', margin=5.0)
    """
    scored = [Prediction(choice.text, choice.margin + weight * choice.evidence) for choice in choices]
    return max(scored, key=lambda prediction: prediction.margin, default=Prediction("", -math.inf))


def fit_store_rule(asked: Mapping[str, Sequence[Choice]], examples: Sequence[QAExample]) -> StoreRule:
    """Fit the weight of retrieval, then the probability and the threshold of the answers that it chooses.

    The weight is that of the best v2.0 F1, each weight with a threshold of its own; a weight counts with its two
    neighbours, since a peak that they do not share is chance. The threshold is that of `choose_balanced_threshold`.

    Args:
        asked: question id to the choices of the passages read for it.
        examples: the questions, with and without an answer.

    Raises:
        UsageError: under two questions of a kind, no right answer at all, or answers that are no likelier to be given
            to the questions that have one.
    """
    usable = [example for example in examples if asked[example.id]]
    if not usable:
        raise UsageError("expected passages read for the questions, got none for any; check the data")
    chosen = [{example.id: choose(asked[example.id], weight) for example in usable} for weight in _WEIGHTS]
    scores = [_best_f1(predictions, usable) for predictions in chosen]
    best = max(range(len(_WEIGHTS)), key=lambda place: _smooth(scores, place))
    predictions = chosen[best]
    scale, bias = fit_no_answer(
        [predictions[example.id].margin for example in usable], [bool(example.answers) for example in usable]
    )
    if scale <= 0:
        raise UsageError(
            f"expected larger margins for questions with an answer than for those without, got a scale of {scale:.3g}; "
            "train the model further, or calibrate on more questions"
        )
    threshold = choose_balanced_threshold(
        {name: answer_probability(found.margin, scale=scale, bias=bias) for name, found in predictions.items()},
        {name: found.text for name, found in predictions.items()},
        usable,
    )
    return StoreRule(_WEIGHTS[best], NoAnswerRule(scale, bias, threshold), dict(zip(_WEIGHTS, scores, strict=True)))


def _best_f1(predictions: Mapping[str, Prediction], examples: Sequence[QAExample]) -> float:
    nulls = {name: -found.margin for name, found in predictions.items()}
    return best_threshold(nulls, {name: found.text for name, found in predictions.items()}, examples).f1


def _smooth(values: Sequence[float], place: int) -> float:
    near = values[max(place - 1, 0) : place + 2]
    return sum(near) / len(near)
