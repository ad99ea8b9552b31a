"""gelu by tanh, as the feed-forward layers of a funnel have it, in place where nothing is kept for a backward pass."""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from narrows.funnel.positions import is_traced

__all__ = ["gelu_by_tanh"]

# Numbers of a part that stays in a core's cache over all of its operations.
_PART = 2**17
_LINEAR = 2 * math.sqrt(2 / math.pi)
_CUBIC = 0.044715 * _LINEAR


def gelu_by_tanh(states: Float[Tensor, "*any width"]) -> Float[Tensor, "*any width"]:
    """gelu(x) = x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2, which is x · sigmoid(2 √(2/π) (x + 0.044715 x³)).

    On a CPU without a gradient the second form, part by part, takes a third of the time of torch's operation.

    Args:
        states: in a float dtype; what is in them is lost where no gradient is asked for.

    Example:
        >>> gelu_by_tanh(torch.tensor([[1.0]])).item()
        0.8411920070648193
    """
    needs_gradient = torch.is_grad_enabled() and states.requires_grad
    parts = states.device.type == "cpu" and states.dtype.itemsize >= 4 and states.is_contiguous()
    if needs_gradient or is_traced() or not parts:
        return functional.gelu(states, approximate="tanh")
    for part in states.view(-1).split(_PART):
        part.mul_((part * part).mul_(_CUBIC).add_(_LINEAR).mul_(part).sigmoid_())
    return states
