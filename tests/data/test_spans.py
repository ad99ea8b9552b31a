from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from narrows.data.spans import SpanEncoder
from narrows.data.squad import Answer, QAExample, read_squad
from narrows.errors import UsageError


@pytest.fixture(scope="module")
def words():
    """One token a word or mark, one id a distinct word: positions can be read off the text."""
    vocabulary = {"[UNK]": 0} | {f"w{number}": number + 1 for number in range(50)}
    model = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    model.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=model, unk_token="[UNK]")


@pytest.fixture(scope="module")
def bytes_with_spaces():
    """Byte-level, and the space before a word counts as part of its token (GPT-2, RoBERTa)."""
    alphabet = {symbol: index for index, symbol in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = [("Ġ", "w"), ("Ġw", "1"), ("w", "1")]
    alphabet |= {"".join(merge): 256 + number for number, merge in enumerate(merges)}
    model = Tokenizer(models.BPE(alphabet, merges))
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=model)


def example(context, *answers, question="w1 w2", name="q"):
    return QAExample(name, "T", question, context, tuple(Answer(text, start) for text, start in answers))


def text_of(feature, context):
    return context[feature.passage_offsets[feature.start][0] : feature.passage_offsets[feature.end][1]]


def numbered(count):
    return " ".join(f"w{number % 50}" for number in range(count))


@st.composite
def word_examples(draw):
    """A text of words and the word spans of up to three answers."""
    count = draw(st.integers(1, 60))
    context = numbered(count)
    starts = [0]
    for word in context.split()[:-1]:
        starts.append(starts[-1] + len(word) + 1)
    spans = []
    for _ in range(draw(st.integers(0, 3))):
        first = draw(st.integers(0, count - 1))
        spans.append((first, draw(st.integers(first, min(count - 1, first + 8)))))
    answers = []
    for first, last in spans:
        end = starts[last] + len(context.split()[last])
        answers.append((context[starts[first] : end], starts[first]))
    return example(context, *answers), spans


@given(data=st.data())
def test_every_window_is_labelled_with_its_first_whole_answer(words, data):
    item, spans = data.draw(word_examples())
    size = data.draw(st.integers(1, 20))
    overlap = data.draw(st.integers(0, size - 1))
    encoder = SpanEncoder(words, max_passage_tokens=size, overlap=overlap)
    features, truncated, misaligned = encoder.encode([item])
    assert (truncated, misaligned) == (0, 0)
    count = len(item.context.split())
    covered = set()
    for feature in features:
        # The words are their own positions up to a multiple of 50, and offsets tell which one.
        base = item.context[: feature.passage_offsets[0][0]].count(" ")
        window = range(base, base + len(feature.passage_ids))
        covered |= set(window)
        inside = [(f, e) for f, e in spans if f in window and e in window]
        expected = (inside[0][0] - base, inside[0][1] - base) if inside else (-1, -1)
        assert (feature.start, feature.end) == expected
        assert feature.answerable == bool(inside)
        if inside:
            assert text_of(feature, item.context) in {answer.text for answer in item.answers}
    assert covered == set(range(count))


def test_offsets_are_those_of_the_whole_context(words):
    item = example(numbered(40))
    for feature in SpanEncoder(words, max_passage_tokens=7, overlap=3).encode([item]).features:
        ids = [int(item.context[start:end][1:]) + 1 for start, end in feature.passage_offsets]
        assert ids == feature.passage_ids
        assert (feature.start, feature.end, feature.answerable) == (-1, -1, False)


def test_examples_are_told_apart_and_share_their_context(words):
    context = numbered(12)
    items = [
        example(context, ("w3", 9)),
        example("w9", ("w9", 0), question="w4"),
        example(context, ("w11", 34), question="w5 w6"),
    ]
    features = SpanEncoder(words, max_passage_tokens=8, overlap=2).encode(items).features
    assert [feature.example for feature in features] == [0, 0, 1, 2, 2]
    assert [feature.question_ids for feature in features] == [[2, 3], [2, 3], [5], [6, 7], [6, 7]]
    assert [feature.start for feature in features] == [3, -1, 0, -1, 7]
    assert features[0].passage_ids is features[3].passage_ids


def test_a_question_is_cut_only_here_and_counted(words):
    items = [example("w1", question=numbered(9)), example("w1", question=numbered(5))]
    features, truncated, _ = SpanEncoder(words, max_question_tokens=5).encode(items)
    assert [feature.question_ids for feature in features] == [[1, 2, 3, 4, 5]] * 2
    assert truncated == 1


