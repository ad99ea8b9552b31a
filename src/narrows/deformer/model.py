"""DeFormer as a transformers model: the encoder, and its heads for spans and for classes or scores."""

from functools import partial
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers.modeling_outputs import (
    BaseModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
)
from transformers.utils.generic import can_return_tuple

from narrows._plural import count
from narrows.core import segment_positions
from narrows.deformer.backbones import build_backbone
from narrows.deformer.config import DeformerConfig
from narrows.deformer.split import Layers, join, run_lower, run_packed, run_upper
from narrows.errors import UsageError
from narrows.hf.base import NarrowsPreTrainedModel
from narrows.losses import classification_loss, span_loss

__all__ = [
    "DeformerForQuestionAnswering",
    "DeformerForSequenceClassification",
    "DeformerModel",
    "DeformerPreTrainedModel",
]


class DeformerPreTrainedModel(NarrowsPreTrainedModel):
    config: DeformerConfig
    config_class = DeformerConfig
    base_model_prefix = "deformer"
    _no_split_modules = ["BertEmbeddings", "BertLayer"]

    def __init__(self, config: DeformerConfig):
        # Again, as `from_pretrained(..., split_layer=9)` changes a field of a config that was already checked.
        config.check_architecture()
        super().__init__(config)


class DeformerModel(DeformerPreTrainedModel):
    """An encoder whose first `split_layer` layers read question and passage apart.

    `forward` takes both in one row, `[CLS] question [SEP]` with segment 0 and `passage [SEP]` with segment 1.
    `encode_side` and `read_joined` are the same computation in two steps, so that a passage's first step can be stored.
    """

    def __init__(self, config: DeformerConfig):
        super().__init__(config)
        self.gradient_checkpointing = False
        self.backbone = build_backbone(config)
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.backbone.word_embeddings

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.backbone.set_word_embeddings(value)

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "batch length"],
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "batch length"] | None = None,
        position_ids: Int[Tensor, "batch length"] | None = None,
        lower_states: Float[Tensor, "batch length width"] | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: object,
    ) -> BaseModelOutput:
        """States of all tokens after the last layer.

        Args:
            input_ids: `[batch, length]`.
            attention_mask: `[batch, length]`, nonzero for real tokens; None: all are.
            token_type_ids: 0 for the question's side, 1 for the passage's; None: all 0.
            position_ids: None: counted over real tokens as `config.passage_positions` says.
            lower_states: `[batch, length, width]` states after layer k, when they were stored: neither embedder nor
                lower layers run.
            output_hidden_states: also return the states that entered the first layer run and those after each layer.

        Raises:
            UsageError: more tokens than positions.
        """
        real = None if attention_mask is None else attention_mask != 0
        segments = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        from_layer = 0 if lower_states is None else self.config.split_layer
        if lower_states is None:
            lower_states = self._embed(input_ids, real, segments, position_ids)
        states = run_packed(
            self._layers(),
            lower_states,
            real,
            segments,
            split_layer=self.config.split_layer,
            from_layer=from_layer,
            backend=self.attention_backend,
        )
        wants = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        return BaseModelOutput(last_hidden_state=states[-1], hidden_states=tuple(states) if wants else None)

    def encode_side(
        self,
        input_ids: Int[Tensor, "batch length"],
        real: Bool[Tensor, "batch length"] | None = None,
        *,
        segment: int,
    ) -> Float[Tensor, "batch length width"]:
        """One side's states after layer k: `[CLS] question [SEP]` (segment 0) or `passage [SEP]` (segment 1).

        Example:
            >>> stored = model.encode_side(passage_ids, segment=1)  # doctest: +SKIP
        """
        hidden = self._embed(input_ids, real, torch.full_like(input_ids, segment), None)
        return run_lower(self._layers()[: self.config.split_layer], hidden, real, backend=self.attention_backend)

    def read_joined(
        self,
        question: Float[Tensor, "questions question_length width"],
        passages: Float[Tensor, "batch passage_length width"],
        *,
        question_real: Bool[Tensor, "questions question_length"] | None = None,
        passage_real: Bool[Tensor, "batch passage_length"] | None = None,
        read: Int[Tensor, " read"] | None = None,
    ) -> Float[Tensor, "batch read width"]:
        """Upper layers over the states of one question (or one a passage) and of many passages.

        Args:
            question: states of `encode_side(..., segment=0)`; one row is shared by all passages.
            passages: states of `encode_side(..., segment=1)`, computed or stored.
            question_real: None: the question has no padding.
            passage_real: None: the passages have no padding.
            read: indices into the joined row of the tokens that the head reads; None: all.
        """
        states, real = join(question, question_real, passages, passage_real)
        upper = self._layers()[self.config.split_layer :]
        return run_upper(upper, states, real, read=read, backend=self.attention_backend)

    def _layers(self) -> Layers:
        if self.gradient_checkpointing and self.training:
            return [partial(self._checkpointed, layer) for layer in self.backbone.layers]
        return self.backbone.layers

    def _checkpointed(self, layer: nn.Module, *tensors: Tensor | None, backend: str) -> Tensor:
        # Bound before, as reentrant checkpointing takes no keyword arguments.
        return self._gradient_checkpointing_func(partial(layer.__call__, backend=backend), *tensors)

    def _embed(self, input_ids: Tensor, real: Tensor | None, segments: Tensor, positions: Tensor | None) -> Tensor:
        if positions is None:
            everything = torch.ones_like(input_ids, dtype=torch.bool)
            restart = self.config.passage_positions == "restart"
            positions = segment_positions(everything if real is None else real, segments, restart=restart)
        room = self.config.max_position_embeddings
        # Only a row longer than the table can overrun it, so short rows pay no synchronisation.
        if input_ids.shape[1] > room and int(positions.max()) >= room:
            raise UsageError(
                f"a text must have at most {count(room, 'token')}, got {int(positions.max()) + 1}; "
                "cut it into windows or convert with fewer tokens a passage"
            )
        return self.backbone.embeddings(input_ids, segments, positions)


