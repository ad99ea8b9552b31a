"""Encoders that a DeFormer can be built on, behind one small protocol; a new one is a class and one entry here."""

from typing import Protocol

from torch import Tensor, nn
from transformers.activations import ACT2FN

from narrows.deformer.bert import BertEmbeddings, BertLayer
from narrows.deformer.config import DeformerConfig
from narrows.errors import UsageError

__all__ = ["Backbone", "build_backbone"]


class Backbone(Protocol):
    """An embedder and a stack of layers.

    `embeddings(input_ids, segments, positions) -> hidden` and, for each of `layers`,
    `layer(hidden, mask, query=None, *, backend) -> hidden`, as `narrows.deformer.split` calls them.
    `word_embeddings` is the table that grows with the vocabulary; `set_word_embeddings` puts another in its place.
    """

    embeddings: nn.Module
    layers: nn.ModuleList

    @property
    def word_embeddings(self) -> nn.Embedding: ...

    def set_word_embeddings(self, table: nn.Embedding) -> None: ...

    def __call__(self, *args: object) -> Tensor: ...


class BertBackbone(nn.Module):
    """The encoder of a BertModel (BERT, MiniLM and others with its layout)."""

    def __init__(self, config: DeformerConfig):
        super().__init__()
        self.embeddings = BertEmbeddings(
            vocab=config.vocab_size,
            positions=config.max_position_embeddings,
            segments=config.type_vocab_size,
            width=config.hidden_size,
            eps=config.layer_norm_eps,
            pad=config.pad_token_id,
            dropout=config.hidden_dropout_prob,
        )
        self.layers = nn.ModuleList(
            BertLayer(
                width=config.hidden_size,
                heads=config.num_attention_heads,
                inner=config.intermediate_size,
                # The same function; torch's own class is the one that `project` knows.
                activation=nn.GELU() if config.hidden_act == "gelu" else ACT2FN[config.hidden_act],
                eps=config.layer_norm_eps,
                dropout=config.hidden_dropout_prob,
                attention_dropout=config.attention_probs_dropout_prob,
            )
            for _ in range(config.num_hidden_layers)
        )

    @property
    def word_embeddings(self) -> nn.Embedding:
        return self.embeddings.word

    def set_word_embeddings(self, table: nn.Embedding) -> None:
        # Not a property's setter: nn.Module registers an assigned module before any setter is asked.
        self.embeddings.word = table


_BACKBONES = {"bert": BertBackbone}


def build_backbone(config: DeformerConfig) -> BertBackbone:
    """The encoder that `config.backbone` names, with fresh weights.

    Raises:
        UsageError: no encoder of that name.
    """
    if config.backbone not in _BACKBONES:
        raise UsageError(
            f"`backbone` must be one of {', '.join(_BACKBONES)}, got {config.backbone!r}; "
            "convert a checkpoint whose encoder is one of these"
        )
    return _BACKBONES[config.backbone](config)
