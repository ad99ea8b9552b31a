"""Classes and numbers: of a text, of choices, of tokens."""

from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional
from transformers.modeling_outputs import MultipleChoiceModelOutput, SequenceClassifierOutput, TokenClassifierOutput
from transformers.utils.generic import can_return_tuple

from narrows.errors import UsageError
from narrows.funnel.config import FunnelConfig
from narrows.funnel.heads.common import FunnelBaseHead, FunnelTokenHead, dropout_of, first_state, head_loss, with_states
from narrows.losses import require_problem, sequence_loss, token_loss

__all__ = ["FunnelForMultipleChoice", "FunnelForSequenceClassification", "FunnelForTokenClassification"]


class FunnelClassificationHead(nn.Module):
    """A dense layer with tanh, dropout and a linear layer over [cls]; named as transformers'."""

    def __init__(self, config: FunnelConfig, labels: int):
        super().__init__()
        self.linear_hidden = nn.Linear(config.d_model, config.d_model)
        self.dropout = dropout_of(config)
        self.linear_out = nn.Linear(config.d_model, labels)

    def forward(self, state: Float[Tensor, "batch width"]) -> Float[Tensor, "batch labels"]:
        return self.linear_out(self.dropout(torch.tanh(self.linear_hidden(state))))


class FunnelForSequenceClassification(FunnelBaseHead):
    """Classes of a text, or numbers: one with `num_labels=1`, several with `problem_type="regression"`.

    Example:
        >>> config = FunnelConfig(vocab_size=9, d_model=8, n_head=2, d_head=4, d_inner=16, num_labels=3)
        >>> model = FunnelForSequenceClassification(config).eval()
        >>> list(model(torch.tensor([[1, 2, 3, 4, 5]])).logits.shape)
        [1, 3]
    """

    def __init__(self, config: FunnelConfig):
        super().__init__(config)
        require_problem(config.problem_type)
        self.classifier = FunnelClassificationHead(config, cast(int, config.num_labels))
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
    ) -> SequenceClassifierOutput:
        """Inputs as `FunnelBaseModel.forward`.

        Args:
            labels: `[batch]` classes or numbers; `[batch, labels]` for several numbers, or 0 and 1 for several labels.
            num_items_in_batch: what the summed loss is divided by, as transformers' Trainer counts it: texts, or with
                several numbers or labels a text all of these; None: those of this batch.

        The loss is the cross entropy, with one label or `problem_type="regression"` the squared error, with
        `problem_type="multi_label_classification"` (or, without one, labels that are floats) the binary cross entropy;
        the last two are means over labels.
        """
        outputs = self._states(
            input_ids, attention_mask, token_type_ids, inputs_embeds, output_attentions, output_hidden_states
        )
        logits = self.classifier(first_state(outputs, self.config))
        loss = None
        if labels is not None:
            total = sequence_loss(logits, labels, problem=self.config.problem_type)
            loss = head_loss(total, labels.numel(), num_items_in_batch)
        return with_states(SequenceClassifierOutput, outputs, loss=loss, logits=logits)


class FunnelForMultipleChoice(FunnelBaseHead):
    """Which of several texts, such as question, answer and passage of RACE; each text is read alone."""

    def __init__(self, config: FunnelConfig):
        super().__init__(config)
        self.classifier = FunnelClassificationHead(config, 1)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "batch choices length"] | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "batch choices length"] | None = None,
        inputs_embeds: Float[Tensor, "batch choices length embed"] | None = None,
        labels: Int[Tensor, " batch"] | None = None,
        num_items_in_batch: Tensor | int | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> MultipleChoiceModelOutput:
        """Inputs as `FunnelBaseModel.forward`, with the choices as second dimension.

        Args:
            labels: `[batch]`, the right choice.
            num_items_in_batch: questions that the summed cross entropy is divided by; None: those of this batch.

        Raises:
            UsageError: inputs without a dimension for the choices.
        """
        given = inputs_embeds if input_ids is None else input_ids
        wanted = 4 if input_ids is None else 3
        if given is not None and given.dim() != wanted:
            raise UsageError(
                f"expected inputs of {wanted} dimensions, [batch, choices, length{', embed' if wanted == 4 else ''}], "
                f"got a shape of {list(given.shape)}; stack the choices of each question"
            )
        ids, mask, segments, embeds = (
            None if each is None else each.flatten(0, 1)
            for each in (input_ids, attention_mask, token_type_ids, inputs_embeds)
        )
        outputs = self._states(ids, mask, segments, embeds, output_attentions, output_hidden_states)
        scores = self.classifier(first_state(outputs, self.config))
        assert given is not None
        logits = scores.view(given.shape[0], given.shape[1])
        loss = None
        if labels is not None:
            wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
            total = functional.cross_entropy(wide, labels, reduction="sum")
            loss = head_loss(total, logits.shape[0], num_items_in_batch)
        return with_states(MultipleChoiceModelOutput, outputs, loss=loss, logits=logits)


class FunnelForTokenClassification(FunnelTokenHead):
    """A class for every token."""

    def __init__(self, config: FunnelConfig):
        super().__init__(config)
        self.dropout = dropout_of(config)
        self.classifier = nn.Linear(config.d_model, cast(int, config.num_labels))
        self.post_init()

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
        **kwargs: Any,
    ) -> TokenClassifierOutput:
        """Inputs as `FunnelModel.forward`.

        Args:
            labels: `[batch, length]`, −100 where a token has none.
            num_items_in_batch: tokens that the summed cross entropy is divided by; None: this batch's with a label.
        """
        outputs = self._states(
            input_ids, attention_mask, token_type_ids, inputs_embeds, output_attentions, output_hidden_states
        )
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        loss = None
        if labels is not None:
            loss = head_loss(token_loss(logits, labels), (labels != -100).sum(), num_items_in_batch)
        return with_states(TokenClassifierOutput, outputs, loss=loss, logits=logits)
