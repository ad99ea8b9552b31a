"""Funnel-Transformer as transformers models: the encoder alone, and with the decoder back to tokens."""

import re
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import initialization as init
from transformers.utils.generic import can_return_tuple

from narrows.errors import UsageError
from narrows.funnel.config import FunnelConfig
from narrows.funnel.decoder import FunnelDecoder
from narrows.funnel.embeddings import FunnelEmbeddings
from narrows.funnel.encoder import Encoded, FunnelEncoder, Wanted, refuse_short
from narrows.funnel.inputs import Entered, enter
from narrows.funnel.layers import FunnelAttention
from narrows.funnel.outputs import FunnelOutput
from narrows.funnel.pooling import real_lengths
from narrows.hf.base import NarrowsPreTrainedModel

__all__ = ["FunnelBaseModel", "FunnelModel", "FunnelPreTrainedModel"]

_ENCODER_LAYER = re.compile(r"(?:^|\.)encoder\.blocks\.(\d+)\.(\d+)\.")
_DECODER_LAYER = re.compile(r"(?:^|\.)decoder\.layers\.(\d+)\.")


class FunnelPreTrainedModel(NarrowsPreTrainedModel):
    """What the models of this family share: initialisation, and how inputs go through the encoder."""

    config: FunnelConfig
    config_class = FunnelConfig
    base_model_prefix = "funnel"
    _no_split_modules = ["FunnelLayer"]

    def __init__(self, config: FunnelConfig):
        # Again, as `from_pretrained(..., pooling_size=3)` changes a field of a config that was already checked.
        config.check_architecture()
        super().__init__(config)

    def layer_of(self, name: str) -> int | None:
        """Which layer a parameter is of, for learning rates that fall with depth.

        Args:
            name: as `named_parameters()` gives it.

        Returns:
            0 for embeddings, 1 to n for the layers of the encoder across its blocks, and on for those of the decoder; a
            layer that runs several times counts once. None for heads.

        Example:
            >>> model = FunnelModel(FunnelConfig(vocab_size=9, d_model=8, n_head=2, d_head=4, d_inner=16))
            >>> model.layer_of("encoder.blocks.1.0.ffn.linear_1.weight")  # behind a block of four layers
            5
        """
        if "embeddings." in name:
            return 0
        sizes = list(self.config.block_sizes)
        if found := _ENCODER_LAYER.search(name):
            block, layer = map(int, found.groups())
            return sum(sizes[:block]) + layer + 1
        if found := _DECODER_LAYER.search(name):
            return sum(sizes) + int(found.group(1)) + 1
        return None

    @property
    def funnel_backend(self) -> str:
        """The attention's backend: `config.funnel_backend`, or if that is `auto` what `attn_implementation` asks for.

        `eager` asks for `reference`, and `sdpa`, transformers' default, for the fastest: `auto`.
        """
        implementation = self.attention_backend
        if self.config.funnel_backend == "auto" and implementation == "matmul":
            return "reference"
        return self.config.funnel_backend

    @torch.no_grad()
    def _init_weights(self, module: Any) -> None:
        if isinstance(module, nn.Linear):
            self._draw(module.weight, spread=sum(module.weight.shape) ** -0.5)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            self._draw(module.weight, spread=1.0)
            if module.padding_idx is not None and not getattr(module.weight, "_is_hf_initialized", False):
                init.zeros_(module.weight[module.padding_idx])
        elif isinstance(module, FunnelAttention):
            for weight in module.relative_parameters():
                self._draw(weight)
        else:
            super()._init_weights(module)

    def _draw(self, weight: Tensor, *, spread: float | None = None) -> None:
        """Draw as the config says; `spread` is of transformers' own normal draw, None: its draw is uniform."""
        std = self.config.initializer_std
        if std is not None:
            # As TensorFlow's: nothing beyond two standard deviations.
            init.trunc_normal_(weight, std=float(std), a=-2.0 * std, b=2.0 * std)
        elif spread is not None:
            init.normal_(weight, std=spread)
        else:
            init.uniform_(weight, b=float(self.config.initializer_range))


class _EncodingModel(FunnelPreTrainedModel):
    """What has embeddings and an encoder of its own."""

    embeddings: FunnelEmbeddings
    encoder: FunnelEncoder

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.embeddings.word_embeddings = value

    def _encode(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        key_mask: Tensor | None,
        wanted: Wanted,
    ) -> tuple[Entered, Encoded]:
        exact = self.config.semantics == "exact"
        entered = enter(input_ids, inputs_embeds, attention_mask, token_type_ids, key_mask, exact=exact)
        refuse_short(self.config, entered.tokens.length)
        states = self.embeddings(entered.input_ids, entered.inputs_embeds, entered.tokens.segments)
        return entered, self.encoder(states, entered.tokens, backend=self.funnel_backend, wanted=wanted)

    def _wanted(self, hidden: bool | None, weights: bool | None, *, skip: bool) -> Wanted:
        hidden = self.config.output_hidden_states if hidden is None else hidden
        weights = self.config.output_attentions if weights is None else weights
        if weights and self.funnel_backend != "reference" and self.config.attention_type != "factorized":
            raise UsageError(
                f"`output_attentions` must be False unless funnel_backend='reference', since other backends never have "
                f"all weights in memory, got True with {self.funnel_backend!r}; change one of them"
            )
        return Wanted(hidden=bool(hidden), weights=bool(weights), skip=skip)


