"""Labelled texts as token ids: as the tokenizer reads them, cut only when asked to, padded without a trace."""

import numpy as np
import pytest
from transformers import AutoTokenizer

from narrows.data import ChoiceExample, TextExample, WordsExample, collate_classes, encode_classes, label_names
from narrows.errors import UsageError

_LONG = " ".join(["river"] * 30)


@pytest.fixture(scope="module")
def tokenizer(tiny_bert):
    return AutoTokenizer.from_pretrained(tiny_bert)


def _encode(examples, tokenizer, problem="classes", labels=("a", "b"), max_tokens=20, truncate=False):
    return encode_classes(examples, tokenizer, problem=problem, labels=labels, max_tokens=max_tokens, truncate=truncate)


def test_names_are_sorted_and_numbers_by_size() -> None:
    assert label_names([TextExample("1", "x", None, n) for n in ("10", "9", "2")]) == ["2", "9", "10"]
    assert label_names([WordsExample("1", ("x", "y"), ("O", "B-X"))]) == ["B-X", "O"]
    assert label_names([ChoiceExample("1", "x", ("y", "z"), 0)]) == []


def test_texts_and_pairs_are_read_as_the_tokenizer_does(tokenizer) -> None:
    alone = _encode([TextExample("1", "the king [SEP]", None, "b")], tokenizer)
    expected = tokenizer("the king [SEP]", split_special_tokens=True)["input_ids"]
    assert alone[0].inputs["input_ids"][0].tolist() == expected and alone[0].label == 1
    pair = _encode([TextExample("1", "the king", "a river", "a")], tokenizer)[0]
    both = tokenizer("the king", "a river")
    assert {name: rows[0].tolist() for name, rows in pair.inputs.items()} == {
        name: both[name] for name in ("input_ids", "token_type_ids")
    }


def test_longer_texts_are_refused_or_cut_and_counted(tokenizer) -> None:
    texts = [TextExample("x", _LONG, None, "a"), TextExample("y", "short", None, "a")]
    with pytest.raises(UsageError, match="at most 20 tokens, got 32 in example 'x'; set data.truncate"):
        _encode(texts, tokenizer)
    rows = _encode(texts, tokenizer, truncate=True)
    assert (
        rows.truncated == 1 and rows.lengths[0] == 20 and rows[0].inputs["input_ids"][0][-1] == tokenizer.sep_token_id
    )


def test_of_choices_the_text_is_cut_and_the_choices_stay(tokenizer) -> None:
    example = ChoiceExample("x", _LONG, ("old mill", "gold"), 1)
    rows = _encode([example], tokenizer, "choices", (), truncate=True)
    assert rows.truncated == 1 and rows.lengths == [2 * 20]
    assert all(
        "mill" in tokenizer.decode(ids) or "gold" in tokenizer.decode(ids) for ids in rows[0].inputs["input_ids"]
    )
    with pytest.raises(UsageError, match="expected choices that leave room for their text in 20 tokens, got none in"):
        _encode([ChoiceExample("x", "a", (_LONG, "b"), 0)], tokenizer, "choices", (), truncate=True)
    with pytest.raises(UsageError, match="expected as many choices in every example, got 2 and 3; leave the others"):
        others = ChoiceExample("y", "a", ("b", "c", "d"), 0)
        _encode([ChoiceExample("x", "a", ("b", "c"), 0), others], tokenizer, "choices", ())


def test_a_word_is_tagged_at_its_first_piece(tokenizer) -> None:
    rows = _encode([WordsExample("x", ("qqq", "king"), ("a", "b"))], tokenizer, "tags")
    assert rows[0].words == (1, 4) and rows[0].label == (0, 1)
    batch = collate_classes([rows[0]], pad=0)
    assert batch["labels"].tolist() == [[-100, 0, -100, -100, 1, -100]]
    long = WordsExample("y", ("king",) * 30, ("a",) * 30)
    cut = _encode([long], tokenizer, "tags", truncate=True)
    assert cut.truncated == 1 and cut[0].words[17:20] == (18, -1, -1) and len(cut[0].label) == 30
    with pytest.raises(UsageError, match="expected texts of at most 20 tokens, got 32 in example 'y'"):
        _encode([long], tokenizer, "tags")


def test_padding_is_on_the_right(tokenizer) -> None:
    rows = _encode([TextExample("1", "the king", None, "a"), TextExample("2", "a", None, "b")], tokenizer)
    batch = collate_classes([rows[0], rows[1]], pad=9, pad_type=7)
    assert batch["input_ids"][1].tolist() == [*rows[1].inputs["input_ids"][0].tolist(), 9]
    assert batch["token_type_ids"][1].tolist() == [0, 0, 0, 7]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]] and batch["labels"].tolist() == [0, 1]
    choices = [ChoiceExample("x", "king", ("mill", "old gold"), 1)]
    made = collate_classes([_encode(choices, tokenizer, "choices", ())[0]], pad=0)
    assert made["input_ids"].shape == made["attention_mask"].shape == (1, 2, 6) and made["labels"].tolist() == [1]


def test_a_regression_has_numbers(tokenizer) -> None:
    rows = _encode([TextExample("1", "a", None, "2.5")], tokenizer, "regression", ())
    assert rows.labels == [2.5] and collate_classes([rows[0]], pad=0)["labels"].dtype.is_floating_point
    for wrong in ("good", "nan", "inf"):
        with pytest.raises(UsageError, match=f"expected a number as the label of a regression, got '{wrong}' in"):
            _encode([TextExample("1", "a", None, wrong)], tokenizer, "regression", ())


def test_what_does_not_go_together(tokenizer) -> None:
    text, pair = TextExample("1", "a", None, "a"), TextExample("2", "a", "b", "a")
    with pytest.raises(UsageError, match="expected examples for 'tags', got TextExample; change the format or problem"):
        _encode([text], tokenizer, "tags")
    with pytest.raises(
        UsageError, match="expected texts only, or pairs only, got both; keep them in different recipes"
    ):
        _encode([text, pair], tokenizer)
    with pytest.raises(
        UsageError, match="expected one of the labels a, b, got 'c' in example '3'; correct it, or name"
    ):
        _encode([TextExample("3", "a", None, "c")], tokenizer)
    assert isinstance(_encode([text], tokenizer)[0].inputs["input_ids"][0], np.ndarray)
