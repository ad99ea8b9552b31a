"""BERT with bottleneck attention in chosen layers; everything else, and every other name, is transformers' own.

The narrow attention writes its up-projection where BERT has the output of attention, `attention.output.dense`: with
nothing between them, the output projection of a narrow attention and the up-projection behind it are one.
"""

from typing import Any

from huggingface_hub.dataclasses import strict
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
)
from transformers.activations import ACT2FN
from transformers.models.bert.modeling_bert import BertLayer, BertSelfAttention

from narrows._plural import count
from narrows.bottleneck.attention import heads_of
from narrows.errors import UsageError
from narrows.hf.fields import in_our_words

__all__ = [
    "BottleneckBertConfig",
    "BottleneckBertForMaskedLM",
    "BottleneckBertForQuestionAnswering",
    "BottleneckBertForSequenceClassification",
    "BottleneckBertForTokenClassification",
    "BottleneckBertModel",
    "BottleneckBertSelfAttention",
    "narrow_layer",
]


@in_our_words
@strict
class BottleneckBertConfig(BertConfig):
    """A BERT's config, and which of its layers are narrow.

    Args:
        bottleneck_layers: numbers of layers, from 1; None: all of them.
        bottleneck_ratio: `hidden_size` / width of the attention there.
        bottleneck_heads: heads there; None: as many as in the other layers if they divide the width, else as wide as
            64, else 32.
        bottleneck_act: between the down-projection and attention: an activation of transformers, or `linear`.

    Raises:
        UsageError: layers that are not there or named twice, a ratio or a number of heads that does not fit, an unknown
            activation, or a decoder.

    Example:
        >>> config = BottleneckBertConfig(hidden_size=384, num_attention_heads=12, bottleneck_layers=[4, 5])
        >>> config.inner_size, config.inner_heads
        (192, 12)
    """

    model_type = "narrows-bottleneck-bert"

    bottleneck_layers: list[int] | None = None
    bottleneck_ratio: float | int = 2
    bottleneck_heads: int | None = None
    bottleneck_act: str = "linear"

    def __post_init__(self, **kwargs: Any) -> None:
        if self.bottleneck_layers is None:
            self.bottleneck_layers = list(range(1, self.num_hidden_layers + 1))
        super().__post_init__(**kwargs)
        self.check_architecture()

    @property
    def inner_size(self) -> int:
        """Width of the attention in narrow layers."""
        return round(self.hidden_size / self.bottleneck_ratio)

    @property
    def inner_heads(self) -> int:
        """Heads of the attention in narrow layers."""
        if self.bottleneck_heads is not None:
            return self.bottleneck_heads
        return (
            self.num_attention_heads if self.inner_size % self.num_attention_heads == 0 else heads_of(self.inner_size)
        )

    def check_architecture(self) -> None:
        """Refuse what no model can have, each in one sentence.

        Raises:
            UsageError: see the class.
        """
        layers, most = self.bottleneck_layers or [], self.num_hidden_layers
        if len(set(layers)) != len(layers) or not all(1 <= layer <= most for layer in layers):
            raise UsageError(
                f"`bottleneck_layers` must be numbers from 1 to {most}, each once, for {count(most, 'layer')}, got "
                f"{', '.join(map(str, layers))}; change them"
            )
        ratio = self.bottleneck_ratio
        if not 1 <= ratio <= self.hidden_size or self.hidden_size / ratio != self.inner_size:
            raise UsageError(
                f"`bottleneck_ratio` must be from 1 to hidden_size, {self.hidden_size}, and divide it, got {ratio}; 2 "
                "is usual"
            )
        if self.inner_heads < 1 or self.inner_size % self.inner_heads:
            raise UsageError(
                f"`bottleneck_heads` must divide the inner width of {self.inner_size}, got {self.inner_heads}; change "
                "it"
            )
        if self.bottleneck_act not in ACT2FN:
            raise UsageError(
                f"`bottleneck_act` must be an activation of transformers or 'linear', got {self.bottleneck_act!r}; "
                "'linear' is usual"
            )
        if self.is_decoder or self.add_cross_attention:
            raise UsageError(
                "expected a BERT whose tokens see both sides, got is_decoder or add_cross_attention; set both to False"
            )