class FunnelBaseModel(_EncodingModel):
    """The encoder alone: states of the last block's slots.

    Example:
        >>> model = FunnelBaseModel(FunnelConfig(vocab_size=9, d_model=8, n_head=2, d_head=4, d_inner=16)).eval()
        >>> outputs = model(torch.tensor([[1, 2, 3, 4, 5, 6]]))
        >>> list(outputs.last_hidden_state.shape), outputs.lengths.tolist()
        ([1, 3, 8], [3])
    """

    _keys_to_ignore_on_load_unexpected = [r"decoder\."]

    def __init__(self, config: FunnelConfig):
        super().__init__(config)
        self.embeddings = FunnelEmbeddings(config)
        self.encoder = FunnelEncoder(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "batch length"] | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "batch length"] | None = None,
        inputs_embeds: Float[Tensor, "batch length embed"] | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        key_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> FunnelOutput:
        """States of the last block's slots, with their mask and number; see `FunnelOutput`.

        Args:
            input_ids: `[batch, length]`, or `inputs_embeds`.
            attention_mask: `[batch, length]`, nonzero for real tokens, with `semantics="exact"` anywhere in the row;
                None: all are.
            token_type_ids: `[batch, length]` segments; None: all of one.
            inputs_embeds: `[batch, length, d_embed]` in the place of word embeddings.
            output_attentions: also return the attention weights, with the backend `reference` only.
            output_hidden_states: also return the states of all layers.
            key_mask: `[batch, length]`, zero for real tokens that no token may attend to, such as [MASK]; None: all may
                be.

        Raises:
            UsageError: both or none of the inputs, no token in them, a mask or segments of another shape, ids without
                an embedding, weights asked of a backend that has none, or rows that `official` or `hf` cannot pool.
        """
        wanted = self._wanted(output_hidden_states, output_attentions, skip=False)
        entered, encoded = self._encode(input_ids, attention_mask, token_type_ids, inputs_embeds, key_mask, wanted)
        states = entered.without_padding(encoded.states, encoded.slots.mask)
        return _output(states if self.config.num_blocks > 1 else entered.back(states), entered, encoded, wanted)


class FunnelModel(_EncodingModel):
    """Encoder and decoder: states of all tokens.

    Example:
        >>> model = FunnelModel(FunnelConfig(vocab_size=9, d_model=8, n_head=2, d_head=4, d_inner=16)).eval()
        >>> list(model(torch.tensor([[1, 2, 3, 4, 5, 6]])).last_hidden_state.shape)
        [1, 6, 8]
    """

    def __init__(self, config: FunnelConfig):
        super().__init__(config)
        self.embeddings = FunnelEmbeddings(config)
        self.encoder = FunnelEncoder(config)
        self.decoder = FunnelDecoder(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "batch length"] | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "batch length"] | None = None,
        inputs_embeds: Float[Tensor, "batch length embed"] | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        key_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> FunnelOutput:
        """States of all tokens; arguments and errors as `FunnelBaseModel.forward`."""
        wanted = self._wanted(output_hidden_states, output_attentions, skip=True)
        entered, encoded = self._encode(input_ids, attention_mask, token_type_ids, inputs_embeds, key_mask, wanted)
        states = self.decoder(encoded, entered.tokens, backend=self.funnel_backend, wanted=wanted)
        states = entered.back(entered.without_padding(states, entered.tokens.mask))
        return _output(states, entered, encoded, wanted, decoded=True)


def _output(
    states: Tensor, entered: Entered, encoded: Encoded, wanted: Wanted, *, decoded: bool = False
) -> FunnelOutput:
    mask = encoded.slots.mask
    if mask is None:
        mask = torch.ones(encoded.states.shape[:2], dtype=torch.bool, device=states.device)
    elif encoded.slots.stride == 1:
        mask = entered.back(mask)
    of_tokens = {0, len(encoded.hidden) - 1} if decoded else {0}
    hidden = tuple(
        tuple(map(entered.back, block) if number in of_tokens else block) for number, block in enumerate(encoded.hidden)
    )
    return FunnelOutput(
        last_hidden_state=states,
        pooled_attention_mask=mask,
        lengths=real_lengths(encoded.slots, states.shape[0], states.device),
        hidden_states=hidden if wanted.hidden else None,
        attentions=tuple(map(tuple, encoded.weights)) if wanted.weights else None,
    )
