"""The vocabulary of ListOps: a token a word, also after saving."""

from itertools import islice

import pytest
from transformers import AutoTokenizer

from narrows.data import LISTOPS_TOKENS, evaluate_listops, generate_listops
from narrows.hf.listops_tokenizer import listops_tokenizer


@pytest.fixture(scope="module", params=[False, True], ids=["made", "saved"])
def tokenizer(request, tmp_path_factory):
    made = listops_tokenizer()
    if request.param:
        folder = tmp_path_factory.mktemp("listops")
        made.save_pretrained(folder)
        return AutoTokenizer.from_pretrained(folder)
    return made


def test_every_word_is_a_token(tokenizer) -> None:
    assert tokenizer.convert_ids_to_tokens(list(range(20))) == [
        *LISTOPS_TOKENS,
        "<unk>",
        "<pad>",
        "<s>",
        "</s>",
        "<mask>",
    ]
    assert len(tokenizer) == 20 and tokenizer.convert_tokens_to_ids("7") == 7
    assert (tokenizer.pad_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id) == (16, 17, 18)
    assert (tokenizer.unk_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (15, 17, 18)


def test_expressions_come_back(tokenizer) -> None:
    for label, expression in islice(generate_listops(least=4, most=200), 20):
        ids = tokenizer(expression)["input_ids"]
        assert ids[0] == 17 and ids[-1] == 18 and len(ids) == len(expression.split()) + 2
        back = tokenizer.decode(ids, skip_special_tokens=True)
        assert back == expression and evaluate_listops(back) == label


def test_round_brackets_are_passed_over_and_other_words_unknown(tokenizer) -> None:
    plain = tokenizer("[MAX 2 9 ]")["input_ids"]
    assert tokenizer("( ( ( [MAX 2 ) 9 ) ] )")["input_ids"] == plain == [17, 11, 2, 9, 14, 18]
    assert tokenizer("12 <pad> </s> [ 3", add_special_tokens=False)["input_ids"] == [15, 15, 15, 15, 3]
