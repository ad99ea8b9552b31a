"""The cost model of bottleneck attention: the facts' own figures, and counts of real modules."""

from itertools import product

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from narrows.bench.bottleneck_cost import kept_states
from narrows.bench.bottleneck_models import BottleneckSide, build, config_of, macs
from narrows.bench.bottleneck_numbers import bytes_kept
from narrows.bottleneck import BottleneckConfig, Reach, Rows
from narrows.bottleneck.cost import attention_macs, attention_parameters, block_macs, pairs
from narrows.bottleneck.layers import BottleneckLayer, make_attention
from narrows.bottleneck.reach import visible

OPTIONS = {
    "plain": {},
    "bare": {"bottleneck_kernel": 0, "bottleneck_inner_residual": False},
    "grouped": {"bottleneck_heads": 4, "bottleneck_key_value_heads": 2, "num_key_value_heads": 1},
    "thin keys": {"bottleneck_heads": 2, "bottleneck_key_dim": 16, "bottleneck_kernel": 5},
    "narrower": {"bottleneck_ratio": 8, "num_attention_heads": 8},
}


def config(name: str = "plain", **changes) -> BottleneckConfig:
    return BottleneckConfig(**{"hidden_size": 256, "layer_pattern": "full,bottleneck", **OPTIONS[name], **changes})


@pytest.mark.parametrize(("length", "window", "causal"), [*product((1, 2, 7), (None, 1, 3, 9), (True, False))])
def test_pairs_are_those_that_are_seen(length, window, causal) -> None:
    places = torch.arange(length)
    assert pairs(length, causal=causal, window=window) == int(visible(places, places, Reach(causal, window)).sum())


@pytest.mark.parametrize(
    ("ratio", "length", "causal", "layer", "block"),
    [
        (4, 1024, False, 4.57, 1.64),
        (4, 2048, False, None, 1.86),
        (4, 8192, False, None, 2.63),
        (8, 1024, False, None, 1.82),
        (8, 2048, False, None, 2.15),
        (4, 2048, True, 4.57, 1.64),
        (4, 8192, True, None, 2.20),
        (2, 1024, False, 2.00, None),
        (2, 4096, True, 2.00, None),
    ],
)
def test_savings_are_those_of_the_facts(ratio, length, causal, layer, block) -> None:
    narrow = config(hidden_size=512, bottleneck_ratio=ratio, causal=causal)
    for count, expected in ((attention_macs, layer), (block_macs, block)):
        found = count(narrow, "full", length).total / count(narrow, "bottleneck", length).total
        assert expected is None or found == pytest.approx(expected, abs=0.006)


def test_a_layer_of_the_article_takes_470_million() -> None:
    narrow = config(hidden_size=512, causal=False)
    assert attention_macs(narrow, "bottleneck", 1024).total == 469_762_048
    assert attention_macs(narrow, "full", 1024).total == 2 * 1_073_741_824


@pytest.mark.parametrize(("name", "kind"), [*product(OPTIONS, ("full", "bottleneck"))])
def test_parameters_are_those_of_the_modules(name, kind) -> None:
    layer = make_attention(config(name), kind)
    assert attention_parameters(config(name), kind) == sum(parameter.numel() for parameter in layer.parameters())


@pytest.mark.parametrize("kind", ["full", "bottleneck", "window", "bottleneck-window"])
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("causal", [True, False])
def test_operations_are_those_that_torch_counts(name, kind, causal) -> None:
    length, sizes = 19, config(name, causal=causal, window=5)
    layer = BottleneckLayer(sizes, kind)
    rows = Rows.plain(length, dims=(layer.attention.key_dim,), base=1e4)
    with FlopCounterMode(display=False) as counter:
        layer(torch.randn(1, length, sizes.hidden_size), rows, backend="reference")
    counted = counter.get_flop_counts()["Global"]
    by_name = {str(operation): flops for operation, flops in counted.items()}
    assert by_name.pop("aten.addmm") == 2 * block_macs(sizes, kind, length).linear
    # The reference holds all scores, seen or not.
    whole = attention_macs(sizes.__class__(**{**sizes.to_diff_dict(), "causal": False, "window": length}), kind, length)
    assert sum(by_name.values()) == 2 * whole.attention


@pytest.mark.parametrize(("name", "kind"), [*product(OPTIONS, ("full", "bottleneck"))])
def test_what_is_kept_is_what_autograd_keeps(name, kind) -> None:
    length, sizes = 700, config(name)
    layer = make_attention(sizes, kind)
    rows = Rows.plain(length, dims=(layer.key_dim,), base=1e4)
    states = torch.randn(1, length, sizes.hidden_size, requires_grad=True)
    tables = [table for each in rows.rotations.values() for table in each]
    found = bytes_kept(lambda: layer(states, rows), without=[states, *layer.parameters(), *tables])
    # Beside what grows with the text: the padding before it, and weights times the residual's factor.
    extra = 0
    if kind == "bottleneck":
        kernel, inner = sizes.bottleneck_kernel, sizes.inner_size
        extra = inner * max(kernel - 1, 0) + (inner * inner + inner if sizes.bottleneck_inner_residual else 0)
    assert 0 <= found - 4 * length * kept_states(sizes, kind).total <= 4 * (extra + 2)


def test_sides_count_what_they_do() -> None:
    full, narrow = BottleneckSide("full", 64), BottleneckSide("narrows", 64)
    assert macs(full._replace(model="torch")) == macs(full) == attention_macs(config_of(full), "full", 64).total
    assert macs(narrow._replace(part="model", layers=3)) == 3 * macs(narrow._replace(part="block"))
    latent = BottleneckSide("latent", 64)
    with FlopCounterMode(display=False) as counter:
        latent._replace(work="forward").task(build(latent))()
    linear = sum(flops for name, flops in counter.get_flop_counts()["Global"].items() if "attention" not in str(name))
    assert linear == 2 * (macs(latent) - 2 * pairs(64, causal=True) * latent.width)
