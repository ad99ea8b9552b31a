"""The weight of retrieval and the rule of a store, fitted on what was read once."""

import numpy as np
import pytest

from narrows.data import Answer, QAExample
from narrows.errors import UsageError
from narrows.evaluation.calibration import NoAnswerRule, choose_balanced_threshold
from narrows.evaluation.metrics import f1
from narrows.evaluation.run import Prediction, score
from narrows.evaluation.store_rule import Choice, choose, fit_store_rule


def made_questions(count: int, *, seed: int = 0) -> tuple[dict[str, list[Choice]], list[QAExample]]:
    """Right passages have more words in common, and a margin that says little; half of the questions have none."""
    generator = np.random.default_rng(seed)
    asked, examples = {}, []
    for number in range(count):
        name, answerable = str(number), bool(number % 2)
        choices = [Choice("lead", generator.normal(0, 3), generator.normal(5, 1)) for _ in range(9)]
        if answerable:
            choices.insert(4, Choice("gold", generator.normal(1, 3), generator.normal(11, 1)))
        asked[name] = choices
        answers = (Answer("gold", 0),) if answerable else ()
        examples.append(QAExample(name, "t", "?", "gold", answers, not answerable))
    return asked, examples


def test_a_choice_is_the_best_of_margin_and_words() -> None:
    choices = [Choice("a", 1.0, 8.0), Choice("b", 2.0, 4.0), Choice("c", 2.0, 4.0)]
    assert choose(choices, 0.0) == ("b", 2.0)
    assert choose(choices, 0.5) == ("a", 5.0)
    assert choose([], 0.5) == ("", -float("inf"))


def test_the_fit_finds_that_words_tell_more_than_margins() -> None:
    asked, examples = made_questions(300)
    fitted = fit_store_rule(asked, examples)
    assert fitted.retrieval_weight > 0.5
    assert fitted.curve[fitted.retrieval_weight] > fitted.curve[0.0] + 15
    assert fitted.rule.scale > 0
    fresh, others = made_questions(300, seed=1)
    scores = score(
        {name: choose(choices, fitted.retrieval_weight) for name, choices in fresh.items()}, others, rule=fitted.rule
    ).scores
    assert scores.no_answer_accuracy is not None
    assert scores.f1 > 85 and scores.no_answer_accuracy > 80
    assert fit_store_rule(asked, examples) == fitted


def test_words_that_tell_nothing_get_no_weight() -> None:
    asked, examples = made_questions(300)
    generator = np.random.default_rng(2)
    misleading = {
        name: [Choice(c.text, 8.0 if c.text == "gold" else c.margin, generator.normal(5, 4)) for c in choices]
        for name, choices in asked.items()
    }
    assert fit_store_rule(misleading, examples).retrieval_weight <= 0.15


def test_a_question_for_which_nothing_was_read_is_left_out() -> None:
    asked, examples = made_questions(100)
    fitted = fit_store_rule(asked, examples)
    more = [*examples, QAExample("none", "t", "?", "gold", (Answer("gold", 0),), False)]
    assert fit_store_rule({**asked, "none": []}, more) == fitted


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda asked: dict.fromkeys(asked, []), "expected passages read for the questions, got none for any"),
        (
            lambda asked: {name: [Choice("lead", 1.0, 1.0)] for name in asked},
            "expected larger margins for questions with an answer than for those without, got a scale of 0; train",
        ),
        (
            lambda asked: {name: [Choice("lead", float(int(name) % 2), 0.0)] for name in asked},
            "expected answers that are right and questions without an answer, got F1 0 over 10 questions and 10",
        ),
    ],
)
def test_what_cannot_be_fitted_is_refused(change, message) -> None:
    asked, examples = made_questions(20)
    with pytest.raises(UsageError, match=message):
        fit_store_rule(change(asked), examples)


def test_questions_of_one_kind_are_refused() -> None:
    asked, examples = made_questions(20)
    with pytest.raises(UsageError, match="expected at least 2 questions with an answer and 2 without, got 10 and 0"):
        fit_store_rule(asked, [example for example in examples if example.answers])


def test_the_balanced_threshold_weighs_what_is_kept_against_what_is_refused() -> None:
    generator = np.random.default_rng(3)
    examples, probabilities, texts = [], {}, {}
    for number in range(300):
        name, answerable = str(number), bool(number % 3)
        answers = (Answer("gold", 0),) if answerable else ()
        examples.append(QAExample(name, "t", "?", "gold", answers, not answerable))
        probabilities[name] = round(float(np.clip(generator.normal(0.6 if answerable else 0.4, 0.15), 0, 1)), 2)
        texts[name] = "gold" if generator.random() < 0.3 else "lead"

    def balance(threshold: float) -> float:
        right = {e.id: f1(texts[e.id], ["gold"]) for e in examples if e.answers}
        kept = sum(value for name, value in right.items() if probabilities[name] >= threshold) / sum(right.values())
        refused = [probabilities[e.id] < threshold for e in examples if not e.answers]
        return kept + sum(refused) / len(refused)

    chosen = choose_balanced_threshold(probabilities, texts, examples)
    assert all(balance(value) <= balance(chosen) + 1e-9 for value in (*probabilities.values(), 0.0, 1.1))
    # With one answer in three right, the best F1 would refuse nearly all.
    final = score(
        {name: Prediction(text, probabilities[name]) for name, text in texts.items()},
        examples,
        rule=NoAnswerRule(1.0, 0.0, 1 / (1 + np.exp(-chosen))),
    ).scores
    assert final.no_answer_accuracy is not None and final.has_answer_f1 is not None
    assert 40 < final.no_answer_accuracy < 95 and final.has_answer_f1 > 15
