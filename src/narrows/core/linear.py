"""Linear layers without gradients, by the faster of the two libraries for them that torch brings to a CPU.

torch multiplies fp32 matrices with Intel's MKL, which does not get the best out of AMD's processors. oneDNN, which
torch takes for bf16 anyway, is not held back there: on an AMD EPYC it took 0.95 to 0.67 of the time for 128 rows and
more, 0.85 in the middle. On processors of other makers fp32 is left as it is, since nothing was measured on them. In
bf16 both ways are oneDNN's; the one taken here computes GELU on the way, which is a fifth of the layer before it.
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


def project(
    layer: nn.Module, states: Float[Tensor, "*rows width"], activation: nn.Module | None = None
) -> Float[Tensor, "*rows out"]:
    """What `activation(layer(states))` gives, up to rounding, and sooner where plain linear layers only infer.

    Everything else is left to the modules themselves: training, other dtypes and devices, hooks, adapters and quantised
    layers in the layer's place, compiling and exporting. `torch.backends.mkldnn.flags(enabled=False)` leaves all.

    Args:
        layer: a linear layer, or what took its place.
        states: `[..., width]`, fp32 or bf16 for the faster way.
        activation: of what the layer gives; `nn.GELU` is computed with it, which spares a pass over the numbers.

    Returns:
        `[..., out]` in the dtype that the layer gives.

    Example:
        >>> layer = nn.Linear(2, 3)
        >>> with torch.inference_mode():
        ...     project(layer, torch.ones(100, 2), nn.GELU()).shape
        torch.Size([100, 3])
    """
    if not (type(layer) is nn.Linear and _infers_alone(layer, states) and _gains(states)):
        return _activated(layer(states), activation)
    if type(activation) is nn.GELU and not _is_watched(activation):
        return _by_onednn(layer, states, "gelu", activation.approximate)
    return _activated(_by_onednn(layer, states), activation)


def _by_onednn(layer: nn.Linear, states: Tensor, then: str = "none", how: str = "") -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(states, layer.weight, layer.bias, then, [], how)


def _activated(states: Tensor, activation: nn.Module | None) -> Tensor:
    return states if activation is None else activation(states)


def _infers_alone(layer: nn.Linear, states: Tensor) -> bool:
    """Whether nothing but the product is asked for: no gradient, no trace, and nobody who listens or has stepped in."""
    parts = (states, layer.weight) if layer.bias is None else (states, layer.weight, layer.bias)
    return (
        not (torch.is_grad_enabled() and any(part.requires_grad for part in parts))
        and all(type(part) in (Tensor, nn.Parameter) and part.dtype == states.dtype for part in parts)
        and all(part.device.type == "cpu" and part.layout == torch.strided for part in parts)
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()  # pyright: ignore[reportPrivateImportUsage]
        and not _is_watched(layer)
    )


def _is_watched(module: nn.Module) -> bool:
    """Whether calling the module would do more than its `forward`, or another `forward` than its class has."""
    own = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(own) or "forward" in vars(module) or bool(nn.modules.module._has_any_global_hook())


def _gains(states: Tensor) -> bool:
    if states.numel() < _FEWEST_ROWS * states.shape[-1] or not states.numel() or not torch.backends.mkldnn.enabled:
        return False
    return _gains_in_fp32() if states.dtype == torch.float32 else states.dtype == torch.bfloat16 and _gains_in_bf16()


@cache
def _gains_in_fp32() -> bool:
    """Whether torch has oneDNN, and the processor is AMD's."""
    if not torch.backends.mkldnn.is_available():
        return False
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        told = platform.processor()
    return "AuthenticAMD" in told


@cache
def _gains_in_bf16() -> bool:
    """Whether oneDNN multiplies bf16 on this processor; where it does not, torch has ways of its own."""
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
