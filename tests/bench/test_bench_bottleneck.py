"""The rows of bottleneck attention, at sizes that take a moment."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch

from narrows.bench import bottleneck, bottleneck_numbers
from narrows.bench.bottleneck_models import BottleneckSide, build, task
from narrows.bench.bottleneck_numbers import (
    bytes_kept,
    decoding_rows,
    fast_path_rows,
    kept_rows,
    latency_rows,
    longest_within,
)
from narrows.bench.pairs import Pair, compare_times, sides_of
from narrows.bench.results import digest
from narrows.bench.rows import Context
from narrows.bottleneck import reach

GROUPS = bottleneck.groups(Context())
TIMED = [group for group in GROUPS if "pairs" in group.measure.keywords]


def tiny(side: BottleneckSide | None) -> BottleneckSide | None:
    return side and side._replace(width=256, length=16, layers=1, ratio=2)


def shrunk(found: list[Pair]) -> list[Pair]:
    return [pair._replace(ours=tiny(pair.ours), peer=tiny(pair.peer)) for pair in found]


def test_row_names_are_unique_and_all_have_sources():
    rows = [row for group in GROUPS for row in group.rows]
    assert len({row.name for row in rows}) == len(rows) > 50
    assert all(row.sources and digest(row.sources) for row in rows)


def test_the_bars_are_those_promised():
    bars = {row.name: (row.side, row.bar) for group in GROUPS for row in group.rows if row.bar is not None}
    assert bars == {
        "layer-r4": ("at least", 3.6),
        "layer-r8": ("at least", 6.0),
        "layer-full": ("at least", 0.9),
        "layer-r4-to-latent": ("at least", 3.0),
        "kept-r4": ("at most", 1 / 1.8),
        "kept-r8": ("at most", 1 / 2.6),
        "core-kept-r4": ("at most", 0.25),
        "fast-path": ("at most", 0.0),
        "block-2048-causal": ("at least", 1.5),
        "block-2048-both-sides": ("at least", 1.7),
        "block-8192-causal": ("at least", 2.0),
        "block-8192-both-sides": ("at least", 2.4),
        "decode-cache-keys-values": ("at most", 0.25),
        "decode-cache-narrow-states": ("at most", 0.125),
        "decode-time-keys-values": ("at most", 1.0),
        "decode-logits": ("at most", 100.0),
    }


def test_a_time_says_what_arithmetic_predicts():
    predicted = {pair.row: pair.arithmetic for group in TIMED for pair in group.measure.keywords["pairs"]}
    expected = {
        "layer-r2": 2.0, "layer-r4": 4.57, "layer-r8": 9.85, "layer-full": 1.0, "layer-r4-to-latent": 3.86,
        "block-2048-causal": 1.64, "block-2048-both-sides": 1.86, "block-8192-causal": 2.20,
        "block-8192-both-sides": 2.63,
    }  # fmt: skip
    assert {name: round(predicted[name], 2) for name in expected} == pytest.approx(expected, abs=0.01)


def test_latency_is_told_from_128_to_16384_tokens():
    names = {row.name for group in GROUPS for row in group.rows}
    for layout in ("full", "r4", "r8"):
        assert {f"latency-{layout}-{128 * 2**power}" for power in range(8)} <= names
        assert f"within-100ms-{layout}" in names


@pytest.mark.parametrize("group", TIMED, ids=lambda group: group.rows[0].name)
def test_every_timed_row_is_measured(group):
    found = compare_times(Context(rounds=1), pairs=shrunk(group.measure.keywords["pairs"]), rounds=3)
    assert list(found) == [row.name for row in group.rows]
    assert all(measured.value > 0 and measured.detail["rounds"] == 1 for measured in found.values())


@pytest.mark.parametrize("model", ["narrows", "article", "bare", "full", "torch", "latent"])
@pytest.mark.parametrize("causal", [True, False])
def test_each_layer_does_its_work(model, causal):
    side = BottleneckSide(model, 9, causal=causal, width=256, ratio=2)
    built = build(side)
    states = task(built, side)()
    assert states.shape == (1, 9, 256) and states.isfinite().all() and not states.requires_grad
    assert all(parameter.grad is not None for parameter in built.parameters())
    forward = task(built, side._replace(work="forward"))()
    torch.testing.assert_close(forward, states, atol=1e-5, rtol=1e-4)
    # With the causal mask the first token sees itself alone.
    alone = task(built, side._replace(work="forward", length=1))()
    assert torch.allclose(alone[0, 0], forward[0, 0], atol=1e-5) == causal


def test_the_peer_with_latent_states_is_narrow_where_ours_is():
    latent = build(BottleneckSide("latent", 9, width=512, ratio=4))
    shapes = {name: tuple(parameter.shape) for name, parameter in latent.named_parameters()}
    assert shapes["attention.to_latent_kv.weight"] == (128, 512) and shapes["attention.to_k.weight"] == (512, 128)


def test_a_peer_that_is_not_installed_is_told(monkeypatch):
    monkeypatch.setattr(bottleneck, "find_spec", lambda name: None)
    (group,) = [group for group in GROUPS if group.rows[0].name == "layer-r4-to-latent"]
    assert group.missing(Context()) == "needs the peer x-transformers: pip install 'narrows[bench]'"
    monkeypatch.undo()
    assert group.missing(Context()) is None


def test_a_side_that_would_not_fit_is_left_out_with_a_reason(monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=1e9))
    (group,) = [group for group in GROUPS if group.rows[0].name == "block-8192-causal"]
    assert group.missing(Context()) == "needs about 2 GB of free memory, got 1.0"
    (group,) = [group for group in GROUPS if group.rows[0].name == "latency-full-8192"]
    assert group.missing(Context()) == "needs about 2 GB of free memory, got 1.0"


def test_sides_that_differ_in_the_text_share_a_model():
    side = BottleneckSide("narrows", 8)
    assert side.needs == side._replace(length=9, work="forward").needs
    assert len({side._replace(**other).needs for other in ({}, {"ratio": 8}, {"causal": False})}) == 3


def test_a_quick_run_has_the_sizes_that_the_bars_are_for():
    quick = {row.name for group in GROUPS if group.quick is not None for row in group.rows}
    assert {"layer-r4", "layer-r8", "layer-r4-to-latent", "kept-r4", "fast-path", "decode-logits"} <= quick
    for group in TIMED:
        if group.quick is not None:
            assert sides_of(group.quick.keywords["pairs"]) == sides_of(group.measure.keywords["pairs"])
    assert sum(group.quick_seconds for group in GROUPS if group.quick is not None) < 40


def test_what_is_kept_is_a_share_of_the_full_layer():
    sides = {name: BottleneckSide("narrows", 2048, width=256, ratio=ratio) for name, ratio in (("r2", 2), ("r4", 4))}
    found = kept_rows(Context(), full=BottleneckSide("full", 2048, width=256), sides=sides)
    assert found["core-kept-r4"].value == found["core-kept-r4"].arithmetic == 0.25
    assert found["kept-r4"].value == pytest.approx(found["kept-r4"].arithmetic, rel=0.01)
    assert found["kept-r4"].value < found["kept-r4"].detail["share with the input of both"] < 1
    assert set(found) == {f"{what}-{name}" for what in ("kept", "core-kept") for name in sides}


def test_a_storage_is_counted_once_and_what_is_there_anyway_not_at_all():
    weight, states = torch.ones(5, requires_grad=True), torch.ones(5, requires_grad=True)

    def run() -> torch.Tensor:
        made = weight * states
        return made * made.flip(0) + made.view(1, 5)[0] * made

    assert bytes_kept(run, without=[weight, states]) == 2 * 20
    assert bytes_kept(run, without=[states]) == 3 * 20


def test_what_leaves_the_fast_kernel_is_counted_and_named(monkeypatch):
    sdpa = reach.functional.scaled_dot_product_attention
    assert fast_path_rows(Context(), length=40, width=256)["fast-path"].value == 0
    monkeypatch.setattr(
        reach.functional,
        "scaled_dot_product_attention",
        lambda *states, **options: sdpa(*states, **{**options, "dropout_p": 0.1}),
    )
    found = fast_path_rows(Context(), length=40, width=256)["fast-path"]
    assert found.value == found.detail["cases"] == 12
    assert found.detail["left"][0].startswith("article, causal, not padded: ")


@pytest.fixture
def decoded():
    return partial(decoding_rows, Context(rounds=2), rounds=9, tokens=2, length=20, width=64, layers=2, ratio_of=2)


def test_caches_and_logits_of_decoding(decoded):
    found = decoded()
    assert found["decode-cache-keys-values"].value == found["decode-cache-keys-values"].arithmetic == 1 / 2
    assert found["decode-cache-narrow-states"].value == found["decode-cache-narrow-states"].arithmetic == 1 / 4
    assert found["decode-cache-keys-values"].detail["bytes a token"]["full"] == 2 * 2 * 64 * 4
    assert found["decode-time-keys-values"].detail["rounds"] == 2 and found["decode-time-narrow-states"].value > 0
    assert 0 <= found["decode-logits"].value < 20


def test_logits_that_are_off_are_seen(decoded, monkeypatch):
    go_on = bottleneck_numbers._Decoder.go_on

    def off(self, tokens):
        go_on(self, tokens)
        self.logits[-1] = self.logits[-1] + 0.5

    monkeypatch.setattr(bottleneck_numbers._Decoder, "go_on", off)
    assert decoded()["decode-logits"].value == pytest.approx(0.5e6, rel=1e-3)


def test_latency_of_every_length_and_the_longest_in_time():
    sides = {
        name: BottleneckSide(model, 0, "model", "forward", width=64, layers=1, ratio=2)
        for name, model in (("full", "full"), ("r2", "narrows"))
    }
    found = latency_rows(Context(rounds=2, seconds=60.0), sides=sides, lengths=(8, 16), rounds=5)
    assert set(found) == {f"latency-{name}-{length}" for name in sides for length in (8, 16)} | {
        "within-100ms-full", "within-100ms-r2",
    }  # fmt: skip
    assert found["latency-full-8"].detail["share of full"] == 1.0
    assert 0.5 < found["latency-r2-16"].detail["share of full by arithmetic"] < 1
    assert found["within-100ms-full"].value is None
    assert found["within-100ms-full"].detail["note"] == "more than 16 tokens"
    assert not any("within" in name for name in latency_rows(
        Context(rounds=1), sides=sides, lengths=(8,), rounds=1, within=False
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("by_length", "longest"),
    [
        ({128: 200.0, 256: 500.0}, 64),
        ({128: 400.0}, 0),
        ({128: 50.0, 256: 100.0, 512: 200.0}, 256),
        ({128: 50.0, 256: 200.0}, 128),
        ({256: 25.0, 4096: 400.0}, 1024),
        ({128: 99.0}, None),
    ],
)
def test_the_longest_text_in_time_lies_between_two_lengths(by_length, longest):
    assert longest_within(by_length, 100.0) == longest
