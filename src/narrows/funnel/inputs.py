"""What a caller hands to a model, checked and brought into the order that the encoder reads."""

from typing import NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor

from narrows.core import Compact, compact
from narrows.errors import UsageError
from narrows.funnel.pooling import Slots

__all__ = ["Entered", "enter"]


class Entered(NamedTuple):
    """Inputs of a model; made by `enter`."""

    input_ids: Int[Tensor, "batch length"] | None
    inputs_embeds: Float[Tensor, "batch length embed"] | None
    tokens: Slots
    moved: Compact | None
    """How real tokens were moved to the front of their rows; None: nothing was."""

    def back(self, states: Tensor) -> Tensor:
        """States of tokens, to where the tokens stood."""
        return states if self.moved is None else self.moved.scatter(states)

    def without_padding(self, states: Tensor, mask: Bool[Tensor, "batch slots"] | None) -> Tensor:
        """Zeros at padding, if padding is a no-op."""
        return states if self.moved is None or mask is None else states.masked_fill(~mask[:, :, None], 0.0)


def enter(
    input_ids: Tensor | None,
    inputs_embeds: Tensor | None,
    attention_mask: Tensor | None,
    token_type_ids: Tensor | None,
    key_mask: Tensor | None = None,
    *,
    exact: bool,
) -> Entered:
    """Check the inputs and, in `exact`, move real tokens to the front of their rows.

    Raises:
        UsageError: both or none of the inputs, inputs of another rank or kind, rows without a token, or a mask or
            segments of another shape.
    """
    inputs = inputs_embeds if input_ids is None else input_ids
    if inputs is None or (input_ids is not None and inputs_embeds is not None):
        given = "neither" if inputs is None else "both"
        raise UsageError(f"expected either input_ids or inputs_embeds, got {given}; pass one of them")
    if inputs.ndim != (2 if inputs_embeds is None else 3) or (inputs_embeds is None and inputs.is_floating_point()):
        raise UsageError(
            "expected whole-numbered input_ids of [batch, length], or inputs_embeds of [batch, length, width], got "
            f"{inputs.dtype} of {list(inputs.shape)}; give one text a batch of 1 (tokenizer(..., return_tensors='pt'))"
        )
    if inputs.shape[1] == 0:
        raise UsageError(
            f"expected rows of at least one token, got an input of shape {list(inputs.shape)}; leave empty texts out"
        )
    shape = inputs.shape[:2]
    masks = {"attention_mask": attention_mask, "token_type_ids": token_type_ids, "key_mask": key_mask}
    for name, given in masks.items():
        if given is not None and given.shape != shape:
            raise UsageError(
                f"`{name}` must be [batch, length] as the inputs, {list(shape)}, got {list(given.shape)}; "
                "pass the tokenizer's"
            )
    mask, moved = None if attention_mask is None else attention_mask != 0, None
    visible = None if key_mask is None else key_mask != 0
    if visible is not None and mask is not None:
        visible = visible & mask
    if exact and mask is not None:
        moved = compact(mask)
        mask = moved.gather(mask)
        input_ids, inputs_embeds, token_type_ids, visible = (
            None if each is None else moved.gather(each) for each in (input_ids, inputs_embeds, token_type_ids, visible)
        )
        if inputs_embeds is not None:
            # No weight is small enough to make a NaN vanish.
            inputs_embeds = inputs_embeds.masked_fill(~mask[:, :, None], 0.0)
    tokens = Slots(shape[1], mask=mask, segments=token_type_ids, visible=visible)
    return Entered(input_ids, inputs_embeds, tokens, moved)
