"""What a tokenizer is, in a few bytes."""

import hashlib
from typing import Any

from narrows.data.tokens import tokenizer_rules

__all__ = ["tokenizer_digest"]


def tokenizer_digest(tokenizer: Any) -> str:
    """sha256 of a fast tokenizer's rules and vocabulary, the same before and after it was used.

    Args:
        tokenizer: of transformers, backed by the tokenizers library.

    Raises:
        UsageError: it is no fast one.
    """
    return hashlib.sha256(tokenizer_rules(tokenizer).encode()).hexdigest()
