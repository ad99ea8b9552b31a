"""LongT5-Mulla with T5's decoder: a long text in, a short one out."""

import copy
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import GenerationMixin
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutput, Seq2SeqLMOutput
from transformers.models.t5.modeling_t5 import T5Stack
from transformers.utils.generic import can_return_tuple

from narrows.errors import UsageError
from narrows.losses import token_loss
from narrows.mulla.config import MullaT5Config
from narrows.mulla.encoder import MullaT5PreTrainedModel, MullaT5Stack

__all__ = ["MullaT5ForConditionalGeneration"]

_IGNORED = -100


class MullaT5ForConditionalGeneration(MullaT5PreTrainedModel, GenerationMixin):
    """Encoder with multi-level local attention, and transformers' T5 decoder with full self- and cross-attention.

    `generate` works as for T5: greedy, beams, sampling, dynamic and static caches.

    Example:
        >>> model = MullaT5ForConditionalGeneration.from_pretrained("my-mulla")  # doctest: +SKIP
        >>> model.generate(**tokenizer(text, return_tensors="pt"), max_new_tokens=256)  # doctest: +SKIP
    """

    _tied_weights_keys = {
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
        "lm_head.weight": "shared.weight",
    }

    def __init__(self, config: MullaT5Config):
        super().__init__(config)
        self.shared = nn.Embedding(config.vocab_size, config.d_model)
        self.encoder = MullaT5Stack(config)
        decoder_config: Any = copy.deepcopy(config)
        decoder_config.is_decoder = True
        decoder_config.num_layers = config.num_decoder_layers
        self.decoder = T5Stack(decoder_config)
        self.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        self.post_init()

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        super().set_input_embeddings(value)
        self.decoder.set_input_embeddings(value)

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "batch length"] | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Int[Tensor, "batch target"] | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: Any = None,
        cache: Cache | None = None,
        inputs_embeds: Float[Tensor, "batch length width"] | None = None,
        decoder_inputs_embeds: Float[Tensor, "batch target width"] | None = None,
        labels: Int[Tensor, "batch target"] | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """Logits of the next token at every position of the target.

        Args:
            input_ids: `[batch, length]`, or `inputs_embeds`, or `encoder_outputs`.
            attention_mask: `[batch, length]`, nonzero for real tokens, anywhere in the row; None: all are.
            decoder_input_ids: `[batch, target]`; None: made from `labels`, shifted right.
            decoder_attention_mask: `[batch, target]`.
            encoder_outputs: a `BaseModelOutput` or a tuple of the encoder, when it has run already.
            cache: the decoder's keys and values so far.
            labels: `[batch, target]`; −100 is ignored. The loss is the cross entropy summed over the others and divided
                by `num_items_in_batch` (None: by their number).
            num_items_in_batch: labels in all the batches of an optimiser's step.
            output_attentions: the decoder's; refused when the encoder runs too.

        Raises:
            UsageError: no input for the decoder, or as `MullaT5Stack.forward`.
        """
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            decoder_input_ids = self._shifted(labels)
        shown = {"output_attentions": output_attentions, "output_hidden_states": output_hidden_states}
        encoded = _as_output(encoder_outputs)
        if encoded is None:
            encoded = self.encoder(input_ids, attention_mask, inputs_embeds, **shown, return_dict=True)
        decoded = self.decoder(
            input_ids=decoder_input_ids,
            attention_mask=decoder_attention_mask,
            inputs_embeds=decoder_inputs_embeds,
            cache=cache,
            encoder_hidden_states=encoded.last_hidden_state,
            encoder_attention_mask=attention_mask,
            use_cache=self.config.use_cache if use_cache is None else use_cache,
            **shown,
            **kwargs,
        )
        states = decoded.last_hidden_state
        if self.config.scale_decoder_outputs:
            states = states * self.config.d_model**-0.5
        logits = self.lm_head(states)
        return Seq2SeqLMOutput(
            loss=None if labels is None else _loss(logits, labels, num_items_in_batch),
            logits=logits,
            cache=decoded.cache,
            decoder_hidden_states=decoded.hidden_states,
            decoder_attentions=decoded.attentions,
            cross_attentions=decoded.cross_attentions,
            encoder_last_hidden_state=encoded.last_hidden_state,
            encoder_hidden_states=encoded.hidden_states,
        )

    def _shifted(self, labels: Tensor | None) -> Tensor:
        if labels is None:
            raise UsageError(
                "expected decoder_input_ids, decoder_inputs_embeds or labels, got none; pass one of them, "
                "or call `generate`"
            )
        return self.prepare_decoder_input_ids_from_labels(labels)

    def prepare_decoder_input_ids_from_labels(self, labels: Int[Tensor, "batch target"]) -> Int[Tensor, "batch target"]:
        """The labels shifted right by one, after the token that every target starts with; the name that collators call.

        Raises:
            UsageError: the config names no such token or no padding.
        """
        start, padding = self.config.decoder_start_token_id, self.config.pad_token_id
        if start is None or padding is None:
            name = "decoder_start_token_id" if start is None else "pad_token_id"
            raise UsageError(f"`{name}` must be set to make the decoder's input of labels, got None; T5's is 0")
        shifted = labels.new_full(labels.shape, start)
        shifted[..., 1:] = labels[..., :-1]
        return shifted.masked_fill(shifted == _IGNORED, padding)


def _as_output(encoder_outputs: Any) -> Any:
    """A tuple of last and all states as the output it stands for."""
    if encoder_outputs is None or isinstance(encoder_outputs, BaseModelOutput):
        return encoder_outputs
    return BaseModelOutput(*encoder_outputs[:2])


def _loss(logits: Tensor, labels: Tensor, num_items: Tensor | int | None) -> Tensor:
    total = token_loss(logits, labels, ignored=_IGNORED)
    return total / ((labels != _IGNORED).sum().clamp_min(1) if num_items is None else num_items)
