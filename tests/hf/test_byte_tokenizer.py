"""The vocabulary of bytes: every text comes back, and no text is read as a special token."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from narrows.data import AS_PLAIN_TEXT, TokenCache, plain_tokens, word_starts
from narrows.hf.byte_tokenizer import byte_tokenizer

PAD, BEGIN, END, MASK = 256, 257, 258, 259
SPELLED = [
    "<pad>",
    "<s>",
    "</s>",
    "<mask>",
    "a <s>b</s><pad> <mask>",
    "\0\x01\x7f\x80\u2028 \t\r\n  x ",
    "Ġ",
    "é👩‍👩‍👧 汉",
]


@pytest.fixture(scope="module", params=["made", "saved", "saved twice"])
def tokenizer(request, tmp_path_factory):
    made = byte_tokenizer()
    for _ in range(("made", "saved", "saved twice").index(request.param)):
        folder = tmp_path_factory.mktemp("bytes")
        made.save_pretrained(folder)
        made = AutoTokenizer.from_pretrained(folder)
    return made


def test_the_vocabulary(tokenizer) -> None:
    assert tokenizer.is_fast and tokenizer.vocab_size == len(tokenizer) == 260
    named = {
        "pad": ("<pad>", PAD),
        "bos": ("<s>", BEGIN),
        "cls": ("<s>", BEGIN),
        "eos": ("</s>", END),
        "sep": ("</s>", END),
        "mask": ("<mask>", MASK),
    }
    for name, expected in named.items():
        assert (getattr(tokenizer, f"{name}_token"), getattr(tokenizer, f"{name}_token_id")) == expected
    assert tokenizer.unk_token is None
    assert sorted(tokenizer.all_special_ids) == [PAD, BEGIN, END, MASK]
    assert sorted(tokenizer.get_vocab().values()) == list(range(260))


# The parametrised fixture is shared by all examples and is not changed by a call.
@given(text=st.text())
@example(text="".join(map(chr, [*range(0x300), *range(0xFFF0, 0x10010)])))
@example(text="".join(SPELLED))
def test_ids_are_the_bytes_and_every_text_comes_back(tokenizer, text) -> None:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert ids == list(text.encode())
    assert tokenizer.decode(ids) == text
    assert tokenizer(text)["input_ids"] == [BEGIN, *ids, END]
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text
    assert tokenizer(text, **AS_PLAIN_TEXT)["input_ids"] == ids
    assert plain_tokens(tokenizer)(text) == ids


@pytest.mark.parametrize("text", SPELLED)
def test_a_spelled_special_token_is_text_unless_it_is_asked_for(tokenizer, text) -> None:
    assert tokenizer.encode(text, add_special_tokens=False) == list(text.encode())
    assert tokenizer.batch_decode([list(text.encode())]) == [text]
    assert tokenizer("a<mask>", add_special_tokens=False, split_special_tokens=False)["input_ids"] == [97, MASK]
    # The call before is not remembered.
    assert tokenizer(text, add_special_tokens=False)["input_ids"] == list(text.encode())


def test_a_byte_stands_for_itself(tokenizer) -> None:
    assert [len(tokenizer.convert_ids_to_tokens(byte)) for byte in range(256)] == [1] * 256
    for byte in range(128):
        assert tokenizer.decode([byte]) == chr(byte)
    assert tokenizer.decode([0xC3, 97, 0xFF]) == "\ufffda\ufffd"
    assert tokenizer.decode([BEGIN, 97, END, PAD]) == "<s>a</s><pad>"


@given(text=st.text(st.characters(max_codepoint=127)))
def test_offsets_of_ascii(tokenizer, text) -> None:
    found = tokenizer(text, return_offsets_mapping=True)
    assert found["offset_mapping"] == [(0, 0), *((place, place + 1) for place in range(len(text))), (0, 0)]


def test_offsets_of_other_characters_hold_all_their_bytes(tokenizer) -> None:
    found = tokenizer("aé漢", add_special_tokens=False, return_offsets_mapping=True)
    assert found["offset_mapping"] == [(0, 1), (1, 2), (1, 2), (2, 3), (2, 3), (2, 3)]


def test_pairs_padding_and_cuts(tokenizer) -> None:
    pair = tokenizer("ab", "c", return_token_type_ids=True)
    assert pair["input_ids"] == [BEGIN, 97, 98, END, 99, END] and pair["token_type_ids"] == [0, 0, 0, 0, 1, 1]
    batch = tokenizer(["abc", ""], padding=True, truncation=True, max_length=4)
    assert batch["input_ids"] == [[BEGIN, 97, 98, END], [BEGIN, END, PAD, PAD]]
    assert batch["attention_mask"] == [[1, 1, 1, 1], [1, 1, 0, 0]]


def test_it_works_with_the_rest_of_the_library(tokenizer, tmp_path) -> None:
    texts = ["", "a <s>\n", "é" * 3]
    cached = TokenCache(tmp_path, tokenizer=tokenizer).tokenize(texts)
    assert [bytes(ids.tolist()).decode() for ids in cached] == texts
    starts = word_starts(tokenizer.convert_ids_to_tokens(list(range(260))))
    assert np.flatnonzero(starts).tolist() == [ord(" ")]