@pytest.mark.parametrize(
    ("answer", "tokens", "misaligned"),
    [
        (("w1 w22", 3), (1, 2), 0),
        ((" w1 ", 2), (1, 1), 0),
        (("w2", 6), (2, 2), 1),
        (("2 w3", 8), (2, 3), 1),
        (("2", 8), (2, 2), 1),
    ],
)
def test_an_answer_inside_a_token_takes_the_tokens_that_cover_it(words, answer, tokens, misaligned):
    item = example("w0 w1 w22 w3", answer, answer)
    assert item.context[answer[1] :].startswith(answer[0])
    features, _, counted = SpanEncoder(words).encode([item])
    assert (features[0].start, features[0].end) == tokens
    assert counted == misaligned


def test_an_answer_that_no_token_covers_gives_no_label(tiny_bert):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    item = example("a \u200b b", ("\u200b", 2))
    features, _, misaligned = SpanEncoder(tokenizer).encode([item])
    assert (features[0].start, features[0].end, misaligned) == (-1, -1, 1)


def test_white_space_in_a_token_is_not_in_its_offsets(bytes_with_spaces):
    item = example("w1 w1 é  w1", ("w1", 3), ("é", 6), ("w1", 9))
    encoder = SpanEncoder(bytes_with_spaces)
    for place, answer in enumerate(item.answers):
        only = example(item.context, (answer.text, answer.start), name=str(place))
        features, _, misaligned = encoder.encode([only])
        assert misaligned == 0
        assert text_of(features[0], item.context) == answer.text
        assert features[0].passage_offsets[features[0].start][0] == answer.start


def test_empty_texts_and_no_examples(words):
    encoder = SpanEncoder(words)
    assert encoder.encode([]) == ([], 0, 0)
    (feature,) = encoder.encode([example("", question="")]).features
    assert (feature.question_ids, feature.passage_ids, feature.passage_offsets) == ([], [], [])
    assert not feature.answerable


def test_special_tokens_in_a_text_are_text(tiny_bert):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    before = tokenizer.backend_tokenizer.to_str()
    context = "The [SEP] mark and [CLS] and[MASK]the [PAD] of [UNK] words."
    item = example(context, ("[MASK]", context.index("[MASK]")), question="What is [SEP]?")
    [feature], _, misaligned = SpanEncoder(tokenizer).encode([item])
    assert misaligned == 0 and text_of(feature, context) == "[MASK]"
    assert not set(feature.question_ids + feature.passage_ids) & set(tokenizer.all_special_ids)
    assert "".join(context[start:end] for start, end in feature.passage_offsets) == context.replace(" ", "")
    assert tokenizer.backend_tokenizer.to_str() == before


def test_an_answer_off_its_offset_is_refused(words):
    pattern = "question q: expected the answer 'w2' at character 3 of its context, got 'w1'; correct its start"
    with pytest.raises(UsageError, match=pattern):
        SpanEncoder(words).encode([example("w0 w1 w2", ("w2", 3))])


def test_impossible_encoders(words):
    slow = SimpleNamespace(is_fast=False)
    with pytest.raises(UsageError, match="expected a fast tokenizer .*, got SimpleNamespace; load it with Auto"):
        SpanEncoder(slow)
    with pytest.raises(UsageError, match="expected max_question_tokens of at least 1, got 0; pass a larger one"):
        SpanEncoder(words, max_question_tokens=0)
    with pytest.raises(UsageError, match="expected an overlap from 0 to 99 .* got 128"):
        SpanEncoder(words, max_passage_tokens=100)


def test_squad_labels_are_the_answers(shared_data, tiny_bert):
    from transformers import AutoTokenizer

    encoder = SpanEncoder(AutoTokenizer.from_pretrained(tiny_bert), max_passage_tokens=384, overlap=192)
    items = list(read_squad(shared_data / "squad" / "dev-v1.1.json.gz", titles=["Oxygen", "Chloroplast"]))
    features, _, misaligned = encoder.encode(items)
    labelled = [feature for feature in features if feature.answerable]
    wrong = sum(
        text_of(feature, items[feature.example].context)
        not in {answer.text for answer in items[feature.example].answers}
        for feature in labelled
    )
    assert {feature.example for feature in labelled} == set(range(len(items)))
    assert wrong <= 3 * misaligned < len(labelled) / 10
