"""What a tokenizer is, in a few bytes."""

import hashlib
import json
from typing import Any

__all__ = ["tokenizer_digest"]

# Set anew by every call of a tokenizer, and no part of how it cuts a text.
_OF_A_CALL = ("truncation", "padding")


def tokenizer_digest(tokenizer: Any) -> str:
    """sha256 of a fast tokenizer's rules and vocabulary, the same before and after it was used.

    Args:
        tokenizer: of transformers, backed by the tokenizers library.
    """
    rules = json.loads(tokenizer.backend_tokenizer.to_str())
    kept = {name: value for name, value in rules.items() if name not in _OF_A_CALL}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()
