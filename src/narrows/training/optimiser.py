"""Parameter groups: no decay of norms and biases, a lower learning rate the lower the layer."""

import re
from collections import defaultdict
from typing import Any

from torch import nn

__all__ = ["parameter_groups"]


def parameter_groups(
    model: nn.Module, *, learning_rate: float, weight_decay: float, layer_decay: float
) -> list[dict[str, Any]]:
    """Groups for AdamW over the parameters that require a gradient.

    Args:
        model: layers are found by `layers.<number>.` in the names; what comes before them (embeddings) counts
            as one layer below the first, everything else (heads) as above the last.
        learning_rate: of the head.
        weight_decay: of matrices; norms and biases (one dimension) get none.
        layer_decay: factor from one layer to the one below.
    """
    depths = {name: _depth(name) for name, _ in model.named_parameters()}
    top = max((depth for depth in depths.values() if depth is not None), default=0) + 1
    groups: dict[tuple[int, bool], list[nn.Parameter]] = defaultdict(list)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            depth = depths[name]
            groups[top if depth is None else depth, parameter.ndim > 1].append(parameter)
    return [
        {
            "params": parameters,
            "lr": learning_rate * layer_decay ** (top - depth),
            "weight_decay": weight_decay if decays else 0.0,
        }
        for (depth, decays), parameters in groups.items()
    ]


def _depth(name: str) -> int | None:
    if "embeddings." in name:
        return 0
    match = re.search(r"layers\.(\d+)\.", name)
    return int(match.group(1)) + 1 if match else None
