"""`Embedder`: one vector a text, of any encoder."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from narrows.documents.texts import Text
from narrows.errors import ConversionError, UsageError
from narrows.hf.checkpoints import DEFAULT_CHECKPOINT, checkpoint_folder
from narrows.hf.encoders import Encoder, place
from narrows.hf.sentence_encoder import SentenceEncoder, load_sentence_encoder
from narrows.hf.sentence_layout import POOLINGS, SentenceLayout, read_layout
from narrows.serving.batching import Batcher, Row, as_texts

__all__ = ["Embedder"]

# The names that sentence-transformers looks for, in its order.
_QUERIES = ("query",)
_DOCUMENTS = ("document", "passage", "corpus")


class Embedder:
    """Vectors of texts, batched by tokens: a text's vector is the same alone and in any batch.

    Attributes:
        encoder: the model and its tokenizer.
        vectors: what makes the vectors of a padded batch.
        pooling, normalize, prompt: see `from_pretrained`.
        width: of a vector.

    Example:
        >>> embedder = Embedder.from_pretrained()  # doctest: +SKIP
        >>> embedder.embed(["The clock was built in 1887."]).shape  # doctest: +SKIP
        (1, 384)
    """

    def __init__(
        self,
        encoder: Encoder,
        batcher: Batcher,
        *,
        pooling: str,
        normalize: bool,
        dense: nn.Linear | None = None,
        prompt: str = "",
        layout: SentenceLayout | None = None,
    ):
        self.encoder, self.pooling, self.normalize, self.prompt = encoder, pooling, normalize, prompt
        self._batcher, self._layout = batcher, layout or SentenceLayout(Path(encoder.checkpoint))
        self.vectors = SentenceEncoder(
            encoder.model, pooling=pooling, dense=dense, normalize=normalize, name=encoder.checkpoint
        )
        self.width = self.vectors.width

    @classmethod
    def from_pretrained(
        cls,
        checkpoint: str | Path = DEFAULT_CHECKPOINT,
        *,
        pooling: str | None = None,
        normalize: bool | None = None,
        max_tokens: int | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        device: str = "auto",
        dtype: str = "float32",
        batch_tokens: int = 8192,
    ) -> "Embedder":
        """Load an encoder. What is not said is as the checkpoint says, as sentence-transformers reads it.

        Args:
            checkpoint: a folder or a hub id: BERT, RoBERTa, DistilBERT, Funnel, the encoders of T5, LongT5 and our
                families, and others.
            pooling: `mean`, `cls` or `max` over the real tokens; None: as the checkpoint says, and the own vector of a
                model for vectors (`FunnelForEmbedding`); else the mean.
            normalize: whether vectors get length 1.
            max_tokens: longest text, special tokens included; None: as the model was trained.
            prompt: what stands before every text.
            prompt_name: the checkpoint's own prompt of this name.
            device: `auto` (a GPU where there is one), `cpu` or `cuda`.
            dtype: `float32` or `bfloat16`, of weights and activations; vectors are fp32.
            batch_tokens: padded tokens of a batch.

        Raises:
            ConversionError: no encoder, or vectors that pass through what is not known here.
            UsageError: an unknown pooling, prompt name, dtype or device, or a number out of range.
        """
        chosen = place(device)
        layout = read_layout(checkpoint_folder(checkpoint))
        if pooling is not None and pooling not in POOLINGS:
            raise UsageError(f"expected a pooling of {', '.join(POOLINGS)}, got {pooling!r}; choose one of them")
        before = _prompt(prompt, prompt_name, layout, checkpoint)
        encoder, vectors = load_sentence_encoder(layout, checkpoint, pooling=pooling, normalize=normalize, dtype=dtype)
        batcher = Batcher(
            encoder,
            max_tokens=max_tokens if max_tokens is not None else _limit(layout, encoder),
            batch_tokens=batch_tokens,
            prompt=before,
            lowercase=layout.lowercase,
        )
        vectors.to(chosen)
        return cls(
            encoder,
            batcher,
            pooling=vectors.pooling,
            normalize=vectors.normalize,
            dense=vectors.dense,
            prompt=before,
            layout=layout,
        )

    @property
    def prompts(self) -> Mapping[str, str]:
        """The checkpoint's own prompts, by name."""
        return self._layout.prompts

    def with_prompt(self, prompt_name: str) -> "Embedder":
        """The same model with another of the checkpoint's own prompts.

        Raises:
            UsageError: it has none of this name.
            ConversionError: it leaves prompts out of its pooling.
        """
        other = copy(self)
        other.prompt = _prompt(None, prompt_name, self._layout, self.encoder.checkpoint)
        other._batcher = self._batcher.with_prompt(other.prompt)
        return other

    def of_queries(self) -> "Embedder":
        """With the checkpoint's own prompt for what is looked for, where it has one."""
        return self._of_side(_QUERIES)

    def of_documents(self) -> "Embedder":
        """With the checkpoint's own prompt for what is looked through, where it has one."""
        return self._of_side(_DOCUMENTS)

    def _of_side(self, names: tuple[str, ...]) -> "Embedder":
        name = next((name for name in names if name in self.prompts), None)
        return self if name is None else self.with_prompt(name)

    @property
    def max_tokens(self) -> int | None:
        """Longest text in tokens, special tokens included; None: any."""
        return self._batcher.max_tokens

    def settings(self) -> dict[str, Any]:
        """All that a vector depends on beside its text."""
        return {
            "model": self._digest(),
            "pooling": self.pooling,
            "normalize": self.normalize,
            "prompt": self.prompt,
            "max_tokens": self.max_tokens,
            "dtype": str(self.encoder.model.dtype).removeprefix("torch."),
        }

    def embed(self, texts: Iterable[str | Text], *, truncate: bool = False) -> np.ndarray:
        """Vectors of texts, `[texts, width]` in fp32.

        Args:
            texts: any number; none gives an array of no rows.
            truncate: whether texts longer than `max_tokens` are cut, as `stream` tells of each.

        Raises:
            UsageError: a text without words, or one that is too long.
        """
        rows = [row.value for row in self.stream(texts, truncate=truncate)]
        return np.stack(rows) if rows else np.empty((0, self.width), dtype=np.float32)

    def stream(self, texts: Iterable[str | Text], *, truncate: bool = False) -> Iterator[Row]:
        """One row a text, in order, with a bounded part of the texts in memory; arguments as of `embed`."""
        for window in self.windows(texts, truncate=truncate):
            yield from window

    def windows(
        self,
        texts: Iterable[str | Text],
        *,
        truncate: bool = False,
        wordless: bool = False,
        on_tokens: Callable[[int], Any] | None = None,
    ) -> Iterator[list[Row]]:
        """As `stream`, a window at a time.

        Args:
            texts: as of `embed`.
            truncate: as of `embed`.
            wordless: whether a text without words has a vector too; otherwise it is refused.
            on_tokens: told of the tokens of each batch.
        """
        return self._batcher.windows(
            as_texts(texts), self.vectors, truncate=truncate, wordless=wordless, on_tokens=on_tokens
        )

    def _digest(self) -> str:
        dense = self.vectors.dense
        if dense is None:
            return self.encoder.digest
        found = hashlib.sha256(self.encoder.digest.encode())
        for name, tensor in sorted(dense.state_dict().items()):
            found.update(name.encode())
            found.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return found.hexdigest()


def _prompt(prompt: str | None, name: str | None, layout: SentenceLayout, checkpoint: str | Path) -> str:
    if prompt is not None and name is not None:
        raise UsageError("expected a prompt or a prompt's name, got both; leave one of them out")
    name = layout.default_prompt if name is None and prompt is None else name
    if name is not None and name not in layout.prompts:
        known = ", ".join(layout.prompts) or "none"
        raise UsageError(
            f"expected the name of a prompt of {checkpoint} ({known}), got {name!r}; pass its text instead"
        )
    found = (prompt or "") if name is None else layout.prompts[name]
    if found and not layout.pools_prompt:
        raise ConversionError(
            f"expected a checkpoint that pools its prompt's tokens too, got {checkpoint}, which leaves them out; name "
            "another, or pass an empty prompt"
        )
    return found


def _limit(layout: SentenceLayout, encoder: Encoder) -> int | None:
    known = [limit for limit in (layout.max_tokens, encoder.trained_tokens) if limit is not None]
    return min(known, default=None)
