"""From margins to probabilities and a threshold."""

import math

import numpy as np
import pytest

from narrows.data import Answer, QAExample
from narrows.errors import UsageError
from narrows.evaluation.calibration import answer_probability, choose_threshold, fit_no_answer
from narrows.evaluation.metrics import squad_scores


def test_the_fit_finds_the_rule_that_made_the_labels() -> None:
    generator = np.random.default_rng(0)
    margins = generator.normal(3.0, 4.0, size=20_000)
    answerable = generator.random(20_000) < 1 / (1 + np.exp(-(0.8 * margins - 1.5)))
    scale, bias = fit_no_answer(margins, answerable)
    assert scale == pytest.approx(0.8, abs=0.03)
    assert bias == pytest.approx(-1.5, abs=0.08)


def test_a_fit_that_separates_stays_finite() -> None:
    scale, bias = fit_no_answer([-3.0, -2.0, 2.0, 3.0], [False, False, True, True])
    assert math.isfinite(scale) and math.isfinite(bias)
    assert answer_probability(2.0, scale=scale, bias=bias) > 0.9
    assert answer_probability(-2.0, scale=scale, bias=bias) < 0.1


def test_equal_margins_give_the_share() -> None:
    scale, bias = fit_no_answer([1.0] * 8, [True] * 6 + [False] * 2)
    assert answer_probability(1.0, scale=scale, bias=bias) == pytest.approx(0.75, abs=1e-6)


@pytest.mark.parametrize(
    ("margins", "answerable", "message"),
    [
        ([1.0, 2.0], [True], "expected one label a margin, got 1 for 2 margins; pass the same questions"),
        ([1.0, -math.inf], [True, False], "expected finite margins, got one that is not"),
        ([1.0] * 4, [True] * 4, "expected at least 2 questions with an answer and 2 without, got 4 and 0"),
        (
            [1.0] * 3,
            [True, True, False],
            "expected at least 2 questions with .*, got 2 and 1; calibrate on data",
        ),
    ],
)
def test_what_cannot_be_fitted_is_refused(margins, answerable, message) -> None:
    with pytest.raises(UsageError, match=message):
        fit_no_answer(margins, answerable)


def test_a_probability_does_not_overflow() -> None:
    assert answer_probability(1e6, scale=1.0, bias=0.0) == 1.0
    assert answer_probability(-1e6, scale=1.0, bias=0.0) == 0.0
    assert answer_probability(-math.inf, scale=0.0, bias=9.0) == 0.0


def test_the_threshold_gives_the_f1_it_promises() -> None:
    generator = np.random.default_rng(1)
    examples, probabilities, texts = [], {}, {}
    for number in range(200):
        name, answerable = str(number), bool(number % 2)
        answers = (Answer("gold", 0),) if answerable else ()
        examples.append(QAExample(name, "t", "?", "gold", answers, not answerable))
        probabilities[name] = float(np.clip(generator.normal(0.6 if answerable else 0.4, 0.15), 0, 1))
        texts[name] = "gold" if generator.random() < 0.9 else "lead"
    chosen = choose_threshold(probabilities, texts, examples)

    def scored(threshold: float) -> float:
        final = {name: text if probabilities[name] >= threshold else "" for name, text in texts.items()}
        return squad_scores(final, examples).f1

    assert scored(chosen.threshold) == pytest.approx(chosen.f1)
    assert all(scored(threshold) <= chosen.f1 + 1e-9 for threshold in (*probabilities.values(), 0.0, 1.1))
