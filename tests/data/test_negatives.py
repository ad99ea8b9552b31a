import pytest

from narrows.data.negatives import add_unanswerable_pairs
from narrows.data.squad import Answer, QAExample
from narrows.errors import UsageError

RIVER = "The Vistula flows through Warsaw and carries barges."
OTHER_RIVER = "Near Kraków the Vistula is narrow and quick."
BARGES = "Many barges went to GDAŃSK every spring."
FAR = "Elsewhere, the Vistula carries barges on the Nile."


def example(name, context, answer, *, title="Rivers", question="Which city does the Vistula flow through?"):
    return QAExample(name, title, question, context, (Answer(answer, context.index(answer)),))


def rivers():
    return [
        example("warsaw", RIVER, "Warsaw"),
        example("krakow", OTHER_RIVER, "Kraków"),
        example("gdansk", BARGES, "GDAŃSK", question="Where did the barges go?"),
        example("nile", FAR, "Nile", title="Elsewhere"),
    ]


def test_pairs_are_of_the_same_title_and_hold_no_answer():
    examples = rivers()
    result = add_unanswerable_pairs(examples, share=3 / 7, seed=0)
    assert result[:4] == examples
    assert {pair.id for pair in result[4:]} == {"warsaw~neg", "krakow~neg", "gdansk~neg"}
    by_id = {original.id: original for original in examples}
    for pair in result[4:]:
        source = by_id[pair.id.removesuffix("~neg")]
        assert (pair.question, pair.title) == (source.question, source.title)
        assert pair.impossible and pair.answers == ()
        assert pair.context != source.context and pair.context != FAR
        assert source.answers[0].text.casefold() not in pair.context.casefold()


def test_the_context_that_shares_rare_words_is_taken():
    contexts = {pair.id: pair.context for pair in add_unanswerable_pairs(rivers(), share=3 / 7, seed=1)[4:]}
    assert contexts["warsaw~neg"] == OTHER_RIVER
    assert contexts["gdansk~neg"] == RIVER


def test_a_context_with_the_answer_in_another_case_is_not_taken():
    examples = [
        example("a", "Kraków is old.", "Kraków"),
        example("b", "KRAKÓW has a castle.", "castle", question="What stands in the town?"),
    ]
    result = add_unanswerable_pairs(examples, share=1 / 3, seed=0)
    assert [pair.id for pair in result[2:]] == ["b~neg"]


def test_share_counts_what_is_there():
    impossible = QAExample("none", "Rivers", "Which sea?", RIVER, (), True)
    assert len(add_unanswerable_pairs([*rivers(), impossible], share=0.2, seed=0)) == 5
    assert len(add_unanswerable_pairs([*rivers(), impossible], share=1 / 3, seed=0)) == 6
    assert add_unanswerable_pairs(rivers(), share=0, seed=0) == rivers()


def test_the_seed_chooses_the_questions():
    chosen = {add_unanswerable_pairs(rivers(), share=0.2, seed=seed)[4].id for seed in range(20)}
    assert chosen == {"warsaw~neg", "krakow~neg", "gdansk~neg"}
    assert add_unanswerable_pairs(rivers(), share=0.2, seed=3) == add_unanswerable_pairs(rivers(), share=0.2, seed=3)


def test_a_question_that_stands_twice_gives_one_pair():
    result = add_unanswerable_pairs([*rivers()[:2], rivers()[0]], share=0.4, seed=0)
    assert sorted(pair.id for pair in result[3:]) == ["krakow~neg", "warsaw~neg"]


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_share_out_of_range(share):
    with pytest.raises(UsageError, match=f"share of at least 0 and under 1, got {share}; pass one such as 0.33"):
        add_unanswerable_pairs(rivers(), share=share, seed=0)


def test_too_few_contexts():
    pattern = "expected 4 questions with another context .* got 3; pass a smaller share or examples with more"
    with pytest.raises(UsageError, match=pattern):
        add_unanswerable_pairs(rivers(), share=0.5, seed=0)
