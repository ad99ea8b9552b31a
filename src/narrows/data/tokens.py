"""A tokenizer without the library it came from: its rules as text, and the token ids of a text, whole."""

import json
from collections.abc import Callable
from typing import Any

from tokenizers import Tokenizer

from narrows.errors import UsageError

__all__ = ["plain_tokenizer", "plain_tokens", "tokenizer_rules"]

# Set anew by every call of a tokenizer, and no part of how it cuts a text.
_OF_A_CALL = ("truncation", "padding")


def tokenizer_rules(tokenizer: Any) -> str:
    """A fast tokenizer's rules and vocabulary as JSON, the same before and after it was used.

    Args:
        tokenizer: of transformers, backed by the tokenizers library, or of that library itself.

    Raises:
        UsageError: it is neither.
    """
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if not isinstance(backend, Tokenizer):
        raise UsageError(
            f"expected a fast tokenizer (of the tokenizers library), got {type(tokenizer).__name__}; "
            "load it with AutoTokenizer."
        )
    rules = json.loads(backend.to_str())
    return json.dumps({name: value for name, value in rules.items() if name not in _OF_A_CALL}, sort_keys=True)


def plain_tokenizer(rules: str) -> Tokenizer:
    """The tokenizer of `tokenizer_rules`, that neither cuts, pads nor reads special tokens in a text."""
    made = Tokenizer.from_str(json.dumps(json.loads(rules) | dict.fromkeys(_OF_A_CALL)))
    made.encode_special_tokens = True
    return made


def plain_tokens(tokenizer: Any) -> Callable[[str], list[int]]:
    """A call that gives the token ids of a text, whole and without special tokens.

    The ids are those of a transformers tokenizer that is called with `narrows.data.AS_PLAIN_TEXT`. The tokenizer
    passed in is copied, and not changed.

    Raises:
        UsageError: as `tokenizer_rules`.

    Example:
        `plain_tokens(AutoTokenizer.from_pretrained(folder))("A long text.")`
    """
    made = plain_tokenizer(tokenizer_rules(tokenizer))
    return lambda text: made.encode(text, add_special_tokens=False).ids
