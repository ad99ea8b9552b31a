"""Answers as spans: start and end each alone, or the end given the start.

Source of the second: Dai et al. 2020 (Funnel-Transformer), the SQuAD head of its code, which is XLNet's.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional
from transformers.modeling_outputs import QuestionAnsweringModelOutput
from transformers.utils.generic import can_return_tuple

from narrows.errors import UsageError
from narrows.funnel.config import FunnelConfig
from narrows.funnel.heads.common import FunnelTokenHead, dropout_of, head_loss, with_states
from narrows.funnel.heads.outputs import ConditionalSpanOutput
from narrows.losses import span_log_probabilities, span_loss

__all__ = ["FunnelForConditionalQuestionAnswering", "FunnelForQuestionAnswering"]


class FunnelForQuestionAnswering(FunnelTokenHead):
    """Start and end logits of every token."""

    def __init__(self, config: FunnelConfig):
        super().__init__(config)
        self.qa_outputs = nn.Linear(config.d_model, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "batch length"] | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "batch length"] | None = None,
        inputs_embeds: Float[Tensor, "batch length embed"] | None = None,
        start_positions: Int[Tensor, " batch"] | None = None,
        end_positions: Int[Tensor, " batch"] | None = None,
        num_items_in_batch: Tensor | int | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> QuestionAnsweringModelOutput:
        """Inputs as `FunnelModel.forward`; the labels are token positions in the row.

        The loss is the cross entropy of start and end over real tokens, halved, summed over the batch and divided by
        `num_items_in_batch` (None: by the batch's size).
        """
        outputs = self._states(
            input_ids, attention_mask, token_type_ids, inputs_embeds, output_attentions, output_hidden_states
        )
        start_logits, end_logits = self.qa_outputs(outputs.last_hidden_state).unbind(-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            total = span_loss(start_logits, end_logits, start_positions, end_positions, attention_mask)
            loss = head_loss(total, start_logits.shape[0], num_items_in_batch)
        return with_states(
            QuestionAnsweringModelOutput, outputs, loss=loss, start_logits=start_logits, end_logits=end_logits
        )


class _StartLogits(nn.Module):
    def __init__(self, config: FunnelConfig):
        super().__init__()
        self.dense = nn.Linear(config.d_model, 1)

    def forward(self, states: Tensor) -> Tensor:
        return self.dense(states)[..., 0]


class _EndLogits(nn.Module):
    """Ends, given the state of a start."""

    def __init__(self, config: FunnelConfig):
        super().__init__()
        self.dense_0 = nn.Linear(2 * config.d_model, config.d_model)
        self.layer_norm = nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)
        self.dense_1 = nn.Linear(config.d_model, 1)

    def forward(
        self, states: Float[Tensor, "batch length width"], starts: Float[Tensor, "batch starts width"]
    ) -> Float[Tensor, "batch starts length"]:
        # The layer over both, one after the other: their pairs are never joined in memory.
        of_state, of_start = self.dense_0.weight.chunk(2, dim=1)
        given = functional.linear(starts, of_start, self.dense_0.bias)
        joined = functional.linear(states, of_state)[:, None] + given[:, :, None]
        return self.dense_1(self.layer_norm(torch.tanh(joined)))[..., 0]


class _AnswerClass(nn.Module):
    """Whether there is no answer, from [cls] and the expected start."""

    def __init__(self, config: FunnelConfig):
        super().__init__()
        self.dense_0 = nn.Linear(2 * config.d_model, config.d_model)
        self.dropout = dropout_of(config)
        self.dense_1 = nn.Linear(config.d_model, 1, bias=False)

    def forward(self, start: Tensor, cls: Tensor) -> Tensor:
        return self.dense_1(self.dropout(torch.tanh(self.dense_0(torch.cat([start, cls], -1)))))[..., 0]


class FunnelForConditionalQuestionAnswering(FunnelTokenHead):
    """The paper's span head: a start, an end that depends on it, and whether there is an answer at all.

    In training the end is conditioned on the right start; otherwise the `start_n_top` likeliest starts are tried, and
    for each the `end_n_top` likeliest ends are kept.
    """

    def __init__(self, config: FunnelConfig):
        super().__init__(config)
        self.start_logits = _StartLogits(config)
        self.end_logits = _EndLogits(config)
        self.answer_class = _AnswerClass(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "batch length"] | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "batch length"] | None = None,
        inputs_embeds: Float[Tensor, "batch length embed"] | None = None,
        start_positions: Int[Tensor, " batch"] | None = None,
        end_positions: Int[Tensor, " batch"] | None = None,
        is_impossible: Tensor | None = None,
        p_mask: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> ConditionalSpanOutput:
        """Inputs as `FunnelModel.forward`.

        Args:
            start_positions: `[batch]` token positions in the row; that of [cls] where there is no answer.
            end_positions: `[batch]`.
            is_impossible: `[batch]`, nonzero where there is no answer; None: answerability is not trained.
            p_mask: `[batch, length]`, nonzero for tokens that no answer begins or ends with, as XLNet's.
            num_items_in_batch: questions that the summed loss is divided by; None: those of this batch.

        The loss is half of start's plus end's cross entropy and half of answerability's binary cross entropy.

        Raises:
            UsageError: `is_impossible` without positions, or a position outside the row.
        """
        outputs = self._states(
            input_ids, attention_mask, token_type_ids, inputs_embeds, output_attentions, output_hidden_states
        )
        states = outputs.last_hidden_state
        assert states is not None
        allowed = _allowed(states, attention_mask, p_mask)
        start_logits = self.start_logits(states)
        start_log = span_log_probabilities(start_logits, allowed)
        expected = torch.einsum("bl,bld->bd", start_log.exp().to(states.dtype), states)
        answer_logits = self.answer_class(expected, _first_token(states, attention_mask))
        fields: dict[str, Tensor | None] = {"start_logits": start_logits, "answer_logits": answer_logits}
        if start_positions is None:
            if is_impossible is not None:
                raise UsageError(
                    "expected `start_positions` and `end_positions` with `is_impossible`, got none; "
                    "pass that of [cls] where there is no answer"
                )
            return with_states(ConditionalSpanOutput, outputs, **fields, **self._search(states, start_log, allowed))
        _check(start_positions, states.shape[1])
        chosen = states[torch.arange(states.shape[0], device=states.device), start_positions]
        fields["end_logits"] = end_logits = self.end_logits(states, chosen[:, None])[:, 0]
        if end_positions is not None:
            total = span_loss(start_logits, end_logits, start_positions, end_positions, allowed)
            if is_impossible is not None:
                wide = answer_logits.to(total.dtype)
                impossible = is_impossible.to(total.dtype)
                total = total + 0.5 * functional.binary_cross_entropy_with_logits(wide, impossible, reduction="sum")
            fields["loss"] = head_loss(total, states.shape[0], num_items_in_batch)
        return with_states(ConditionalSpanOutput, outputs, **fields)

    def _search(self, states: Tensor, start_log: Tensor, allowed: Tensor | None) -> dict[str, Tensor]:
        length = states.shape[1]
        start_top, start_index = start_log.topk(min(self.config.start_n_top, length), dim=1)
        starts = states.gather(1, start_index[:, :, None].expand(-1, -1, states.shape[2]))
        ends = self.end_logits(states, starts)
        allowed = None if allowed is None else allowed[:, None].expand(ends.shape).flatten(0, 1)
        end_log = span_log_probabilities(ends.flatten(0, 1), allowed).view(ends.shape)
        end_top, end_index = end_log.topk(min(self.config.end_n_top, length), dim=2)
        return {
            "start_top_log_probs": start_top,
            "start_top_index": start_index,
            "end_top_log_probs": end_top,
            "end_top_index": end_index,
        }


def _allowed(states: Tensor, attention_mask: Tensor | None, p_mask: Tensor | None) -> Tensor | None:
    """Tokens that an answer may begin or end with; None: any."""
    if p_mask is None:
        return attention_mask
    if p_mask.shape != states.shape[:2]:
        raise UsageError(
            f"`p_mask` must be [batch, length] as the inputs, {list(states.shape[:2])}, got {list(p_mask.shape)}; "
            "mark each token"
        )
    return p_mask == 0 if attention_mask is None else (p_mask == 0) & (attention_mask != 0)


def _first_token(states: Tensor, attention_mask: Tensor | None) -> Tensor:
    """The state of [cls], maybe behind padding."""
    if attention_mask is None:
        return states[:, 0]
    first = (attention_mask != 0).to(torch.int8).argmax(1)
    return states[torch.arange(states.shape[0], device=states.device), first]


def _check(positions: Tensor, length: int) -> None:
    if positions.numel() and not 0 <= int(positions.min()) <= int(positions.max()) < length:
        raise UsageError(
            f"`start_positions` must lie in a row of {length}, got {int(positions.min())} to {int(positions.max())}; "
            "use that of [cls] for no answer"
        )
