"""A tokenizer's digest says how it cuts texts, not how it was last called."""

from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from narrows.hf.tokenizers import tokenizer_digest

WORDS = {"[UNK]": 0, "[PAD]": 1, "a": 2, "b": 3}


def _tokenizer(words: dict[str, int]) -> PreTrainedTokenizerFast:
    backend = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    backend.pre_tokenizer = Whitespace()
    backend.enable_truncation(max_length=2)
    backend.enable_padding(length=4)
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", pad_token="[PAD]")


def test_a_call_changes_nothing() -> None:
    tokenizer = _tokenizer(WORDS)
    before = tokenizer_digest(tokenizer)
    tokenizer(["a b a b"], split_special_tokens=True)
    tokenizer(["a b"], padding="max_length", truncation=True, max_length=3)
    assert tokenizer_digest(tokenizer) == before == tokenizer_digest(_tokenizer(WORDS))


def test_another_vocabulary_is_another_tokenizer() -> None:
    assert tokenizer_digest(_tokenizer(WORDS)) != tokenizer_digest(_tokenizer({**WORDS, "c": 4}))
