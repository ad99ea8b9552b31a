"""A trained student becomes a checkpoint that transformers, sentence-transformers and narrows read alike."""

import tempfile
from pathlib import Path
from typing import Any, cast

from torch import nn
from transformers import FunnelBaseModel as TransformersFunnel

from narrows.funnel import FunnelBaseModel
from narrows.funnel.convert import convert_checkpoint
from narrows.funnel.heads import FunnelForEmbedding, save_sentence_modules
from narrows.hf.encoders import Encoder
from narrows.hf.sentence_encoder import SentenceEncoder
from narrows.hf.sentence_layout import OWN_VECTOR, SentenceLayout, save_layout
from narrows.training.encoders.recipe import EncoderRecipe

__all__ = ["save_student"]


def save_student(encoder: SentenceEncoder, tokenizer: Any, recipe: EncoderRecipe, folder: Path) -> None:
    """Write a student, its tokenizer and, where its vectors were trained, how they are made.

    A funnel without a decoder becomes a `FunnelForEmbedding`, which pools its own states: sentence-transformers would
    take the mask of the tokens for them, which is of another length.

    Args:
        encoder: of the student.
        tokenizer: of the student.
        recipe: that it was trained by.
        folder: to write to; the one above is there.
    """
    tokenizer.save_pretrained(folder)
    if not recipe.losses.vectors:
        cast(Any, encoder.model).save_pretrained(folder)
        return
    max_tokens = Encoder(str(folder), encoder.model, tokenizer).trained_tokens or max(recipe.data.lengths)
    if isinstance(encoder.model, FunnelBaseModel | FunnelForEmbedding | TransformersFunnel):
        model = _pooling_itself(encoder.model, encoder.pooling, folder.parent)
        model.save_pretrained(folder)
        save_sentence_modules(folder, model.config, max_tokens=max_tokens, dense=encoder.dense)
        return
    cast(Any, encoder.model).save_pretrained(folder)
    layout = SentenceLayout(folder, pooling=encoder.pooling, normalize=True, max_tokens=max_tokens)
    width = encoder.width if encoder.dense is None else encoder.dense.in_features
    save_layout(layout, width=width, dense=encoder.dense)


def _pooling_itself(model: nn.Module, pooling: str, place: Path) -> FunnelForEmbedding:
    """The same weights with the head for vectors; those of transformers' class read by our own."""
    if isinstance(model, FunnelForEmbedding) and pooling in (OWN_VECTOR, model.config.embedding_pooling):
        return model
    with tempfile.TemporaryDirectory(dir=place) as written:
        cast(Any, model).save_pretrained(written)
        found, _ = convert_checkpoint(written, task="embedding", embedding_pooling=pooling)
    return cast(FunnelForEmbedding, found)
