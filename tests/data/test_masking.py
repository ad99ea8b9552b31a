"""Masking: as many tokens as asked for, never a special one, words and spans whole, lengths as the paper has them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from narrows.data.masking import (
    IGNORED,
    LONGEST_SPAN,
    MASKINGS,
    PREDICTED_SHARE,
    choose_units,
    mask_tokens,
    span_lengths,
    word_numbers,
    word_numbers_of,
    word_starts,
)
from narrows.errors import UsageError

MASK, RANDOM = 4, np.arange(1000, 1100)
OF_WORDS = ("whole_word", "word_span")


def _words(sizes: list[int]) -> np.ndarray:
    """The word of each token: words of these many tokens, and for 0 a special token."""
    parts = [np.full(max(size, 1), number if size else -1) for number, size in enumerate(sizes)]
    return np.concatenate([np.empty(0, dtype=int), *parts])


@st.composite
def _rows(draw) -> tuple[np.ndarray, np.ndarray]:
    words = _words(draw(st.lists(st.integers(0, 6), max_size=80)))
    return np.arange(10, 10 + len(words)), words


def _mask(ids, words, strategy: str, num_predict: int, seed: int, **options):
    generator = np.random.default_rng(seed)
    given = {"strategy": strategy, "num_predict": num_predict, "mask_id": MASK, "replacements": RANDOM, **options}
    return mask_tokens(ids, words, generator=generator, **given)


@given(row=_rows(), strategy=st.sampled_from(list(MASKINGS)), num_predict=st.integers(0, 120), seed=st.integers(0, 99))
def test_as_many_as_asked_for_and_none_that_is_special(row, strategy, num_predict, seed) -> None:
    ids, words = row
    masked = _mask(ids, words, strategy, num_predict, seed)
    assert masked.is_masked.sum() == min(num_predict, (words >= 0).sum())
    assert not masked.is_masked[words < 0].any()
    assert (masked.labels[masked.is_masked] == ids[masked.is_masked]).all()
    assert (masked.labels[~masked.is_masked] == IGNORED).all()
    assert (masked.input_ids[~masked.is_masked] == ids[~masked.is_masked]).all()
    seen, before = masked.input_ids[masked.is_masked], ids[masked.is_masked]
    assert ((seen == MASK) | (seen == before) | np.isin(seen, RANDOM)).all()
    again = _mask(ids, words, strategy, num_predict, seed)
    assert all((one == other).all() for one, other in zip(masked, again, strict=True))


@given(row=_rows(), strategy=st.sampled_from(list(MASKINGS)), num_predict=st.integers(0, 120), seed=st.integers(0, 99))
def test_units_are_whole_and_do_not_overlap(row, strategy, num_predict, seed) -> None:
    _, words = row
    units = choose_units(words, strategy=strategy, num_predict=num_predict, generator=np.random.default_rng(seed))
    covered = [place for start, end in units for place in range(start, end)]
    assert len(covered) == len(set(covered)) <= num_predict
    assert all(words[place] >= 0 for place in covered)
    for start, end in units:
        size = len(set(words[start:end].tolist())) if strategy in OF_WORDS else end - start
        assert 1 <= size <= (1 if strategy == "whole_word" else LONGEST_SPAN)
        if strategy in OF_WORDS:
            assert start == 0 or words[start - 1] != words[start]
            assert end == len(words) or words[end - 1] != words[end]


def test_single_tokens_choose_no_units_and_whole_words_leave_none_that_fits() -> None:
    words = _words([0, 3, 2, 1, 0, 4, 2, 0])
    for seed in range(50):
        for num_predict in range(14):
            options = {"num_predict": num_predict, "generator": np.random.default_rng(seed)}
            assert choose_units(words, strategy="single_token", **options) == []
            units = choose_units(words, strategy="whole_word", **options)
            chosen = {words[start] for start, _ in units}
            room = num_predict - sum(end - start for start, end in units)
            others = [(words == word).sum() for word in set(words[words >= 0].tolist()) - chosen]
            assert all(size > room for size in others)


def test_lengths_of_spans_fall_as_one_over_n_plus_one() -> None:
    expected = 1 / np.arange(2, 7) / (1 / np.arange(2, 7)).sum()
    drawn = np.bincount(span_lengths(100_000, np.random.default_rng(0)), minlength=6)[1:] / 100_000
    assert np.abs(drawn - expected).max() < 0.005
    generator = np.random.default_rng(1)
    words = _words([0, *[1] * 254, 0, *[1] * 255, 0])
    chosen = [
        end - start
        for _ in range(400)
        for start, end in choose_units(words, strategy="token_span", num_predict=85, generator=generator)
    ]
    # The first span without room ends a row; it is longer than others, and a little is lost there.
    assert np.abs(np.bincount(chosen, minlength=6)[1:] / len(chosen) - expected).max() < 0.02
    assert len(chosen) / 400 > 85 / (expected @ np.arange(1, 6)) * 0.95


@pytest.mark.parametrize("strategy", MASKINGS)
def test_every_place_is_as_likely(strategy) -> None:
    words = _words([0, *[1, 2, 1, 3] * 30, 0, *[2, 1] * 40, 0])
    counts = np.zeros(len(words))
    for seed in range(1500):
        counts += _mask(np.arange(len(words)), words, strategy, 55, seed).is_masked
    shares = counts[words >= 0] / 1500
    assert abs(shares.mean() - 55 / (words >= 0).sum()) < 1e-9
    if strategy in ("single_token", "token_span"):
        # Six standard deviations. At the ends of a text fewer spans reach a token.
        inner = [place for place in range(6, len(words) - 6) if (words[place - 5 : place + 6] >= 0).all()]
        assert np.abs(counts[inner] / 1500 - shares.mean()).max() < 0.06
    assert shares.min() > 0.05


def test_eight_one_one() -> None:
    ids, words = np.full(20_000, 7), np.arange(20_000)
    seen = _mask(ids, words, "single_token", 20_000, 0).input_ids
    shares = [(seen == MASK).mean(), np.isin(seen, RANDOM).mean(), (seen == 7).mean()]
    assert np.abs(np.array(shares) - [0.8, 0.1, 0.1]).max() < 0.01
    assert (_mask(ids, words, "single_token", 20_000, 0, as_mask=1.0, as_random=0.0).input_ids == MASK).all()


def test_the_papers_numbers() -> None:
    assert int(512 * PREDICTED_SHARE) == 85


def test_words_by_the_marks_of_a_vocabulary() -> None:
    assert word_starts(["[CLS]", "walk", "##ing", "."]).tolist() == [True, True, False, True]
    assert word_starts(["</s>", "▁walk", "ing", "▁"]).tolist() == [False, True, False, True]
    assert word_starts(["<s>", "Ġwalk", "ing", "Ġthe"]).tolist() == [False, True, False, True]
    starts, special = word_starts(["[CLS]", "walk", "##ing"]), np.array([True, False, False])
    assert word_numbers([0, 2, 2, 1, 2, 0, 2, 0], starts=starts, special=special).tolist() == [
        -1,
        0,
        0,
        1,
        1,
        -1,
        2,
        -1,
    ]
    assert word_numbers([], starts=starts, special=special).tolist() == []
    with pytest.raises(UsageError, match="expected a vocabulary that marks words .*, got 2 pieces without a mark"):
        word_starts(["a", "b"])


def test_words_are_those_of_the_tokenizer(tiny_bert) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_bert)
    pieces = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    special = np.isin(np.arange(len(tokenizer)), tokenizer.all_special_ids)
    encoding = tokenizer("Walking homeward, the king's riverboat was (nearly) 1900 years old!", "Zebras?")
    numbers = word_numbers(encoding["input_ids"], starts=word_starts(pieces), special=special)
    theirs = word_numbers_of(encoding.word_ids())
    # Theirs begin again in the second text.
    assert ((numbers >= 0) == (theirs >= 0)).all()
    assert ((np.diff(numbers) != 0) == (np.diff(theirs) != 0)).all()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"strategy": "words"}, "expected a masking strategy of single_token, whole_word, .*, got 'words'"),
        ({"num_predict": -1}, "expected num_predict of at least 0, got -1; the paper's is 85"),
        ({"as_mask": 0.95}, "expected as_mask and as_random from 0 to 1 together, got 0.95 and 0.1"),
        ({"replacements": []}, "expected ids to draw random tokens from, got none"),
        ({"words": [0, 1]}, "expected a word for each of 3 tokens, got 2"),
    ],
)
def test_what_cannot_be_is_said(options, text) -> None:
    given = {"words": [0, 1, 2], "strategy": "single_token", "num_predict": 1, "seed": 0, **options}
    with pytest.raises(UsageError, match=text):
        _mask([5, 6, 7], **given)
