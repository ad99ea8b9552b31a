"""What heads return that transformers has no class for."""

from dataclasses import dataclass

from torch import Tensor
from transformers.utils.generic import ModelOutput

__all__ = ["ConditionalSpanOutput", "ElectraOutput", "ReplacedTokenOutput", "TextEmbeddingOutput"]


@dataclass
class ConditionalSpanOutput(ModelOutput):
    """Spans whose end depends on their start.

    Attributes:
        loss: with labels.
        start_logits: `[batch, length]`.
        end_logits: `[batch, length]` given the start of `start_positions`; None without it.
        answer_logits: `[batch]`, above 0 where there is no answer.
        start_top_log_probs: `[batch, starts]` of the likeliest starts, which `start_top_index` names; these and the
            next are None with `start_positions`.
        end_top_log_probs: `[batch, starts, ends]` of the likeliest ends of each, which `end_top_index` names.
        hidden_states: as `FunnelOutput`.
        attentions: as `FunnelOutput`.
    """

    loss: Tensor | None = None
    start_logits: Tensor | None = None
    end_logits: Tensor | None = None
    answer_logits: Tensor | None = None
    start_top_log_probs: Tensor | None = None
    start_top_index: Tensor | None = None
    end_top_log_probs: Tensor | None = None
    end_top_index: Tensor | None = None
    hidden_states: tuple[tuple[Tensor, ...], ...] | None = None
    attentions: tuple[tuple[Tensor, ...], ...] | None = None


@dataclass
class ReplacedTokenOutput(ModelOutput):
    """A number for each token: was it replaced? `logits` is `[batch, length]`, with the sign that the config says."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    hidden_states: tuple[tuple[Tensor, ...], ...] | None = None
    attentions: tuple[tuple[Tensor, ...], ...] | None = None


@dataclass
class ElectraOutput(ModelOutput):
    """A step of ELECTRA.

    Attributes:
        loss: the sum of the next two.
        generator_loss: cross entropy of the predicted tokens.
        discriminator_loss: binary cross entropy of all tokens, with its weight.
        logits: `[batch, length]` of the discriminator, with the sign that the config says.
        replaced: bool `[batch, length]`, where the discriminator saw another token than stood there.
        input_ids: `[batch, length]`, what it saw.
    """

    loss: Tensor | None = None
    generator_loss: Tensor | None = None
    discriminator_loss: Tensor | None = None
    logits: Tensor | None = None
    replaced: Tensor | None = None
    input_ids: Tensor | None = None


@dataclass
class TextEmbeddingOutput(ModelOutput):
    """One vector a text.

    Attributes:
        last_hidden_state: `[batch, slots, width]` of the last block.
        pooler_output: `[batch, width]`, not normalised.
        pooled_attention_mask: as `FunnelOutput`.
        lengths: as `FunnelOutput`.
        hidden_states: as `FunnelOutput`.
        attentions: as `FunnelOutput`.
    """

    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    pooled_attention_mask: Tensor | None = None
    lengths: Tensor | None = None
    hidden_states: tuple[tuple[Tensor, ...], ...] | None = None
    attentions: tuple[tuple[Tensor, ...], ...] | None = None
