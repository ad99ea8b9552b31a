"""Questions out of raw text: the hidden words stand at the answers' places, in other sentences than the one asked."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrows.data import Article, cloze_examples

TEXT = (
    "The Old Mill stands beside the river Vistula near the town of Torun. "
    "Barges came to the Old Mill with corn every spring and every autumn. "
    "In 1844 a fire burnt the roof and two of the four stone floors. "
    "A new roof was built after 1844 and the Vistula was made narrower. "
    'The miller said: "We shall build it again." He was right and it was done in two years. '
    "Today the Old Mill is a museum of bread and of the Vistula, open from May on."
)
# Words that are among the commonest of a text answer nothing, so that a text must be larger than they are.
FILLER = Article("Filler", tuple(" ".join(f"w{n}" for n in range(200)) for _ in range(9)))
SHORT = (1, 500)


def made(*paragraphs, seed=0, **options):
    articles = [Article("Mill", tuple(paragraphs)), FILLER]
    options = {"passage_words": SHORT, "per_passage": 50, **options}
    return [example for example in cloze_examples(articles, seed=seed, **options) if example.title == "Mill"]


def check(example, passages):
    """What holds for every example; the sentence asked is found by taking its context out of its passage."""
    assert example.answers and not example.impossible
    assert example.question.endswith("?")
    for answer in example.answers:
        assert example.context[answer.start : answer.end] == answer.text != ""
    assert len({answer.text.casefold() for answer in example.answers}) == 1
    assert len(set(example.answers)) == len(example.answers)
    found = [removed for passage in passages for removed in _removed(passage, example.context)]
    answer = example.answers[0].text
    assert any(_asks(example.question, sentence, answer) for sentence in found)


def _removed(passage, context):
    """Every text that may have been cut out of the passage to leave the context."""
    length = len(passage) - len(context)
    for start in range(len(context) + 1):
        if length > 0 and passage[:start] + passage[start + length :] == context:
            yield passage[start : start + length]


def _asks(question, sentence, answer):
    asked = re.split(r"(?=\b(?:what year|how many|what|who|which)\b)", question[:-1])
    for cut in range(1, len(asked)):
        before, rest = "".join(asked[:cut]), "".join(asked[cut:])
        after = re.sub(r"^(?:what year|how many|what|who|which)", "", rest)
        pattern = rf"{re.escape(before)}(.+){re.escape(after)}[.!?\s]*"
        match = re.fullmatch(pattern, sentence.strip(), re.DOTALL)
        if match and answer.casefold().split() == match[1].casefold().split():
            return True
    return False


def test_what_comes_again_is_asked_for():
    examples = made(TEXT)
    asked = {example.answers[0].text for example in examples}
    assert {"Old Mill", "Vistula", "1844"} <= asked
    for example in examples:
        check(example, [TEXT])
    mill = next(example for example in examples if example.answers[0].text == "Old Mill")
    assert len(mill.answers) == 2
    year = next(example for example in examples if example.answers[0].text == "1844")
    assert "what year" in year.question


def test_the_longest_span_is_taken():
    asked = [example.answers[0].text for example in made(TEXT)]
    assert "Mill" not in asked and "Old" not in asked


def test_numbers_and_terms_have_their_question_words():
    text = (
        "They counted 7,500 birds on the lake beside the quarry. The quarry holds 7,500 tonnes of limestone in all. "
        "Some of the limestone went away by boat."
    )
    questions = {example.answers[0].text: example.question for example in made(text)}
    assert "how many" in questions["7,500"] and "what" in questions["limestone"]


def test_a_seed_gives_the_same_questions_and_another_others():
    assert made(TEXT, seed=3) == made(TEXT, seed=3)
    questions = {tuple(example.question for example in made(TEXT, seed=seed)) for seed in range(6)}
    assert len(questions) > 1


def test_a_passage_has_no_more_questions_than_asked_for():
    assert len(made(TEXT, per_passage=2)) == 2
    assert made(TEXT, per_passage=0) == []
    every = {(example.question, example.answers[0].text) for example in made(TEXT)}
    assert len(every) == len({answer for _, answer in every}) > 2


def test_ids_are_unique_though_a_title_comes_again():
    articles = [Article("Mill", (TEXT, TEXT)), FILLER, Article("Mill", (TEXT,))]
    examples = cloze_examples(articles, seed=0, passage_words=SHORT)
    ids = [example.id for example in examples]
    assert len(set(ids)) == len(ids)
    assert ids[0] == "cloze-Mill-0-0" and any(name.startswith("cloze-Mill~2-0-") for name in ids)


def test_short_paragraphs_are_joined_and_long_passages_left_out():
    first, second = TEXT[: TEXT.index("A new roof")].strip(), TEXT[TEXT.index("A new roof") :]
    joined = made(first, second, passage_words=(len(first.split()) + 1, 500))
    assert joined == made(f"{first} {second}")
    alone = made(first, second, passage_words=(5, 500))
    assert alone and all(example.context in first or example.context in second or example for example in alone)
    for example in alone:
        check(example, [first, second])
    words = len(TEXT.split())
    assert made(TEXT, passage_words=(1, words)) == made(TEXT)
    assert made(TEXT, passage_words=(1, words - 1)) == []
    # What is shorter than the least even when joined is left out too.
    assert made(TEXT, passage_words=(words + 1, words + 9)) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ".",
        "?! ... \"' 1",
        "One sentence only, about the Old Mill and the Old Mill.",
        "渡し船は川を渡る。渡し船は古い。渡し船は川を渡る。",
        "🙂 The 🙂 boat 🙂. 🙂 The 🙂 boat 🙂!",
        "unk unk unk unk unk unk unk. Unk unk unk unk unk unk unk.",
        "İstanbul ﬁne İstanbul. İstanbul ﬁne ﬁne ﬁne ﬁne ﬁne. A ß ẞ SS straßenbahn STRASSENBAHN a b c d e f.",
        "e\u0301 cafe\u0301 a b c d Cafe\u0301. Cafe\u0301 e\u0301 f g h i j.",
        "\u200b\u2028 A\u0000 b",
    ],
)
def test_odd_texts_give_right_examples_or_none(text):
    for example in made(text):
        check(example, [text])
    assert cloze_examples([Article("", (text,))], seed=0, passage_words=(0, 99)) is not None


def test_nothing_gives_nothing():
    assert cloze_examples([], seed=0) == []
    assert cloze_examples([Article("Empty", ())], seed=0) == []


_WORDS = ["Old", "Mill", "Vistula", "the", "of", "1844", "7,500", "limestone", "café", "船", "🙂", "was", "x", "unk"]
_SENTENCES = st.lists(st.sampled_from(_WORDS), min_size=1, max_size=12).map(" ".join)
_MARKED = st.tuples(_SENTENCES, st.sampled_from([".", "!", "?", '."', "", " .", "\n"])).map("".join)
_PARAGRAPHS = st.lists(st.lists(_MARKED, max_size=6).map(" ".join) | st.text(max_size=60), max_size=4)


@given(paragraphs=_PARAGRAPHS, seed=st.integers(0, 3), most=st.integers(0, 4), least=st.integers(0, 20))
def test_random_paragraphs(paragraphs, seed, most, least):
    article = Article("T", tuple(paragraphs))
    passages = [
        " ".join(paragraphs[first:last])
        for first in range(len(paragraphs))
        for last in range(first + 1, len(paragraphs) + 1)
    ]
    for articles in ([article], [article, FILLER]):
        options = {"seed": seed, "per_passage": most, "passage_words": (least, 60)}
        examples = cloze_examples(articles, **options)
        assert examples == cloze_examples(iter(articles), **options)
        mine = [example for example in examples if example.title == "T"]
        assert len(mine) <= most * len(paragraphs)
        assert len({example.id for example in mine}) == len(mine)
        for example in mine:
            check(example, passages)
            assert len(example.context.split()) <= 60
