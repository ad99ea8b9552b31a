"""Heads of pretraining: hidden tokens, and tokens that were replaced. Source: Dai et al. 2020, and its code."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.modeling_outputs import MaskedLMOutput
from transformers.utils.generic import can_return_tuple

from narrows.errors import UsageError
from narrows.funnel.config import FunnelConfig
from narrows.funnel.heads.common import FunnelTokenHead, with_states
from narrows.funnel.heads.outputs import ReplacedTokenOutput
from narrows.losses import masked_lm_loss, replaced_token_loss

__all__ = ["FunnelForMaskedLM", "FunnelForReplacedTokenDetection"]


class FunnelLMTransform(nn.Module):
    """What the authors' head does before the vocabulary: dense, activation, norm."""

    def __init__(self, config: FunnelConfig):
        super().__init__()
        assert config.d_embed is not None
        self.dense = nn.Linear(config.d_model, config.d_embed)
        self.activation = ACT2FN[config.hidden_act]
        self.layer_norm = nn.LayerNorm(config.d_embed, eps=config.layer_norm_eps)

    def forward(self, states: Float[Tensor, "... width"]) -> Float[Tensor, "... embed"]:
        return self.layer_norm(self.activation(self.dense(states)))


class FunnelForMaskedLM(FunnelTokenHead):
    """The tokens that were hidden. The output layer is the word embeddings, and a bias.

    `config.lm_head_transform` puts the authors' dense layer, activation and norm before it, and
    `config.hide_masked_keys` hides [MASK] from attention as their code does.
    """

    _tied_weights_keys = {"lm_head.weight": "funnel.embeddings.word_embeddings.weight"}

    def __init__(self, config: FunnelConfig):
        super().__init__(config)
        if config.hide_masked_keys and config.mask_token_id is None:
            raise UsageError(
                "expected `mask_token_id` with `hide_masked_keys`, got None; set it to the tokenizer's in the config"
            )
        assert config.d_embed is not None
        narrow = config.d_embed != config.d_model
        self.lm_transform = FunnelLMTransform(config) if config.lm_head_transform or narrow else None
        self.lm_head = nn.Linear(config.d_embed, config.vocab_size)
        self.post_init()

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.lm_head = new_embeddings

    def vocabulary_logits(self, states: Float[Tensor, "... width"]) -> Float[Tensor, "... vocabulary"]:
        """Logits of states of tokens."""
        return self.lm_head(states if self.lm_transform is None else self.lm_transform(states))

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "batch length"] | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "batch length"] | None = None,
        inputs_embeds: Float[Tensor, "batch length embed"] | None = None,
        labels: Int[Tensor, "batch length"] | None = None,
        num_items_in_batch: Tensor | int | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        key_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> MaskedLMOutput:
        """Inputs as `FunnelModel.forward`.

        Args:
            labels: `[batch, length]`, −100 for tokens that are not predicted.
            num_items_in_batch: tokens that the summed cross entropy is divided by; None: this batch's predicted ones.

        In training with labels no `logits` are returned: those of tokens that are not predicted are never computed.
        """
        outputs = self._states(
            input_ids,
            attention_mask,
            token_type_ids,
            inputs_embeds,
            output_attentions,
            output_hidden_states,
            key_mask=self._seen(input_ids, key_mask),
        )
        states = outputs.last_hidden_state
        assert states is not None
        loss = logits = None
        if labels is not None:
            loss = masked_lm_loss(states, labels, self.vocabulary_logits, num_items_in_batch=num_items_in_batch)
        if labels is None or not self.training:
            logits = self.vocabulary_logits(states)
        return with_states(MaskedLMOutput, outputs, loss=loss, logits=logits)

    def _seen(self, input_ids: Tensor | None, key_mask: Tensor | None) -> Tensor | None:
        """The keys of a caller, without [MASK] where the config hides it."""
        if not self.config.hide_masked_keys:
            return key_mask
        if input_ids is None:
            raise UsageError(
                "expected input_ids with `hide_masked_keys`, got inputs_embeds, which do not say where [MASK] is; "
                "pass ids or set it to False"
            )
        seen = input_ids != self.config.mask_token_id
        return seen if key_mask is None else seen & (key_mask != 0)


class FunnelDiscriminatorPredictions(nn.Module):
    """A number for each token; named as transformers'."""

    def __init__(self, config: FunnelConfig):
        super().__init__()
        self.dense = nn.Linear(config.d_model, config.d_model)
        self.activation = ACT2FN[config.hidden_act]
        self.dense_prediction = nn.Linear(config.d_model, 1)

    def forward(self, states: Float[Tensor, "batch length width"]) -> Float[Tensor, "batch length"]:
        return self.dense_prediction(self.activation(self.dense(states)))[..., 0]


class FunnelForReplacedTokenDetection(FunnelTokenHead):
    """ELECTRA's discriminator: which tokens were replaced. transformers calls it `FunnelForPreTraining`."""

    def __init__(self, config: FunnelConfig):
        super().__init__(config)
        self.discriminator_predictions = FunnelDiscriminatorPredictions(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "batch length"] | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "batch length"] | None = None,
        inputs_embeds: Float[Tensor, "batch length embed"] | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> ReplacedTokenOutput:
        """Inputs as `FunnelModel.forward`.

        Args:
            labels: `[batch, length]`, nonzero where a token was replaced, whatever `config.discriminator_positive` is:
                that only turns the sign of the logits.
            num_items_in_batch: tokens that the summed binary cross entropy is divided by; None: this batch's real ones.
        """
        outputs = self._states(
            input_ids, attention_mask, token_type_ids, inputs_embeds, output_attentions, output_hidden_states
        )
        logits = self.discriminator_predictions(outputs.last_hidden_state)
        loss = None
        if labels is not None:
            loss = replaced_token_loss(
                logits,
                labels.to(torch.bool),
                positive=self.config.discriminator_positive,
                attention_mask=attention_mask,
                weight=1.0,
                num_items_in_batch=num_items_in_batch,
            )
        return with_states(ReplacedTokenOutput, outputs, loss=loss, logits=logits)
