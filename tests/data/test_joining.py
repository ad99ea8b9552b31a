"""Contexts joined into passages: answers move along, and no neighbour holds another answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrows.data import Answer, QAExample, join_contexts
from narrows.errors import UsageError


def example(name, context, *texts):
    answers = tuple(Answer(text, context.index(text)) for text in texts)
    return QAExample(name, "T", f"question {name}?", context, answers)


def numbered(count):
    return [example(str(n), f"Sentence {n} tells of thing{n}q.", f"thing{n}q") for n in range(count)]


def check(before, after):
    assert (after.id, after.title, after.question, after.impossible) == (
        before.id,
        before.title,
        before.question,
        before.impossible,
    )
    assert before.context in after.context
    assert [answer.text for answer in after.answers] == [answer.text for answer in before.answers]
    for answer in after.answers:
        assert after.context[answer.start : answer.end] == answer.text


@pytest.mark.parametrize("contexts", [2, 3, 5])
def test_neighbours_in_order_and_answers_at_their_offsets(contexts):
    examples = numbered(9)
    places = set()
    for seed in range(20):
        joined = join_contexts(examples, contexts=contexts, seed=seed)
        for number, (before, after) in enumerate(zip(examples, joined, strict=True)):
            check(before, after)
            held = [n for n, other in enumerate(examples) if other.context in after.context]
            assert held == list(range(held[0], held[0] + contexts)) and number in held
            assert after.context == " ".join(examples[n].context for n in held)
            if contexts <= number < 9 - contexts:
                places.add(number - held[0])
    assert places == set(range(contexts)) or contexts == 5


def test_one_context_changes_nothing():
    examples = numbered(4)
    assert join_contexts(examples, contexts=1, seed=0) == examples
    assert join_contexts([], contexts=3, seed=0) == []


def test_a_seed_gives_the_same_places_and_another_others():
    examples = numbered(12)
    assert join_contexts(examples, contexts=3, seed=5) == join_contexts(examples, contexts=3, seed=5)
    assert join_contexts(examples, contexts=3, seed=5) != join_contexts(examples, contexts=3, seed=6)


def test_a_neighbour_with_an_answer_is_passed_over():
    examples = [
        example("a", "KRAKÓW is old.", "old"),
        example("b", "Barges reach Kraków.", "Kraków", "Barges"),
        example("c", "Few barges are left.", "left"),
        example("d", "It rains."),
    ]
    for seed in range(10):
        joined = join_contexts(examples, contexts=4, seed=seed)
        assert joined[1].context == "Barges reach Kraków. It rains."
        assert joined[0].context == " ".join(item.context for item in examples)
        for before, after in zip(examples, joined, strict=True):
            check(before, after)


def test_fewer_contexts_than_asked_for_are_all_taken():
    examples = numbered(3)
    whole = " ".join(item.context for item in examples)
    for before, after in zip(examples, join_contexts(examples, contexts=8, seed=1), strict=True):
        check(before, after)
        assert after.context == whole
    assert join_contexts(examples[:1], contexts=8, seed=1) == examples[:1]


def test_questions_about_one_context_have_it_once():
    context = "The mill and the pond."
    examples = [example("a", context, "mill"), example("b", context, "pond"), example("c", "It rains.", "rains")]
    for before, after in zip(examples, join_contexts(examples, contexts=2, seed=0), strict=True):
        check(before, after)
        assert after.context == f"{context} It rains."


@pytest.mark.parametrize("contexts", [0, -3])
def test_no_context_at_all_is_refused(contexts):
    text = f"^expected at least 1 context in a passage, got {contexts}; pass 1 or more.$"
    with pytest.raises(UsageError, match=text):
        join_contexts(numbered(2), contexts=contexts, seed=0)


_CONTEXTS = st.text(alphabet="abAB é🙂İß.船", min_size=1, max_size=12)


@st.composite
def _examples(draw):
    examples = []
    for number, context in enumerate(draw(st.lists(_CONTEXTS, max_size=8))):
        answers = []
        for _ in range(draw(st.integers(0, 2))):
            start = draw(st.integers(0, len(context) - 1))
            answers.append(Answer(context[start : draw(st.integers(start + 1, len(context)))], start))
        examples.append(QAExample(str(number), "T", "?", context, tuple(answers), not answers))
    return examples


@given(examples=_examples(), contexts=st.integers(1, 10), seed=st.integers(0, 3))
def test_random_examples(examples, contexts, seed):
    joined = join_contexts(examples, contexts=contexts, seed=seed)
    assert len(joined) == len(examples)
    for before, after in zip(examples, joined, strict=True):
        check(before, after)
        assert len(after.context) <= sum(len(item.context) + 1 for item in examples)
        rest = after.context.replace(before.context, "", 1)
        others = [item.context for item in examples if item.context != before.context]
        for answer in before.answers:
            if not any(answer.text.casefold() in other.casefold() for other in others):
                continue
            # A neighbour with the answer is not there, so that what is left has it only across a seam.
            kept = [other for other in others if answer.text.casefold() not in other.casefold()]
            assert len(rest) <= sum(len(other) + 1 for other in kept)
