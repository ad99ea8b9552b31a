"""What a bottleneck Transformer is asked: hidden tokens, classes of a text, classes of its tokens."""

from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.modeling_outputs import (
    BaseModelOutputWithPast,
    MaskedLMOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.utils.generic import can_return_tuple

from narrows.bottleneck.config import BottleneckConfig
from narrows.bottleneck.layers import StableLayerNorm
from narrows.bottleneck.model import BottleneckModel, BottleneckPreTrainedModel
from narrows.errors import UsageError
from narrows.losses import masked_lm_loss, require_problem, sequence_loss, token_loss

__all__ = ["BottleneckForMaskedLM", "BottleneckForSequenceClassification", "BottleneckForTokenClassification"]


class BottleneckHead(BottleneckPreTrainedModel):
    """A model under the name `model`; a class below adds its head. Other heads in a checkpoint are left there."""

    _keys_to_ignore_on_load_unexpected = [r"(lm_head|lm_transform|classifier)\."]

    def __init__(self, config: BottleneckConfig):
        super().__init__(config)
        self.model = BottleneckModel(config)

    def _states(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        inputs_embeds: Tensor | None,
        output_attentions: bool | None,
        output_hidden_states: bool | None,
    ) -> BaseModelOutputWithPast:
        return self.model(
            input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            use_cache=False,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            return_dict=True,
        )

    def _dropout(self) -> nn.Dropout:
        rate: Any = self.config.classifier_dropout
        return nn.Dropout(self.config.hidden_dropout if rate is None else rate)


class _Transform(nn.Module):
    """A linear layer, an activation and a norm before the vocabulary, as in BERT."""

    def __init__(self, config: BottleneckConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACT2FN[config.hidden_act]
        self.norm = StableLayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, states: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        return self.norm(self.activation(self.dense(states)))


class BottleneckForMaskedLM(BottleneckHead):
    """The tokens that are hidden, of a model whose tokens see both sides.

    Raises:
        UsageError: a causal config.
    """

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: BottleneckConfig):
        super().__init__(config)
        if config.causal:
            raise UsageError(
                "expected a config with causal=False for hidden tokens, which stand between others, got causal=True; "
                "set it to False"
            )
        self.lm_transform = _Transform(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.lm_head = new_embeddings

    def vocabulary_logits(self, states: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows vocabulary"]:
        """Logits of states of tokens, in at least fp32 under autocast."""
        return in_single(self.lm_head(self.lm_transform(states)))

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "batch length"] | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Float[Tensor, "batch length width"] | None = None,
        labels: Int[Tensor, "batch length"] | None = None,
        num_items_in_batch: Tensor | int | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> MaskedLMOutput:
        """Inputs as `BottleneckModel.forward`.

        Args:
            labels: `[batch, length]`, −100 for tokens that are not predicted.
            num_items_in_batch: tokens that the summed cross entropy is divided by; None: this batch's predicted ones.

        In training with labels no `logits` are returned: those of tokens that are not predicted are never computed.
        """
        outputs = self._states(input_ids, attention_mask, inputs_embeds, output_attentions, output_hidden_states)
        states = cast(Tensor, outputs.last_hidden_state)
        loss = logits = None
        if labels is not None:
            loss = masked_lm_loss(states, labels, self.vocabulary_logits, num_items_in_batch=num_items_in_batch)
        if labels is None or not self.training:
            logits = self.vocabulary_logits(states)
        return MaskedLMOutput(loss=loss, logits=logits, hidden_states=outputs.hidden_states)


class BottleneckForSequenceClassification(BottleneckHead):
    """Classes of a text, or numbers, read from the mean of its tokens' states.

    Example:
        >>> config = BottleneckConfig(hidden_size=64, num_hidden_layers=1, causal=False, num_labels=3)
        >>> model = BottleneckForSequenceClassification(config).eval()
        >>> list(model(torch.tensor([[1, 2, 3]])).logits.shape)
        [1, 3]
    """

    def __init__(self, config: BottleneckConfig):
        super().__init__(config)
        require_problem(config.problem_type)
        self.dropout = self._dropout()
        self.classifier = nn.Linear(config.hidden_size, cast(int, config.num_labels))
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "batch length"] | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Float[Tensor, "batch length width"] | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Inputs as `BottleneckModel.forward`.

        Args:
            labels: as `narrows.losses.sequence_loss`, whose problem is the config's `problem_type`.
            num_items_in_batch: what the summed loss is divided by; None: the labels of this batch.
        """
        outputs = self._states(input_ids, attention_mask, inputs_embeds, output_attentions, output_hidden_states)
        states = cast(Tensor, outputs.last_hidden_state)
        # Zeros stand at padding.
        tokens: Any = states.shape[1] if attention_mask is None else (attention_mask != 0).sum(1, keepdim=True)
        mean = states.sum(1) / (tokens if isinstance(tokens, int) else tokens.clamp_min(1))
        logits = in_single(self.classifier(self.dropout(mean)))
        loss = None
        if labels is not None:
            total = sequence_loss(logits, labels, problem=self.config.problem_type)
            loss = total / (labels.numel() if num_items_in_batch is None else num_items_in_batch)
        return SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=outputs.hidden_states)


class BottleneckForTokenClassification(BottleneckHead):
    """A class for every token."""

    def __init__(self, config: BottleneckConfig):
        super().__init__(config)
        self.dropout = self._dropout()
        self.classifier = nn.Linear(config.hidden_size, cast(int, config.num_labels))
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "batch length"] | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Float[Tensor, "batch length width"] | None = None,
        labels: Int[Tensor, "batch length"] | None = None,
        num_items_in_batch: Tensor | int | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> TokenClassifierOutput:
        """Inputs as `BottleneckModel.forward`.

        Args:
            labels: `[batch, length]`, −100 where a token has none.
            num_items_in_batch: tokens that the summed cross entropy is divided by; None: this batch's with a label.
        """
        outputs = self._states(input_ids, attention_mask, inputs_embeds, output_attentions, output_hidden_states)
        logits = in_single(self.classifier(self.dropout(outputs.last_hidden_state)))
        loss = None
        if labels is not None:
            labelled = (labels != -100).sum().clamp_min(1)
            loss = token_loss(logits, labels) / (labelled if num_items_in_batch is None else num_items_in_batch)
        return TokenClassifierOutput(loss=loss, logits=logits, hidden_states=outputs.hidden_states)


def in_single(logits: Tensor) -> Tensor:
    """Logits in fp32 under autocast, on every device; otherwise in the model's dtype."""
    return logits.float() if torch.is_autocast_enabled(logits.device.type) else logits
