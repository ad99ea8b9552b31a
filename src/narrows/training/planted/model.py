"""The encoders that are compared: one shape, four kinds of attention, random weights or another one's."""

from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import LongT5Config, LongT5EncoderModel

from narrows.errors import UsageError
from narrows.mulla import MullaT5Config, MullaT5EncoderModel
from narrows.training.planted.recipe import PlantedModelSection

__all__ = ["PlantedReader", "build_reader", "save_reader"]

_TABLE = "encoder.embed_tokens.weight"
_HEAD = "head.safetensors"
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


def build_reader(
    model: PlantedModelSection, *, vocabulary_size: int, values: int, dropout: float, start: str | None = None
) -> PlantedReader:
    """A reader with random weights, for which the seed is torch's, or with those of another one.

    Args:
        model: shape and attention.
        vocabulary_size: tokens.
        values: classes.
        dropout: everywhere that T5 has one.
        start: folder of a reader whose encoder is a LongT5; it is converted to the model's attention.

    Raises:
        ConversionError: there is no LongT5 at `start`.
        UsageError: it has another shape, or no linear layer for so many values.
    """
    if start is not None:
        return _converted(model, Path(start), values=values, dropout=dropout)
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


def _converted(model: PlantedModelSection, folder: Path, *, values: int, dropout: float) -> PlantedReader:
    whole = MullaT5EncoderModel.from_longt5(
        folder,
        variant=model.attention,
        pooling_rate=model.pooling_rate,
        num_levels=model.num_levels,
        new_tables=model.new_tables,
        dropout_rate=dropout,
    )
    config = whole.config
    shape = {"layers": config.num_layers, "width": config.d_model, "local_radius": config.local_radius}
    wanted = {name: getattr(model, name) for name in shape}
    if shape != wanted:
        raise UsageError(
            f"expected a reader of the recipe's shape in {folder}, {wanted}, got {shape}; change one of them"
        )
    reader = PlantedReader(whole.get_submodule("encoder"), width=config.d_model, values=values)
    try:
        reader.head.load_state_dict(load_file(folder / _HEAD))
    except (OSError, RuntimeError) as error:
        raise UsageError(
            f"expected a reader of planted facts with {values} values in {folder}, got {error}; name another one"
        ) from error
    return reader


def save_reader(reader: PlantedReader, folder: Path) -> None:
    """Save the encoder as a checkpoint that transformers and `narrows convert` read, and the linear layer beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.contiguous() for name, tensor in reader.state_dict().items() if name.startswith("encoder.")}
    # As T5's own models name the one table that all stacks share.
    tensors["shared.weight"] = tensors.pop(_TABLE)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    save_file(reader.head.state_dict(), folder / _HEAD)
    reader.encoder.config.save_pretrained(folder)  # type: ignore[operator]
