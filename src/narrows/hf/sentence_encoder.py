"""Any encoder and a pooling: how a vector is made of a text. Loading, evaluation and distillation go through here."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from narrows._plural import count
from narrows.core.pooling import pool, window_means
from narrows.errors import ConversionError
from narrows.hf.encoders import Encoder, accepted_inputs, load_encoder
from narrows.hf.sentence_layout import OWN_VECTOR, SentenceLayout, load_dense, pooling_of

__all__ = ["Reading", "SentenceEncoder", "load_sentence_encoder", "makes_vectors", "pools"]


class Reading(NamedTuple):
    """What an encoder made of rows.

    Attributes:
        embedding: `[batch, width]`, pooled and through the linear layer, not normalised.
        states: `[batch, slots, width]` after the embeddings and after each layer; empty unless asked for.
        logits: of the head; None without one.
    """

    embedding: Tensor
    states: tuple[Tensor, ...]
    logits: Tensor | None


class SentenceEncoder(nn.Module):
    """A model of transformers' kind, with or without a head, a pooling, and what belongs behind it.

    A model whose last states are fewer than its tokens says in `pooled_attention_mask` which of them are real, or pools
    by `config.pooling_size` (2), with or without `config.separate_cls`.

    Args:
        model: takes `input_ids` and mostly `attention_mask`.
        pooling: `mean` over real states, `max`, `cls`, the first one, or `pooler_output`, the model's own vector.
        dense: of the pooled vector; None: there is none.
        normalize: whether `forward` gives vectors of length 1.
        name: of the model, for errors.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        pooling: str,
        dense: nn.Linear | None = None,
        normalize: bool = False,
        name: str | Path = "this model",
    ):
        super().__init__()
        self.model, self.dense = model, dense
        self.pooling, self.normalize, self._name = pooling, normalize, name
        self._accepted = accepted_inputs(model)

    @property
    def width(self) -> int:
        """Of a vector."""
        return _width(self.model) if self.dense is None else self.dense.out_features

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Vectors `[batch, width]` in at least fp32; arguments as of `read`."""
        vectors = self.read(batch).embedding
        vectors = vectors.to(torch.promote_types(vectors.dtype, torch.float32))
        return nn.functional.normalize(vectors, dim=-1) if self.normalize else vectors

    def read(self, batch: Mapping[str, Tensor], *, states: bool = False) -> Reading:
        """What the model makes of rows that are padded on the right.

        Args:
            batch: `input_ids` and `attention_mask` (nonzero for real tokens), `[batch, length]` each, and others, of
                which the model gets those that it takes.
            states: whether the states of all layers are wanted.

        Raises:
            ConversionError: fewer states than tokens, and nothing tells which of them are real.
        """
        inputs = {name: tensor for name, tensor in batch.items() if name in self._accepted}
        # A model with another head than one for vectors gives no last state by name.
        headed = getattr(self.model, "base_model", self.model) is not self.model and not makes_vectors(self.model)
        outputs = self.model(**inputs, **({"output_hidden_states": True} if states or headed else {}))
        kept = _flat(outputs.hidden_states) if states else ()
        embedding = outputs.pooler_output if self.pooling == OWN_VECTOR else self._pooled(outputs, batch)
        if self.dense is not None:
            embedding = self.dense(embedding.to(self.dense.weight.dtype))
        return Reading(embedding, kept, getattr(outputs, "logits", None))

    def _pooled(self, outputs: Any, batch: Mapping[str, Tensor]) -> Tensor:
        last = getattr(outputs, "last_hidden_state", None)
        last = _flat(outputs.hidden_states)[-1] if last is None else last
        mask = batch["attention_mask"]
        if last.shape[1] != mask.shape[1] and self.pooling != "cls":
            mask = self._mask_of_fewer(outputs, last, mask)
        return pool(last, mask, self.pooling)

    def _mask_of_fewer(self, outputs: Any, last: Tensor, mask: Tensor) -> Tensor:
        """Which of the states of a model that shortens its texts stand for real tokens."""
        told = getattr(outputs, "pooled_attention_mask", None)
        if told is not None:
            return told
        if bool(mask.all()):
            return mask.new_ones(last.shape[:2])
        config: Any = self.model.config
        if not (hasattr(config, "pooling_size") or hasattr(config, "separate_cls")):
            raise ConversionError(
                f"expected a state for each token of {self._name}, or a pooled_attention_mask, got "
                f"{count(last.shape[1], 'state')} for {count(mask.shape[1], 'token')}; name another checkpoint"
            )
        nothing = last.new_zeros(*mask.shape, 1)
        return window_means(nothing, mask != 0, slots=last.shape[1], **pools(self.model)).real


def makes_vectors(model: nn.Module) -> bool:
    """Whether a model's head gives one vector a text."""
    return type(model).__name__.endswith("ForEmbedding")


def pools(model: nn.Module) -> dict[str, Any]:
    """How a model's states get fewer: `pooling_size` and `separate_cls`, as `window_means` takes them."""
    config: Any = model.config
    return {
        "pooling_size": getattr(config, "pooling_size", 2),
        "separate_cls": bool(getattr(config, "separate_cls", False)),
    }


def load_sentence_encoder(
    layout: SentenceLayout,
    checkpoint: str | Path,
    *,
    pooling: str | None = None,
    normalize: bool | None = None,
    dtype: str = "float32",
    config: Any = None,
) -> tuple[Encoder, SentenceEncoder]:
    """An encoder without another head, in evaluation mode on the CPU, and how it makes vectors.

    Args:
        layout: of the checkpoint, by `read_layout`.
        checkpoint: what it was asked for by.
        pooling: `mean`, `cls` or `max`; None: as the layout says, and the own vector of a model for vectors; else mean.
        normalize: None: as the layout says.
        dtype: `float32` or `bfloat16`, of the model; the linear layer stays in fp32.
        config: in the place of the checkpoint's own.

    Raises:
        ConversionError: no encoder, weights that are missing or damaged, or a pooling that is not known here.
        UsageError: another dtype.

    Example:
        `encoder, vectors = load_sentence_encoder(read_layout(folder), folder)`
    """
    said = pooling or pooling_of(layout, checkpoint)
    encoder = load_encoder(layout.folder, checkpoint, dtype=dtype, with_pooler=said == OWN_VECTOR, config=config)
    dense = load_dense(layout)
    if dense is not None and dense.in_features != _width(encoder.model):
        raise ConversionError(
            f"expected a linear layer over the {_width(encoder.model)} numbers of {checkpoint}, got one over "
            f"{dense.in_features} in {layout.dense}; copy the checkpoint again"
        )
    vectors = SentenceEncoder(
        encoder.model,
        # Our models for vectors know their own pooling.
        pooling=said or (OWN_VECTOR if makes_vectors(encoder.model) else "mean"),
        dense=dense,
        normalize=layout.normalize if normalize is None else normalize,
        name=checkpoint,
    )
    return encoder, vectors.eval()


def _width(model: nn.Module) -> int:
    config: Any = model.config
    return getattr(config, "hidden_size", None) or config.d_model


def _flat(states: Any) -> tuple[Tensor, ...]:
    """States of all layers in one row; Funnel has a tuple for each block."""
    return tuple(each for part in states for each in (part if isinstance(part, tuple | list) else (part,)))
