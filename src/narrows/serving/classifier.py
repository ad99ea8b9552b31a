"""`Classifier`: labels and probabilities, or scores, of texts and of pairs, by any encoder with a trained head."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from narrows.documents.texts import Text
from narrows.errors import ConversionError, UsageError
from narrows.hf.checkpoints import checkpoint_folder
from narrows.hf.encoders import Encoder, load_classifier, place
from narrows.serving.batching import Batcher, Row, as_texts

__all__ = ["Classification", "Classifier"]


class Classification(NamedTuple):
    """What a text was taken for.

    Attributes:
        label: the likeliest; None of a regression.
        score: its probability, or the one value of a regression; None where there are several values.
        labels: of a model for several labels a text, those from the threshold on, the likeliest first; otherwise the
            label alone, or none.
        scores: the probability, or value, of every label, in the checkpoint's order.
    """

    label: str | None
    score: float | None
    labels: tuple[str, ...]
    scores: dict[str, float]


class Classifier:
    """Classes of texts, batched by tokens: a text's result is the same alone and in any batch.

    Attributes:
        problem: `single_label`, `multi_label` or `regression`.
        labels: the checkpoint's names, in its order.

    Example:
        >>> classifier = Classifier.from_pretrained("my-sentiment-model")  # doctest: +SKIP
        >>> classifier.classify(["A lovely film."])[0].label  # doctest: +SKIP
        'positive'
    """

    def __init__(self, encoder: Encoder, batcher: Batcher, *, threshold: float = 0.5):
        if not 0 <= threshold <= 1:
            raise UsageError(f"expected a threshold between 0 and 1, got {threshold}; pass a probability")
        self.encoder, self.threshold, self._batcher = encoder, threshold, batcher
        config = encoder.model.config
        self.labels = [str(config.id2label[index]) for index in range(config.num_labels)]
        if len(set(self.labels)) < len(self.labels):
            raise ConversionError(
                f"expected labels that differ in id2label of {encoder.checkpoint}, got one name twice; correct its "
                "config.json"
            )
        self.problem = _problem(config)

    @classmethod
    def from_pretrained(
        cls,
        checkpoint: str | Path,
        *,
        max_tokens: int | None = None,
        threshold: float = 0.5,
        device: str = "auto",
        dtype: str = "float32",
        batch_tokens: int = 8192,
    ) -> "Classifier":
        """Load an encoder with its head.

        Args:
            checkpoint: a folder or a hub id of a model for sequence classification or regression.
            max_tokens: longest text or pair, special tokens included; None: as the model was trained.
            threshold: probability from which on a label counts, where a text may have several.
            device: `auto` (a GPU where there is one), `cpu` or `cuda`.
            dtype: `float32` or `bfloat16`, of weights and activations.
            batch_tokens: padded tokens of a batch.

        Raises:
            ConversionError: no encoder, or none with a trained head.
            UsageError: an unknown dtype or device, or a number out of range.
        """
        chosen = place(device)
        encoder = load_classifier(checkpoint_folder(checkpoint), checkpoint, dtype=dtype)
        limit = encoder.trained_tokens if max_tokens is None else max_tokens
        found = cls(encoder, Batcher(encoder, max_tokens=limit, batch_tokens=batch_tokens), threshold=threshold)
        encoder.model.to(chosen)
        return found

    @property
    def max_tokens(self) -> int | None:
        """Longest text in tokens, special tokens included; None: any."""
        return self._batcher.max_tokens

    def settings(self) -> dict[str, Any]:
        """All that a result depends on beside its text."""
        return {
            "model": self.encoder.digest,
            "max_tokens": self.max_tokens,
            "threshold": self.threshold,
            "dtype": str(self.encoder.model.dtype).removeprefix("torch."),
        }

    def classify(
        self, texts: Iterable[str | tuple[str, str] | Text], *, truncate: bool = False
    ) -> list[Classification]:
        """Results of texts, in their order.

        Args:
            texts: strings, or pairs of them for a model of pairs.
            truncate: whether texts longer than `max_tokens` are cut; of a pair the longer one loses its end.

        Raises:
            UsageError: a text without words, or one that is too long.
        """
        return [self.read(row) for row in self.stream(texts, truncate=truncate)]

    def stream(self, texts: Iterable[str | tuple[str, str] | Text], *, truncate: bool = False) -> Iterator[Row]:
        """One row a text, in order, with a bounded part of the texts in memory; `read` says what it means."""
        for window in self.windows(texts, truncate=truncate):
            yield from window

    def windows(
        self,
        texts: Iterable[str | tuple[str, str] | Text],
        *,
        truncate: bool = False,
        on_tokens: Callable[[int], Any] | None = None,
    ) -> Iterator[list[Row]]:
        """As `stream`, a window at a time; `on_tokens` is told of the tokens of each batch."""
        return self._batcher.windows(as_texts(texts), self._compute, truncate=truncate, on_tokens=on_tokens)

    def read(self, row: Row) -> Classification:
        """What a row of `stream` means."""
        scores = dict(zip(self.labels, map(float, row.value), strict=True))
        if self.problem == "regression":
            return Classification(None, float(row.value[0]) if len(scores) == 1 else None, (), scores)
        best = int(np.argmax(row.value))
        label = self.labels[best]
        labels = (label,)
        if self.problem == "multi_label":
            likely = [index for index in np.argsort(-row.value, kind="stable") if row.value[index] >= self.threshold]
            labels = tuple(self.labels[index] for index in likely)
        return Classification(label, float(row.value[best]), labels, scores)

    def _compute(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        logits = self.encoder(batch).logits.float()
        if self.problem == "single_label":
            return logits.softmax(-1)
        return logits.sigmoid() if self.problem == "multi_label" else logits


def _problem(config: Any) -> str:
    named = config.problem_type
    if named is None:
        return "regression" if config.num_labels == 1 else "single_label"
    return named.removesuffix("_classification")
