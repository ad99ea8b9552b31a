"""What the heads share."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from narrows.funnel.config import FunnelConfig
from narrows.funnel.model import FunnelBaseModel, FunnelModel, FunnelPreTrainedModel
from narrows.funnel.outputs import FunnelOutput

__all__ = ["FunnelBaseHead", "FunnelHead", "FunnelTokenHead", "dropout_of", "first_state", "head_loss", "with_states"]


_OTHER_HEADS = [
    r"generator\.",
    r"(lm_head|lm_transform|discriminator_predictions|classifier|qa_outputs)\.",
    r"(start_logits|end_logits|answer_class)\.",
]


class FunnelHead(FunnelPreTrainedModel):
    """A model under the name `funnel`; a class below adds its head.

    Weights of other heads in a checkpoint are left where they are.
    """

    funnel: FunnelBaseModel | FunnelModel
    _keys_to_ignore_on_load_unexpected = _OTHER_HEADS

    def _states(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        token_type_ids: Tensor | None,
        inputs_embeds: Tensor | None,
        output_attentions: bool | None,
        output_hidden_states: bool | None,
        key_mask: Tensor | None = None,
    ) -> FunnelOutput:
        return self.funnel(
            input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            inputs_embeds=inputs_embeds,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            key_mask=key_mask,
            return_dict=True,
        )


class FunnelBaseHead(FunnelHead):
    """A head that reads the last block's slots and has no decoder."""

    funnel: FunnelBaseModel
    _keys_to_ignore_on_load_unexpected = [*_OTHER_HEADS, r"(funnel\.)?decoder\."]

    def __init__(self, config: FunnelConfig):
        super().__init__(config)
        self.funnel = FunnelBaseModel(config)


class FunnelTokenHead(FunnelHead):
    """A head that reads the states of tokens."""

    funnel: FunnelModel

    def __init__(self, config: FunnelConfig):
        super().__init__(config)
        self.funnel = FunnelModel(config)


def first_state(outputs: FunnelOutput, config: FunnelConfig) -> Float[Tensor, "batch width"]:
    """The state of each row's first real slot, [cls]."""
    assert outputs.last_hidden_state is not None and outputs.pooled_attention_mask is not None
    states = outputs.last_hidden_state
    if config.num_blocks > 1 or config.semantics != "exact":
        return states[:, 0]
    # Slots of a single block are tokens where they stood, maybe behind padding.
    first = outputs.pooled_attention_mask.to(torch.int8).argmax(1)
    return states[torch.arange(states.shape[0], device=states.device), first]


def head_loss(total: Tensor, count: Tensor | int, num_items_in_batch: Tensor | int | None) -> Tensor:
    """A sum divided by the items of the whole optimiser step, or without it by those of this batch."""
    if num_items_in_batch is not None:
        return total / num_items_in_batch
    return total / (count.clamp_min(1) if isinstance(count, Tensor) else max(count, 1))


def dropout_of(config: FunnelConfig) -> nn.Dropout:
    """The dropout of a head."""
    rate: Any = config.hidden_dropout if config.classifier_dropout is None else config.classifier_dropout
    return nn.Dropout(rate)


def with_states(kind: Any, outputs: FunnelOutput, **fields: Any) -> Any:
    """The outputs of a head, with the states and weights of all layers where they were asked for."""
    return kind(hidden_states=outputs.hidden_states, attentions=outputs.attentions, **fields)
