"""The encoders that are compared: one shape, four kinds of attention, random weights."""

from torch import Tensor, nn
from transformers import LongT5Config, LongT5EncoderModel

from narrows.mulla import MullaT5Config, MullaT5EncoderModel
from narrows.training.planted.recipe import PlantedModelSection

__all__ = ["PlantedReader", "build_reader"]

_PEERS = {"local": "local", "tglobal": "transient-global"}


class PlantedReader(nn.Module):
    """An encoder and a linear layer that reads answers off the question marks.

    Args:
        encoder: called with `input_ids` and `attention_mask`, gives `last_hidden_state`.
        width: of its states.
        values: classes.
    """

    def __init__(self, encoder: nn.Module, *, width: int, values: int):
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(width, values)

    def forward(self, input_ids: Tensor, attention_mask: Tensor, places: Tensor) -> Tensor:
        """Logits `[questions, values]`, of the states at `places` `[questions, 2]`: text and token."""
        states = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return self.head(states[places[:, 0], places[:, 1]])


def build_reader(model: PlantedModelSection, *, vocabulary_size: int, values: int, dropout: float) -> PlantedReader:
    """A reader with random weights; the seed is torch's.

    Args:
        model: shape and attention.
        vocabulary_size: tokens.
        values: classes.
        dropout: everywhere that T5 has one.
    """
    shape = {
        "vocab_size": vocabulary_size,
        "d_model": model.width,
        "d_kv": model.width // model.heads,
        "num_heads": model.heads,
        "d_ff": model.feed_forward,
        "num_layers": model.layers,
        "dropout_rate": dropout,
        "feed_forward_proj": "gated-gelu",
        "local_radius": model.local_radius,
    }
    if model.attention in _PEERS:
        config = LongT5Config(
            encoder_attention_type=_PEERS[model.attention], global_block_size=model.global_block_size, **shape
        )
        whole: nn.Module = LongT5EncoderModel(config)
    else:
        config = MullaT5Config(
            variant=model.attention, pooling_rate=model.pooling_rate, num_levels=model.num_levels, **shape
        )
        whole = MullaT5EncoderModel(config)
    # The stack alone: the model around it holds the embeddings once more under another name.
    return PlantedReader(whole.get_submodule("encoder"), width=model.width, values=values)