class DeformerForQuestionAnswering(DeformerPreTrainedModel):
    """Start and end logits for every token; the logits of [CLS] stand for "no answer in this passage"."""

    def __init__(self, config: DeformerConfig):
        super().__init__(config)
        self.deformer = DeformerModel(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "batch length"],
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "batch length"] | None = None,
        position_ids: Int[Tensor, "batch length"] | None = None,
        lower_states: Float[Tensor, "batch length width"] | None = None,
        start_positions: Int[Tensor, " batch"] | None = None,
        end_positions: Int[Tensor, " batch"] | None = None,
        num_items_in_batch: Tensor | int | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: object,
    ) -> QuestionAnsweringModelOutput:
        """Inputs as `DeformerModel.forward`; the labels are token positions in the row, 0 ([CLS]) for no answer.

        The loss is the cross entropy of start and end, halved, summed over the batch and divided by
        `num_items_in_batch` (None: by the batch's size).
        """
        outputs = self.deformer(
            input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            lower_states=lower_states,
            output_hidden_states=output_hidden_states,
        )
        start_logits, end_logits = self.qa_outputs(outputs.last_hidden_state).unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = span_loss(start_logits, end_logits, start_positions, end_positions, attention_mask) / (
                input_ids.shape[0] if num_items_in_batch is None else num_items_in_batch
            )
        return QuestionAnsweringModelOutput(
            loss=loss, start_logits=start_logits, end_logits=end_logits, hidden_states=outputs.hidden_states
        )

    def score_spans(
        self,
        question: Float[Tensor, "1 question_length width"],
        passages: Float[Tensor, "batch passage_length width"],
        passage_real: Bool[Tensor, "batch passage_length"] | None = None,
    ) -> Float[Tensor, "batch tokens 2"]:
        """Start and end logits of [CLS] (first) and of the passage's tokens, its closing [SEP] and padding included.

        The last layer computes these tokens only.
        """
        question_length = question.shape[1]
        passage_tokens = torch.arange(question_length, question_length + passages.shape[1], device=passages.device)
        read = torch.cat([passage_tokens.new_zeros(1), passage_tokens])
        states = self.deformer.read_joined(question, passages, passage_real=passage_real, read=read)
        return self.qa_outputs(states)


class DeformerForSequenceClassification(DeformerPreTrainedModel):
    """Classes of a pair, or with `num_labels=1` one score for ranking or regression, read from [CLS]."""

    def __init__(self, config: DeformerConfig):
        super().__init__(config)
        self.deformer = DeformerModel(config)
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size)
        rate = config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout
        self.dropout = nn.Dropout(rate)
        self.classifier = nn.Linear(config.hidden_size, cast(int, config.num_labels))
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "batch length"],
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "batch length"] | None = None,
        position_ids: Int[Tensor, "batch length"] | None = None,
        lower_states: Float[Tensor, "batch length width"] | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: object,
    ) -> SequenceClassifierOutput:
        """Inputs as `DeformerModel.forward`.

        With one label the loss is the squared error, otherwise the cross entropy; summed over the batch and divided by
        `num_items_in_batch` (None: by the batch's size).
        """
        outputs = self.deformer(
            input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            position_ids=position_ids,
            lower_states=lower_states,
            output_hidden_states=output_hidden_states,
        )
        logits = self._classify(_first_real(outputs.last_hidden_state, attention_mask))
        loss = None
        if labels is not None:
            loss = classification_loss(logits, labels) / (
                input_ids.shape[0] if num_items_in_batch is None else num_items_in_batch
            )
        return SequenceClassifierOutput(loss=loss, logits=logits, hidden_states=outputs.hidden_states)

    def score_pairs(
        self,
        question: Float[Tensor, "1 question_length width"],
        passages: Float[Tensor, "batch passage_length width"],
        passage_real: Bool[Tensor, "batch passage_length"] | None = None,
    ) -> Float[Tensor, "batch labels"]:
        """Logits of one question with many passages; the last layer computes [CLS] only."""
        first = torch.zeros(1, dtype=torch.long, device=passages.device)
        states = self.deformer.read_joined(question, passages, passage_real=passage_real, read=first)
        return self._classify(states[:, 0])

    def _classify(self, first: Tensor) -> Tensor:
        return self.classifier(self.dropout(torch.tanh(self.pooler(first))))


def _first_real(states: Tensor, attention_mask: Tensor | None) -> Tensor:
    """States of [CLS], which stands after the padding in a row that is padded on the left."""
    if attention_mask is None:
        return states[:, 0]
    first = (attention_mask != 0).long().argmax(-1)
    return states[torch.arange(states.shape[0], device=states.device), first]
