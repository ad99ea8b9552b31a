"""Linear layers without gradients, by the faster of the two libraries for them that torch brings to a CPU.

torch multiplies fp32 matrices with Intel's MKL, which does not get the best out of AMD's processors. oneDNN, which
torch takes for bf16 anyway, is not held back there: on an AMD EPYC it took 0.95 to 0.67 of the time for 128 rows and
more, 0.85 in the middle. On processors of other makers nothing is changed, since nothing was measured on them.
"""

import platform
from functools import cache
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["project"]

# Below, oneDNN's own preparations cost what it saves.
_FEWEST_ROWS = 64


def project(layer: nn.Module, states: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows out"]:
    """What `layer(states)` gives, up to rounding, and sooner where it is a plain linear layer that only infers in fp32.

    Everything else is left to the layer itself: training, other dtypes and devices, hooks, adapters and quantised
    layers in its place, compiling and exporting. `torch.backends.mkldnn.flags(enabled=False)` leaves all to it.

    Args:
        layer: a linear layer, or what took its place.
        states: `[..., width]`.

    Returns:
        `[..., out]` in the dtype that the layer gives.

    Example:
        >>> layer = nn.Linear(2, 3)
        >>> with torch.inference_mode():
        ...     project(layer, torch.ones(100, 2)).shape
        torch.Size([100, 3])
    """
    if type(layer) is nn.Linear and _infers_alone(layer, states) and _gains(states):
        return torch.ops.mkldnn._linear_pointwise(states, layer.weight, layer.bias, "none", [], "")
    return layer(states)


def _infers_alone(layer: nn.Linear, states: Tensor) -> bool:
    """Whether nothing but the product is asked for: no gradient, no trace, and nobody who listens or has stepped in."""
    parts = (states, layer.weight) if layer.bias is None else (states, layer.weight, layer.bias)
    return (
        not (torch.is_grad_enabled() and any(part.requires_grad for part in parts))
        and all(type(part) in (Tensor, nn.Parameter) and part.dtype == torch.float32 for part in parts)
        and all(part.device.type == "cpu" and part.layout == torch.strided for part in parts)
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]
        and not _is_watched(layer)
    )


def _is_watched(layer: nn.Linear) -> bool:
    """Whether calling the layer would do more than its `forward`, or another `forward` than its class has."""
    own = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return any(own) or "forward" in vars(layer) or bool(nn.modules.module._has_any_global_hook())


def _gains(states: Tensor) -> bool:
    return states.numel() >= _FEWEST_ROWS * states.shape[-1] > 0 and torch.backends.mkldnn.enabled and _is_of_amd()


@cache
def _is_of_amd() -> bool:
    """Whether torch has oneDNN, and the processor is AMD's."""
    if not torch.backends.mkldnn.is_available():
        return False
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        told = platform.processor()
    return "AuthenticAMD" in told
