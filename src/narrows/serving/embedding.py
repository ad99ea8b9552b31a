"""One vector a text, of the base encoder: what a question is compared with before anything is read."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

from narrows.data import token_budget_batches
from narrows.hf.checkpoints import DEFAULT_CHECKPOINT, checkpoint_folder

__all__ = ["PassageEmbedder"]


class PassageEmbedder:
    """Mean-pooled, normalised vectors of a sentence encoder.

    Args:
        checkpoint: an encoder made for sentence vectors.
        device: where it runs.
        batch_tokens: padded tokens of a forward pass.

    Example:
        >>> PassageEmbedder().embed(["The clock was built in 1887."]).shape  # doctest: +SKIP
        (1, 384)
    """

    def __init__(self, checkpoint: str | Path = DEFAULT_CHECKPOINT, *, device: str = "cpu", batch_tokens: int = 8192):
        folder = checkpoint_folder(checkpoint)
        self._tokenizer = AutoTokenizer.from_pretrained(folder)
        self._model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval().to(device)
        self._device = device
        self._batch_tokens = batch_tokens
        self.width: int = self._model.config.hidden_size
        self.room: int = self._model.config.max_position_embeddings

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of texts, `[texts, width]` in fp32, of length 1.

        A text longer than the encoder's `room` (in tokens, [CLS] and [SEP] included) is read up to there:
        passages are shorter, and the vector only proposes where to look.
        """
        vectors = np.empty((len(texts), self.width), dtype=np.float32)
        if not texts:
            return vectors
        encoding = self._tokenizer(list(texts), truncation=True, max_length=self.room, split_special_tokens=True)
        rows = encoding["input_ids"]
        for batch in token_budget_batches([len(row) for row in rows], batch_tokens=self._batch_tokens):
            encoded = self._tokenizer.pad({"input_ids": [rows[index] for index in batch]}, return_tensors="pt")
            encoded = encoded.to(self._device)
            with torch.inference_mode():
                states = self._model(**encoded).last_hidden_state
            real = encoded["attention_mask"].unsqueeze(-1)
            pooled = (states * real).sum(1) / real.sum(1)
            vectors[batch] = torch.nn.functional.normalize(pooled, dim=-1).cpu().numpy()
        return vectors
