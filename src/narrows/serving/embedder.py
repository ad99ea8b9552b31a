"""`Embedder`: one vector a text, of any encoder."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from narrows._plural import count
from narrows.documents.texts import Text
from narrows.errors import ConversionError, UsageError
from narrows.hf.checkpoints import DEFAULT_CHECKPOINT, checkpoint_folder
from narrows.serving.batching import Batcher, Row, as_texts
from narrows.serving.encoders import Encoder, load_encoder, place
from narrows.serving.sentence_layout import OWN_VECTOR, POOLINGS, SentenceLayout, read_layout

__all__ = ["Embedder", "pool"]


class Embedder:
    """Vectors of texts, batched by tokens: a text's vector is the same alone and in any batch.

    Example:
        >>> embedder = Embedder.from_pretrained()  # doctest: +SKIP
        >>> embedder.embed(["The clock was built in 1887."]).shape  # doctest: +SKIP
        (1, 384)
    """

    def __init__(self, encoder: Encoder, batcher: Batcher, *, pooling: str, normalize: bool, prompt: str = ""):
        self.encoder, self.pooling, self.normalize, self.prompt = encoder, pooling, normalize, prompt
        self._batcher = batcher
        config = encoder.model.config
        self.width: int = getattr(config, "hidden_size", None) or config.d_model

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
        folder = checkpoint_folder(checkpoint)
        layout = read_layout(folder)
        _check_pooling(pooling, layout, checkpoint)
        before = _prompt(prompt, prompt_name, layout, checkpoint)
        own = pooling is None and layout.pooling == OWN_VECTOR
        encoder = load_encoder(layout.folder, checkpoint, dtype=dtype, with_pooler=own)
        batcher = Batcher(
            encoder,
            max_tokens=max_tokens if max_tokens is not None else _limit(layout, encoder),
            batch_tokens=batch_tokens,
            prompt=before,
            lowercase=layout.lowercase,
        )
        encoder.model.to(chosen)
        how = pooling or layout.pooling
        if how is None:
            # Our models for vectors know their own pooling.
            how = OWN_VECTOR if type(encoder.model).__name__.endswith("ForEmbedding") else "mean"
        wanted = layout.normalize if normalize is None else normalize
        return cls(encoder, batcher, pooling=how, normalize=wanted, prompt=before)

    @property
    def max_tokens(self) -> int | None:
        """Longest text in tokens, special tokens included; None: any."""
        return self._batcher.max_tokens

    def settings(self) -> dict[str, Any]:
        """All that a vector depends on beside its text."""
        return {
            "model": self.encoder.digest,
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
        on_tokens: Callable[[int], Any] | None = None,
    ) -> Iterator[list[Row]]:
        """As `stream`, a window at a time; `on_tokens` is told of the tokens of each batch."""
        return self._batcher.windows(as_texts(texts), self._compute, truncate=truncate, on_tokens=on_tokens)

    def _compute(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        outputs = self.encoder(batch)
        vectors = outputs.pooler_output.float() if self.pooling == OWN_VECTOR else self._pooled(outputs, batch)
        return torch.nn.functional.normalize(vectors, dim=-1) if self.normalize else vectors

    def _pooled(self, outputs: Any, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        states, mask = outputs.last_hidden_state, batch["attention_mask"]
        if states.shape[1] != mask.shape[1]:
            mask = self._pooled_mask(outputs, mask)
        return pool(states, mask, self.pooling)

    def _pooled_mask(self, outputs: Any, mask: torch.Tensor) -> torch.Tensor:
        """Which of the states of a model that shortens its texts stand for real tokens."""
        pooled = getattr(outputs, "pooled_attention_mask", None)
        if pooled is not None:
            return pooled
        if not bool(mask.all()):
            raise ConversionError(
                f"expected a state for each token of {self.encoder.checkpoint}, or a pooled_attention_mask, got "
                f"{count(outputs.last_hidden_state.shape[1], 'state')} for {count(mask.shape[1], 'token')}; name "
                "another checkpoint"
            )
        return mask.new_ones(outputs.last_hidden_state.shape[:2])


def pool(states: torch.Tensor, mask: torch.Tensor, how: str) -> torch.Tensor:
    """One vector a row.

    Args:
        states: `[batch, length, width]`.
        mask: `[batch, length]`, not 0 where a state stands for real tokens.
        how: `mean`, `cls` (the first state) or `max`.

    Returns:
        `[batch, width]` in fp32; zeros for a row without real tokens.

    Example:
        >>> pool(torch.tensor([[[1.0], [3.0], [8.0]]]), torch.tensor([[1, 1, 0]]), "mean").tolist()
        [[2.0]]
    """
    states, real = states.float(), (mask != 0).unsqueeze(-1)
    if how == "cls":
        return states[:, 0]
    if how == "max":
        return torch.where(real.any(1), states.masked_fill(~real, float("-inf")).amax(1), 0.0)
    return torch.where(real, states, 0.0).sum(1) / real.sum(1).clamp_min(1)


def _check_pooling(asked: str | None, layout: SentenceLayout, checkpoint: str | Path) -> None:
    if asked is not None and asked not in POOLINGS:
        raise UsageError(f"expected a pooling of {', '.join(POOLINGS)}, got {asked!r}; choose one of them")
    if asked is None and layout.pooling not in (None, OWN_VECTOR, *POOLINGS):
        raise ConversionError(
            f"expected a checkpoint with a pooling of {', '.join(POOLINGS)}, got {checkpoint} with {layout.pooling}; "
            "name another checkpoint, or choose a pooling (--pooling)"
        )


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