class BottleneckBertSelfAttention(BertSelfAttention):
    """down → activation → BERT's attention in the narrow width.

    Args:
        config: with the sizes.
        layer_idx: number of the layer, from 0.
    """

    def __init__(self, config: BottleneckBertConfig, layer_idx: int | None = None):
        narrow = BertConfig(
            hidden_size=config.inner_size,
            num_attention_heads=config.inner_heads,
            attention_probs_dropout_prob=config.attention_probs_dropout_prob,
        )
        super().__init__(narrow, layer_idx=layer_idx)
        # The model's own, in which the kernel may be changed later.
        self.config = config
        self.down = nn.Linear(config.hidden_size, config.inner_size)
        self.activation = ACT2FN[config.bottleneck_act]

    def forward(
        self,
        hidden_states: Float[Tensor, "batch length width"],
        attention_mask: Tensor | None = None,
        cache: Any = None,
        **kwargs: Any,
    ) -> tuple[Float[Tensor, "batch length inner"], Tensor | None]:
        """As `BertSelfAttention.forward`, which it is given the narrow states of."""
        narrow = self.activation(self.down(hidden_states))
        return super().forward(narrow, attention_mask, cache, **kwargs)  # type: ignore[return-value]


def narrow_layer(layer: BertLayer, config: BottleneckBertConfig, layer_idx: int) -> None:
    """Put bottleneck attention, with random weights, in the place of a layer's own."""
    attention: Any = layer.attention
    attention.self = BottleneckBertSelfAttention(config, layer_idx)
    attention.output.dense = nn.Linear(config.inner_size, config.hidden_size)


class BottleneckBertModel(BertModel):
    """A BertModel with narrow layers; padding on either side changes nothing.

    Example:
        >>> config = BottleneckBertConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=2)
        >>> model = BottleneckBertModel(config).eval()
        >>> list(model(torch.tensor([[1, 2, 3]])).last_hidden_state.shape)
        [1, 3, 64]
    """

    config: BottleneckBertConfig
    config_class = BottleneckBertConfig

    def __init__(self, config: BottleneckBertConfig, add_pooling_layer: bool = True):
        # Again, as `from_pretrained(..., bottleneck_ratio=4)` changes a field of a config that was already checked.
        config.check_architecture()
        super().__init__(config, add_pooling_layer)
        layers: Any = self.encoder.layer
        for number in config.bottleneck_layers or []:
            narrow_layer(layers[number - 1], config, number - 1)
        self.post_init()

    def forward(
        self,
        input_ids: Int[Tensor, "batch length"] | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "batch length"] | None = None,
        position_ids: Int[Tensor, "batch length"] | None = None,
        inputs_embeds: Float[Tensor, "batch length width"] | None = None,
        **kwargs: Any,
    ) -> Any:
        """As `BertModel.forward`, but that positions count real tokens where a mask is given and they are not."""
        if position_ids is None and attention_mask is not None and attention_mask.dim() == 2:
            position_ids = ((attention_mask != 0).cumsum(1) - 1).clamp_min(0)
        return super().forward(
            input_ids=input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            inputs_embeds=inputs_embeds,
            **kwargs,
        )


class BottleneckBertForMaskedLM(BertForMaskedLM):
    """A `BertForMaskedLM` with narrow layers."""

    config: BottleneckBertConfig
    config_class = BottleneckBertConfig
    accepts_loss_kwargs = False

    def __init__(self, config: BottleneckBertConfig):
        super().__init__(config)
        self.bert = BottleneckBertModel(config, add_pooling_layer=False)
        self.post_init()


class BottleneckBertForSequenceClassification(BertForSequenceClassification):
    """A `BertForSequenceClassification` with narrow layers."""

    config: BottleneckBertConfig
    config_class = BottleneckBertConfig
    # Its loss is a mean over the batch, whatever `num_items_in_batch` says.
    accepts_loss_kwargs = False

    def __init__(self, config: BottleneckBertConfig):
        super().__init__(config)
        self.bert = BottleneckBertModel(config)
        self.post_init()


class BottleneckBertForTokenClassification(BertForTokenClassification):
    """A `BertForTokenClassification` with narrow layers."""

    config: BottleneckBertConfig
    config_class = BottleneckBertConfig
    accepts_loss_kwargs = False

    def __init__(self, config: BottleneckBertConfig):
        super().__init__(config)
        self.bert = BottleneckBertModel(config, add_pooling_layer=False)
        self.post_init()


class BottleneckBertForQuestionAnswering(BertForQuestionAnswering):
    """A `BertForQuestionAnswering` with narrow layers."""

    config: BottleneckBertConfig
    config_class = BottleneckBertConfig
    accepts_loss_kwargs = False

    def __init__(self, config: BottleneckBertConfig):
        super().__init__(config)
        self.bert = BottleneckBertModel(config, add_pooling_layer=False)
        self.post_init()
