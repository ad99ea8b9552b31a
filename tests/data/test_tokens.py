import pytest
from tokenizers import Tokenizer

from narrows.data.plain import AS_PLAIN_TEXT
from narrows.data.tokens import plain_tokens, tokenizer_rules
from narrows.errors import UsageError

TEXTS = ["A river, and [SEP] of it.", "", "word " * 300, "éü 河"]


@pytest.fixture(scope="module")
def tokenizer(tiny_bert):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny_bert)


def test_ids_are_those_of_transformers(tokenizer):
    tokenize = plain_tokens(tokenizer)
    assert [tokenize(text) for text in TEXTS] == [tokenizer(text, **AS_PLAIN_TEXT)["input_ids"] for text in TEXTS]


def test_ids_of_a_sentencepiece_tokenizer_are_those_of_transformers():
    from transformers import T5Tokenizer

    pieces = ["<pad>", "</s>", "<unk>", "▁", "▁a", "▁river", "r", "i", "v", "e", ",", "."]
    tokenizer = T5Tokenizer(vocab=[(piece, -float(place)) for place, piece in enumerate(pieces)], extra_ids=2)
    texts = ["a river, a", "a river </s> <extra_id_0> a", "  a  ", ""]
    tokenize = plain_tokens(tokenizer)
    assert [tokenize(text) for text in texts] == [tokenizer(text, **AS_PLAIN_TEXT)["input_ids"] for text in texts]
    assert tokenize("a river")[-1] == tokenizer.convert_tokens_to_ids("▁river")


def test_the_rules_are_the_same_after_use_and_the_tokenizer_is_left_alone(tokenizer):
    before = tokenizer_rules(tokenizer)
    tokenizer(TEXTS[:1], truncation=True, max_length=3, padding="max_length")
    assert tokenizer_rules(tokenizer) == before
    assert plain_tokens(tokenizer)(TEXTS[2])[-1] == tokenizer.convert_tokens_to_ids("word")
    assert tokenizer(TEXTS[0], truncation=True, max_length=3)["input_ids"][0] == tokenizer.cls_token_id


def test_a_tokenizer_of_the_library_itself_will_do(tokenizer):
    bare = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    assert plain_tokens(bare)(TEXTS[0]) == plain_tokens(tokenizer)(TEXTS[0])


def test_other_tokenizers_are_refused():
    with pytest.raises(UsageError, match=r"expected a fast tokenizer \(of the tokenizers library\), got str; load it"):
        plain_tokens("bert")
