"""Rows of ids are what the tokenizer itself makes of a question and a passage, special tokens and segments included."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, FunnelTokenizer, PreTrainedTokenizerFast

from narrows.data import bert_pairs, pair_layout
from narrows.errors import UsageError
from narrows.funnel.authors import with_segments

_WORDS = ["<pad>", "<cls>", "<sep>", "<unk>", "<mask>", "<s>", "</s>", "a", "who", "found", "gold", "mill", "?"]
_TEMPLATES = {
    # XLM-RoBERTa's, and XLNet's, which nothing here can read.
    "two separators": ("<cls>:0 $A:0 <sep>:0", "<cls>:0 $A:0 <sep>:0 <sep>:0 $B:0 <sep>:0"),
    "last": ("$A:0 <sep>:0 <cls>:2", "$A:0 <sep>:0 $B:1 <sep>:1 <cls>:2"),
    "other first": ("<sep>:0 $A:0 <sep>:0", "<sep>:0 $A:0 <sep>:0 $B:1 <sep>:1"),
}


def _tokenizer(template: str | None = None, *, names: list[str] | None = None, pad: str | None = "<pad>"):
    made = Tokenizer(WordLevel({word: number for number, word in enumerate(_WORDS)}, unk_token="<unk>"))
    if template is not None:
        single, pair = _TEMPLATES[template]
        special = [(word, number) for number, word in enumerate(_WORDS[:3])]
        made.post_processor = TemplateProcessing(single=single, pair=pair, special_tokens=special)
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        model_input_names=names or ["input_ids", "attention_mask"],
        pad_token=pad,
        cls_token="<cls>",
        sep_token="<sep>",
        unk_token="<unk>",
    )


def _funnel():
    return with_segments(FunnelTokenizer(vocab={word: number for number, word in enumerate(_WORDS)}))


@pytest.mark.parametrize("kind", ["bert", "funnel", "two separators"])
@pytest.mark.parametrize("passage", ["gold found", "mill gold ? found who gold", "a"])
def test_a_row_is_what_the_tokenizer_makes(kind, passage, tiny_bert: Path) -> None:
    tokenizer = {"bert": lambda: AutoTokenizer.from_pretrained(tiny_bert), "funnel": _funnel}.get(
        kind, lambda: _tokenizer(kind)
    )()
    layout = pair_layout(tokenizer)
    question = "who found gold ?"
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in (question, passage)]
    expected = tokenizer(question, passage, return_token_type_ids=True)
    assert layout.join(*ids) == (expected["input_ids"], expected["token_type_ids"])
    assert len(expected["input_ids"]) == sum(map(len, ids)) + layout.special_tokens
    assert expected.sequence_ids(0).index(1) == layout.passage_start(ids[0])
    assert layout.padding.id == tokenizer.pad_token_id
    assert layout.segmented == (kind != "two separators")


def test_the_first_token_of_a_funnel_is_of_a_segment_of_its_own() -> None:
    layout = pair_layout(_funnel())
    assert layout.join([8, 9], [10]) == ([1, 8, 9, 2, 10, 2], [2, 0, 0, 0, 1, 1])


@given(st.lists(st.integers(5, 99), max_size=9), st.lists(st.integers(5, 99), max_size=9))
def test_the_layout_of_bert(question, passage) -> None:
    layout = bert_pairs(cls=1, sep=2, pad=0)
    input_ids, segments = layout.join(question, passage)
    start = layout.passage_start(question)
    assert len(input_ids) == len(segments) == len(question) + len(passage) + layout.special_tokens
    assert start == len(question) + 2
    assert input_ids == [1, *question, 2, *passage, 2]
    assert segments == [0] * start + [1] * (len(passage) + 1)


@pytest.mark.parametrize("template", [None, "last", "other first"])
def test_another_order_is_refused(template) -> None:
    with pytest.raises(UsageError, match=r"expected a tokenizer that joins a pair as \[CLS\] question .*, got .* with"):
        pair_layout(_tokenizer(template))


def test_a_tokenizer_without_padding_is_refused() -> None:
    with pytest.raises(UsageError, match="expected a fast tokenizer with a pad_token, got .*; load it with AutoTok"):
        pair_layout(_tokenizer("two separators", pad=None))
