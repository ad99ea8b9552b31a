"""What must be equal for stored states to be usable by a model: the identity of everything that made them."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from narrows.errors import StoreMismatchError

FORMAT_VERSION = 1
"""The version of the folder layout, the columns and the codecs that this package writes and reads."""

_WORDS = {
    "weights": "weights",
    "tokenizer": "tokenizer",
    "split_layer": "split layer",
    "layout": "layout",
    "width": "width",
    "codec": "codec",
    "format_version": "format version",
}


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """The identity of the model side of a store.

    Args:
        weights: sha256, in hex, of the weights of the embedder and the lower layers.
        tokenizer: sha256, in hex, of the tokenizer.
        split_layer: number of lower layers that a passage runs through before it is stored.
        layout: name of the way question and passage are joined and positioned.
        width: size of one token's state.
        codec: name of the codec that turns states into bytes ("fp32", "fp16" or "int8").
        format_version: version of the store's format.
    """

    weights: str
    tokenizer: str
    split_layer: int
    layout: str
    width: int
    codec: str
    format_version: int = FORMAT_VERSION

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dictionary that JSON can hold."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> "Fingerprint":
        """Rebuild a fingerprint from `as_dict()`.

        Raises:
            StoreMismatchError: a field is missing, unknown or of the wrong type.
        """
        expected = get_type_hints(cls)
        if set(fields) != set(expected):
            raise StoreMismatchError(
                f"a fingerprint has the fields {', '.join(expected)}, but this one has "
                f"{', '.join(sorted(fields)) or 'none'}; use the version of narrows that wrote it"
            )
        for name, kind in expected.items():
            if type(fields[name]) is not kind:
                raise StoreMismatchError(
                    f"the fingerprint's field {name} has to be of type {kind.__name__}, but it is "
                    f"{fields[name]!r}; use the version of narrows that wrote it"
                )
        return cls(**fields)

    def differences(self, other: "Fingerprint") -> list[str]:
        """Say in words where a store (self) and a model (other) differ; empty when they do not.

        Example: `["split layer 4 in the store, 3 in the model"]`.
        """
        words = []
        for name, word in _WORDS.items():
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                if name in ("weights", "tokenizer"):
                    mine, theirs = mine[:12], theirs[:12]
                words.append(f"{word} {mine} in the store, {theirs} in the model")
        return words

    @property
    def digest(self) -> str:
        """sha256, in hex, of the canonical JSON of the fields."""
        canonical = json.dumps(self.as_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()
