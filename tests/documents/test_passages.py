import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrows.documents import PassageSpan, sentence_around, split_passages
from narrows.documents.sentences import sentences
from narrows.errors import UsageError

PIECES = [
    "word",
    "東京。",
    "é",
    " ",
    "  ",
    "\n",
    "\r\n\r\n",
    ". ",
    "Mr. ",
    "# Head\n",
    "- item\n",
    "| a | b |\n",
    "😀",
    "!",
    "---\n",
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)


def words(text):
    return [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]


def spaced_words(text):
    return [match.span() for match in re.finditer(r"\s?\w+|\s?[^\w\s]|\s", text)]


def pieces(text, **sizes):
    spans = split_passages(text, token_offsets=words(text), **sizes)
    return [text[span.start : span.end] for span in spans]


def split(text):
    return [text[sentence.start : sentence.end] for sentence in sentences(text)]


@pytest.mark.parametrize(
    "expected",
    [
        ["Mr. Smith met Dr. Jones.", "They left."],
        ["See e.g. the map, i.e. No. 5 vs. No. 6.", "Done."],
        ["She said No.", "Then she left."],
        ["J. R. R. Tolkien wrote.", "The U.S. Army read."],
        ["It costs 3.14 euro.", "Or 2.5?", "Yes!", "5 it is."],
        ['He said "Go."', "She went.", "“Really?”", "Yes (of course.)", "End"],
        ['"Stop!" he cried.', "Nobody did..."],
        ["Wait... what is it?", "Éva came.", "Ärger."],
        ["Born in Jan. 1900 on p. 5.", "Good."],
    ],
)
@pytest.mark.parametrize("space", [" ", "\n", "\r\n", "\u00a0"])
def test_latin_sentences(expected, space):
    text = space.join(expected)
    assert split(text) == expected


def test_cjk_sentences_need_no_space():
    assert split("今日は晴れ。「行こう！」はい？😀そう。") == [
        "今日は晴れ。",
        "「行こう！」",
        "はい？",
        "😀そう。",
    ]


def test_markdown_lines():
    text = "Intro one\ngoes on.\n# Head. Line\nBody a. Body b.\n- item one\n  more\n- item two\n1. Third\n"
    text += "| a. B | c |\n|---|\ntail"
    assert split(text) == [
        "Intro one\ngoes on.", "# Head. Line", "Body a.", "Body b.", "- item one\n  more", "- item two",
        "1. Third", "| a. B | c |", "|---|", "tail",
    ]  # fmt: skip
    flags = [(s.opens_paragraph, s.is_heading) for s in sentences(text)]
    assert flags[:4] == [(True, False), (True, True), (True, False), (False, False)]


def test_code_comments_are_not_headings():
    assert not any(s.is_heading for s in sentences("```\n# comment\n```\n"))
    assert any(s.is_heading for s in sentences("```\n# comment\n```\n# Head"))


@given(TEXTS)
def test_sentences_cover_every_visible_character(text):
    covered, last = set(), 0
    for sentence in sentences(text):
        assert last <= sentence.start < sentence.end
        assert text[sentence.start : sentence.end] == text[sentence.start : sentence.end].strip()
        covered.update(range(sentence.start, sentence.end))
        last = sentence.end
    missed = "".join(c for i, c in enumerate(text) if i not in covered and not c.isspace())
    assert set(missed) <= {"-"}


@given(TEXTS, st.sampled_from([words, spaced_words]), st.integers(1, 12), st.data())
def test_passages_keep_their_promises(text, tokenize, max_tokens, data):
    overlap = data.draw(st.integers(0, max_tokens - 1))
    offsets = tokenize(text)
    passages = split_passages(text, token_offsets=offsets, max_tokens=max_tokens, overlap_tokens=overlap)
    covered = 0
    for index, passage in enumerate(passages):
        assert passage.first_token <= covered <= passage.last_token
        assert index == 0 or covered - passage.first_token <= overlap
        assert index == 0 or passage.first_token > passages[index - 1].first_token
        assert passage.last_token - passage.first_token < max_tokens
        assert (passage.start, passage.end) == (
            offsets[passage.first_token][0],
            offsets[passage.last_token][1],
        )
        covered = passage.last_token + 1
    assert covered == len(offsets)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=30), st.integers(7, 20), st.data())
def test_no_sentence_that_fits_is_cut(lengths, max_tokens, data):
    overlap = data.draw(st.integers(0, max_tokens - 1))
    text = " ".join("W" + " w" * (length - 1) + "!" for length in lengths)
    offsets = words(text)
    for passage in split_passages(text, token_offsets=offsets, max_tokens=max_tokens, overlap_tokens=overlap):
        assert text[passage.start] == "W" and text[passage.end - 1] == "!"


