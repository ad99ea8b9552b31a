import gzip
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrows.data.squad import Answer, QAExample, read_squad
from narrows.errors import UsageError
from narrows.evaluation.metrics import best_threshold, exact_match, f1, normalize_answer, squad_scores


def example(name, *answers):
    context = " ".join(answers)
    spans = tuple(Answer(answer, context.index(answer)) for answer in answers)
    return QAExample(name, "T", "Which?", context, spans, impossible=not answers)


EXAMPLES = [example("a", "Denver Broncos", "Broncos"), example("b", "10"), example("n"), example("m")]


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Denver-Broncos!", "denverbroncos"),
        ("A an the", ""),
        ("theatre and another", "theatre and another"),
        ("the-end", "theend"),
        ("U.S.A.\t(1973)", "usa 1973"),
        ("¿Qué?", "¿qué"),
        ("", ""),
    ],
)
def test_normalize_answer(text, normal):
    assert normalize_answer(text) == normal


@pytest.mark.parametrize(
    ("prediction", "golds", "exact", "score"),
    [
        ("the Broncos.", ["Denver Broncos", "broncos"], 1.0, 1.0),
        ("Denver Broncos", ["Broncos"], 0.0, 2 / 3),
        ("a a b b", ["b b b c"], 0.0, 4 / 6),
        ("Carolina", ["Denver"], 0.0, 0.0),
        ("", ["Denver"], 0.0, 0.0),
        ("Denver", [], 0.0, 0.0),
        ("", [], 1.0, 1.0),
        ("The", [""], 1.0, 1.0),
        ("", ["The", "Denver"], 0.0, 0.0),
        ("", ["..."], 1.0, 1.0),
    ],
)
def test_exact_match_and_f1(prediction, golds, exact, score):
    assert exact_match(prediction, golds) == exact
    assert f1(prediction, golds) == pytest.approx(score)


@given(st.text("ab the,", max_size=12), st.lists(st.text("ab the,", max_size=12), max_size=3))
def test_exact_match_is_never_over_f1(prediction, golds):
    assert exact_match(prediction, golds) <= f1(prediction, golds) <= 1


def test_scores_by_hand():
    scores = squad_scores({"a": "Denver", "b": "", "n": "", "m": "wrong", "unknown": "x"}, EXAMPLES)
    assert scores.total == 4 and scores.missing == 0
    assert scores.exact == 25
    assert scores.f1 == pytest.approx(100 * (2 / 3 + 0 + 1 + 0) / 4)
    assert scores.has_answer_exact == 0
    assert scores.has_answer_f1 == pytest.approx(100 / 3)
    assert scores.no_answer_accuracy == 50
    assert scores.balanced_accuracy == 50


def test_missing_predictions_are_wrong():
    scores = squad_scores({"a": "Broncos"}, EXAMPLES)
    assert (scores.exact, scores.f1, scores.total, scores.missing) == (25, 25, 4, 3)
    assert (scores.no_answer_accuracy, scores.balanced_accuracy) == (0, 25)


def test_a_share_of_nothing_is_none():
    answerable = squad_scores({"a": "Broncos", "b": "10"}, EXAMPLES[:2])
    assert (answerable.exact, answerable.no_answer_accuracy, answerable.balanced_accuracy) == (
        100,
        None,
        None,
    )
    impossible = squad_scores({"n": ""}, EXAMPLES[2:3])
    assert (impossible.has_answer_exact, impossible.has_answer_f1, impossible.no_answer_accuracy) == (
        None,
        None,
        100,
    )


def test_no_answer_probability_empties_what_is_over_the_threshold():
    predictions = {"a": "Broncos", "b": "10", "n": "x", "m": "y"}
    values = {"a": 0.1, "b": 0.5, "n": 0.6, "m": 0.2}
    assert squad_scores(predictions, EXAMPLES, no_answer_probability=values).exact == 75
    assert squad_scores(predictions, EXAMPLES, no_answer_probability=values, threshold=0.4).exact == 50


@given(
    st.lists(
        st.tuples(st.integers(-3, 3), st.booleans(), st.sampled_from(["10", "10 x", "z", ""])),
        min_size=1,
        max_size=12,
    )
)
def test_best_threshold_is_best_of_all(rows):
    examples = [example(str(i), *(["10"] if answerable else [])) for i, (_, answerable, _) in enumerate(rows)]
    predictions = {str(i): text for i, (_, _, text) in enumerate(rows)}
    differences = {str(i): float(difference) for i, (difference, _, _) in enumerate(rows)}

    def at(threshold):
        return squad_scores(predictions, examples, no_answer_probability=differences, threshold=threshold).f1

    found = best_threshold(differences, predictions, examples)
    assert math.isfinite(found.threshold)
    assert found.f1 == pytest.approx(at(found.threshold))
    assert found.f1 == pytest.approx(max(at(threshold / 2) for threshold in range(-8, 9)))


def test_impossible_scoring():
    with pytest.raises(UsageError, match="expected each question id once, got 'a' twice; remove one of the two"):
        squad_scores({}, [EXAMPLES[0], EXAMPLES[0]])
    with pytest.raises(UsageError, match="expected at least one example to score, got none; check the titles"):
        squad_scores({}, [])
    with pytest.raises(UsageError, match="a no-answer value for every predicted question, got none for 'a'; pass"):
        squad_scores({"a": "x"}, EXAMPLES, no_answer_probability={})


def test_impossible_thresholds():
    pattern = "expected a prediction and a finite null-score difference for every question, got none for 'a'; pass"
    for differences, predictions in [({}, {"a": "x"}), ({"a": 1.0}, {}), ({"a": math.inf}, {"a": "x"})]:
        with pytest.raises(UsageError, match=pattern):
            best_threshold(differences, predictions, EXAMPLES[:1])
    with pytest.raises(UsageError, match="one example to choose a threshold on, got none; check the titles"):
        best_threshold({}, {}, [])


@pytest.mark.parametrize(
    ("data", "predictions", "exact", "score", "missing"),
    [
        ("dev-v1.1", "pred-v1.1-bert-ensemble", 86.21, 92.20, 0),
        ("dev-v1.1", "pred-v1.1-logistic-regression", 40.14, 50.98, 13),
        ("dev-v2.0", "pred-v2.0-bert-single", 78.74, 81.78, 0),
    ],
)
def test_published_predictions_score_as_published(shared_data, data, predictions, exact, score, missing):
    with gzip.open(shared_data / "squad" / "reference-predictions" / f"{predictions}.json.gz", "rt") as file:
        answers = json.load(file)
    scores = squad_scores(answers, read_squad(shared_data / "squad" / f"{data}.json.gz"))
    assert (round(scores.exact, 2), round(scores.f1, 2), scores.missing) == (exact, score, missing)
