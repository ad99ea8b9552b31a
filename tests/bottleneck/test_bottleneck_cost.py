"""Whole models in closed form, beside counted parameters and a cache's bytes; and models matched by cost."""

from typing import Any

import pytest
import torch

from narrows.bottleneck import BottleneckConfig, BottleneckModel
from narrows.bottleneck.cost import cached_numbers, matched, model_cost
from narrows.errors import UsageError

_SIZES: dict[str, Any] = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2, "bottleneck_heads": 2}
_SIZES |= {"vocab_size": 10}
_CONFIGS: list[dict[str, Any]] = [
    {},
    {"bottleneck_kernel": 0, "bottleneck_inner_residual": False},
    {"bottleneck_key_dim": 4, "bottleneck_key_value_heads": 1},
    {"layer_pattern": "full,bottleneck", "num_key_value_heads": 1},
    {"cache_kind": "narrow_states"},
]


@pytest.mark.parametrize("changes", _CONFIGS)
def test_parameters_and_cache_are_those_of_the_model(changes) -> None:
    config = BottleneckConfig(**{**_SIZES, **changes})
    model, cost = BottleneckModel(config).eval(), model_cost(config, length=20)
    own = sum(parameter.numel() for name, parameter in model.named_parameters() if name.startswith("layers."))
    assert cost.parameters == own
    if config.bottleneck_kernel == 0 or config.cache_kind == "narrow_states":
        cache = model(torch.zeros(1, 20, dtype=torch.long), use_cache=True).cache
        assert cache.num_bytes == 20 * 4 * sum(cached_numbers(config, kind) for kind in config.kinds)


@pytest.mark.parametrize("by", ["parameters", "flops"])
@pytest.mark.parametrize("ratio", [2, 4, 8])
def test_matched_configs_cost_the_same(by, ratio) -> None:
    full = BottleneckConfig(**{**_SIZES, "layer_pattern": "full"})
    narrow = matched(BottleneckConfig(**{**_SIZES, "bottleneck_ratio": ratio}), full, by=by, length=256)
    ours, theirs = (model_cost(one, length=256) for one in (narrow, full))
    assert getattr(ours, "macs" if by == "flops" else by) == pytest.approx(
        getattr(theirs, "macs" if by == "flops" else by), rel=3e-3
    )
    assert narrow.intermediate_size is not None and narrow.intermediate_size > 256 == full.intermediate_size


def test_what_cannot_be_matched() -> None:
    small = BottleneckConfig(**{**_SIZES, "layer_pattern": "full", "hidden_size": 16, "intermediate_size": 1})
    with pytest.raises(UsageError, match="expected a config that is cheaper than the one to match by flops, got one"):
        matched(BottleneckConfig(**_SIZES), small, by="flops", length=64)
