"""Heads on the encoder: classes, spans and vectors of long documents."""

from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers.modeling_outputs import (
    BaseModelOutputWithPooling,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
)
from transformers.models.t5.modeling_t5 import T5ClassificationHead
from transformers.utils.generic import can_return_tuple

from narrows.errors import UsageError
from narrows.losses import classification_loss, span_loss
from narrows.mulla.config import MullaT5Config
from narrows.mulla.encoder import MullaT5PreTrainedModel, MullaT5Stack
from narrows.mulla.layers import SpanHead

__all__ = ["MullaT5ForEmbedding", "MullaT5ForQuestionAnswering", "MullaT5ForSequenceClassification"]


class _WithEncoder(MullaT5PreTrainedModel):
    """Embeddings and the encoder, named as in the other models of the family; a class below adds its head."""

    _keys_to_ignore_on_load_unexpected = [r"decoder\.", r"lm_head\."]

    def __init__(self, config: MullaT5Config):
        super().__init__(config)
        self.shared = nn.Embedding(config.vocab_size, config.d_model)
        self.encoder = MullaT5Stack(config)

    def _encode(self, *inputs: Any) -> tuple[Tensor, tuple[Tensor, ...] | None]:
        """The last states and, where asked for, all of them."""
        outputs = self.encoder(*inputs, return_dict=True)
        return outputs.last_hidden_state, outputs.hidden_states


class MullaT5ForSequenceClassification(_WithEncoder):
    """Classes of a document, or with `num_labels=1` a score, read from the mean of its tokens' states."""

    def __init__(self, config: MullaT5Config):
        super().__init__(config)
        if config.problem_type == "multi_label_classification":
            raise UsageError(
                "`problem_type` must be single_label_classification or regression, got 'multi_label_classification'; "
                "train a model a label"
            )
        self.classification_head = T5ClassificationHead(cast(Any, config))
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
        """Inputs as `MullaT5Stack.forward`.

        With one label the loss is the squared error, otherwise the cross entropy; summed over the batch and divided by
        `num_items_in_batch` (None: by the batch's size).
        """
        states, all_states = self._encode(
            input_ids, attention_mask, inputs_embeds, output_attentions, output_hidden_states
        )
        logits = self.classification_head(mean_state(states, attention_mask))
        loss = None
        if labels is not None:
            loss = classification_loss(logits, labels) / _items(logits, num_items_in_batch)
        return SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=all_states)


class MullaT5ForQuestionAnswering(_WithEncoder):
    """Start and end logits for every token of a question and a whole document in one row."""

    def __init__(self, config: MullaT5Config):
        super().__init__(config)
        self.qa_outputs = SpanHead(config.d_model, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "batch length"] | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Float[Tensor, "batch length width"] | None = None,
        start_positions: Int[Tensor, " batch"] | None = None,
        end_positions: Int[Tensor, " batch"] | None = None,
        num_items_in_batch: Tensor | int | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> QuestionAnsweringModelOutput:
        """Inputs as `MullaT5Stack.forward`; the labels are token positions in the row.

        The loss is the cross entropy of start and end over real tokens, halved, summed over the batch and divided by
        `num_items_in_batch` (None: by the batch's size).
        """
        states, all_states = self._encode(
            input_ids, attention_mask, inputs_embeds, output_attentions, output_hidden_states
        )
        start_logits, end_logits = self.qa_outputs(states).unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = span_loss(start_logits, end_logits, start_positions, end_positions, attention_mask)
            loss = loss / _items(start_logits, num_items_in_batch)
        return QuestionAnsweringModelOutput(
            loss=loss, start_logits=start_logits, end_logits=end_logits, hidden_states=all_states
        )


class MullaT5ForEmbedding(_WithEncoder):
    """One vector a document: the mean of its tokens' states, `pooler_output`. It has no weights of its own."""

    def __init__(self, config: MullaT5Config):
        super().__init__(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "batch length"] | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Float[Tensor, "batch length width"] | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Inputs as `MullaT5Stack.forward`; `pooler_output` is `[batch, width]`, zeros for a row without tokens."""
        states, all_states = self._encode(
            input_ids, attention_mask, inputs_embeds, output_attentions, output_hidden_states
        )
        return BaseModelOutputWithPooling(
            last_hidden_state=states,
            pooler_output=mean_state(states, attention_mask),
            hidden_states=all_states,
        )


def mean_state(states: Float[Tensor, "batch length width"], attention_mask: Tensor | None) -> Tensor:
    """The mean over a row's real tokens, summed in at least fp32; zeros for a row without any.

    Example:
        >>> mean_state(torch.tensor([[[1.0], [3.0], [8.0]]]), torch.tensor([[1, 1, 0]])).tolist()
        [[2.0]]
    """
    wide = torch.promote_types(states.dtype, torch.float32)
    if attention_mask is None:
        return (states.sum(1, dtype=wide) / max(states.shape[1], 1)).to(states.dtype)
    real = attention_mask != 0
    # A product with the mask in place of a masked copy of all states, which are finite.
    total = torch.einsum("bnd,bn->bd", states.to(wide), real.to(wide))
    return (total / real.sum(1, keepdim=True).clamp_min(1)).to(states.dtype)


def _items(logits: Tensor, num_items_in_batch: Tensor | int | None) -> Tensor | int:
    return max(logits.shape[0], 1) if num_items_in_batch is None else num_items_in_batch
