"""Parameter groups: no decay of norms and biases, a lower learning rate the lower the layer."""

import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from torch import nn

from narrows.errors import UsageError

__all__ = ["parameter_groups", "pretraining_learning_rate", "pretraining_warmup"]

# Of the families of this library, and of transformers' BERT, ELECTRA, RoBERTa and DistilBERT.
_LAYER = re.compile(r"(?:layers|(?:encoder|transformer)\.layer)\.(\d+)\.")
# Layers that are counted anew in each block: only the model knows how many came before.
_IN_BLOCKS = re.compile(r"\.\d+\.\d+\.")
_DEEP = 24
_WARMUP_STEPS = 10_000
_LONGEST_WARMUP = 0.1


def parameter_groups(
    model: nn.Module, *, learning_rate: float, weight_decay: float, layer_decay: float
) -> list[dict[str, Any]]:
    """Groups for AdamW over the parameters that require a gradient.

    The rate of layer m out of n is `learning_rate` · `layer_decay`^(n − m), as in the Funnel and XLNet papers; the
    Funnel paper's code lowers gradients instead, which AdamW all but undoes.

    Args:
        model: may have a method `layer_of(parameter_name) -> int | None`: 0 for embeddings, 1 to n for the layers from
            the bottom, None for heads and whatever lies above the layers. Without one, layers are found by
            `layers.<number>.` or `encoder.layer.<number>.` in the names, and embeddings by `embeddings.`.
        learning_rate: of the top layer and all above it.
        weight_decay: of matrices; norms and biases (one dimension) get none.
        layer_decay: factor from one layer to the one below.

    Raises:
        UsageError: a `layer_decay` other than 1, and no layers that can be told from the names.
    """
    layer_of: Callable[[str], int | None] = getattr(model, "layer_of", _layer_of)
    layers = {name: layer_of(name) for name, _ in model.named_parameters()}
    top = max((layer for layer in layers.values() if layer is not None), default=0)
    if layer_decay != 1:
        unknown = [name for name, layer in layers.items() if layer is None and _IN_BLOCKS.search(name)]
        if not top or unknown:
            raise UsageError(
                f"expected numbered layers for a layer_decay of {layer_decay}, got "
                f"{unknown[0] if unknown else 'none'} in {type(model).__name__}; give the model a method `layer_of`, "
                "or leave layer_decay at 1"
            )
    groups: dict[tuple[int, bool], list[nn.Parameter]] = defaultdict(list)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            layer = layers[name]
            groups[top + 1 if layer is None else layer, parameter.ndim > 1].append(parameter)
    return [
        {
            "params": parameters,
            "lr": learning_rate * layer_decay ** max(0, top - layer),
            "weight_decay": weight_decay if decays else 0.0,
        }
        for (layer, decays), parameters in groups.items()
    ]


def pretraining_learning_rate(layers: int) -> float:
    """The Funnel paper's: 1e-4, and 8e-5 above 24 layers, where 1e-4 was not stable.

    Example:
        >>> pretraining_learning_rate(24), pretraining_learning_rate(30)
        (0.0001, 8e-05)
    """
    return 1e-4 if layers <= _DEEP else 8e-5


def pretraining_warmup(steps: int) -> float:
    """Share of the steps in which the learning rate rises: the Funnel paper's 10,000 of them, a tenth at most.

    Example:
        >>> pretraining_warmup(1_000_000), pretraining_warmup(2_000)
        (0.01, 0.1)
    """
    return min(_WARMUP_STEPS / steps, _LONGEST_WARMUP)


def _layer_of(name: str) -> int | None:
    if "embeddings." in name:
        return 0
    match = _LAYER.search(name)
    return int(match.group(1)) + 1 if match else None