def test_packs_sentences_and_repeats_whole_ones():
    text = "A b. C d. E f. G h."
    assert pieces(text, max_tokens=6, overlap_tokens=0) == ["A b. C d.", "E f. G h."]
    assert pieces(text, max_tokens=6, overlap_tokens=4) == ["A b. C d.", "C d. E f.", "E f. G h."]


def test_closes_at_a_paragraph_when_half_full():
    text = "Aa bb cc dd.\n\nEe ff. Gg hh."
    assert pieces(text, max_tokens=9, overlap_tokens=0) == ["Aa bb cc dd.", "Ee ff. Gg hh."]
    short = "Aa.\n\nEe ff. Gg hh."
    assert pieces(short, max_tokens=6, overlap_tokens=0) == ["Aa.\n\nEe ff.", "Gg hh."]


def test_heading_stays_with_what_follows():
    text = "Aa bb. Cc dd.\n# Head\n## Sub\n\nEe ff. Gg."
    assert pieces(text, max_tokens=11, overlap_tokens=0) == ["Aa bb. Cc dd.", "# Head\n## Sub\n\nEe ff. Gg."]


def test_long_sentence_is_cut_between_words_with_overlap():
    text = "one two three four five six seven eight"
    assert pieces(text, max_tokens=4, overlap_tokens=1) == [
        "one two three four", "four five six seven", "seven eight"
    ]  # fmt: skip
    pairs = [(i, i + 1) for i in range(len("abcd efgh")) if i != 4]
    spans = split_passages("abcd efgh", token_offsets=pairs, max_tokens=5, overlap_tokens=0)
    assert [(span.start, span.end) for span in spans] == [(0, 4), (5, 9)]


def test_several_tokens_of_one_character_and_no_tokens():
    assert split_passages(" \n", token_offsets=[], max_tokens=3, overlap_tokens=1) == []
    spans = split_passages("😀", token_offsets=[(0, 1)] * 3, max_tokens=2, overlap_tokens=0)
    assert spans == [PassageSpan(0, 1, 0, 1), PassageSpan(0, 1, 2, 2)]


@pytest.mark.parametrize(
    ("offsets", "max_tokens", "overlap", "message"),
    [
        ([(0, 1)], 0, 0, "expected max_tokens of at least 1, but got 0; pass"),
        ([(0, 1)], 4, 4, "expected overlap_tokens from 0 to 3, less than max_tokens, but got 4; lower"),
        ([(0, 1)], 4, -1, "but got -1; lower"),
        ([(0, 9)], 4, 0, "within the 3 characters of the text, but token 0 is at 0 to 9; tokenize"),
        ([(1, 2), (0, 0)], 4, 0, "but token 1 is at 0 to 0; tokenize"),
    ],
)
def test_usage_errors(offsets, max_tokens, overlap, message):
    with pytest.raises(UsageError, match=message):
        split_passages("abc", token_offsets=offsets, max_tokens=max_tokens, overlap_tokens=overlap)


@pytest.mark.parametrize("unit", ["word ", "Dr. ", "....", "a.b", "。", "- ", "| x ", "\n", "\u3000", "x! "])
def test_five_megabytes_of_anything_finish(unit):
    text = unit * (5_000_000 // len(unit)) + "x"
    step = 500
    offsets = [(i, min(i + step, len(text))) for i in range(0, len(text), step)]
    passages = split_passages(text, token_offsets=offsets, max_tokens=64, overlap_tokens=63)
    assert passages[-1].end == len(text)
    assert sentence_around(text, len(text) // 2, len(text) // 2 + 4)[0] <= len(text) // 2


def test_sentence_around():
    text = "It rained. The boat left Dr. Ito behind. We stayed."
    start = text.index("Ito")
    assert sentence_around(text, start, start + 3) == (11, 40)
    assert sentence_around(text, 3, 15) == (0, 40)
    assert sentence_around(text, 10, 11) == (10, 11)


def test_sentence_around_narrows_between_words():
    text = "start " + "alpha " * 200 + "answer " + "omega " * 200 + "stop."
    start = text.index("answer")
    low, high = sentence_around(text, start, start + 6, max_chars=60)
    assert 40 <= high - low <= 60
    assert set(text[low:high].split()) == {"alpha", "answer", "omega"}
    assert sentence_around(text, start, start + 6, max_chars=2) == (start, start + 6)


@given(TEXTS, st.data(), st.integers(1, 40))
def test_sentence_around_holds_the_span(text, data, max_chars):
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    low, high = sentence_around(text, start, end, max_chars=max_chars)
    assert 0 <= low <= start <= end <= high <= len(text)
    assert high - low <= max(max_chars, end - start)


def test_sentence_around_errors():
    with pytest.raises(UsageError, match="expected a span within the 3 characters of the text, but got 2 to 9; pass"):
        sentence_around("abc", 2, 9)
    with pytest.raises(UsageError, match="expected max_chars of at least 1, but got 0; pass"):
        sentence_around("abc", 1, 2, max_chars=0)
