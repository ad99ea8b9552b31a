"""How a person's text is tokenized, whoever does it: as text, whole, with the characters of each token."""

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["AS_PLAIN_TEXT"]

AS_PLAIN_TEXT: Mapping[str, bool] = MappingProxyType(
    {
        "add_special_tokens": False,
        # A text's own "[SEP]" is text.
        "split_special_tokens": True,
        "return_offsets_mapping": True,
        # Texts longer than the model are cut later, so that the tokenizer's warning misleads.
        "verbose": False,
    }
)
"""Arguments of a call of a transformers tokenizer."""
