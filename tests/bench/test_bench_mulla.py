"""The rows of Mulla, at sizes that take a moment."""

import pytest
import torch

from narrows.bench import conversion, encoders, mulla, pairs
from narrows.bench.encoders import Side, build, task
from narrows.bench.pairs import Pair, compare_memory, compare_times, needs_memory, sides_of
from narrows.bench.rows import Context

GROUPS = mulla.groups(Context())
TIMED = [group for group in GROUPS if "rounds" in group.size]


def tiny(side: Side | None) -> Side | None:
    return side and side._replace(width="tiny", length=side.length // 256, chunk=side.chunk // 256, new_tokens=3)


def shrunk(found: list[Pair]) -> list[Pair]:
    return [pair._replace(ours=tiny(pair.ours), peer=tiny(pair.peer)) for pair in found]


def pairs_of(group) -> list[Pair]:
    return group.measure.keywords["pairs"]


def test_row_names_are_unique_and_what_is_ours_has_sources():
    rows = [row for group in GROUPS for row in group.rows]
    assert len({row.name for row in rows}) == len(rows) > 50
    theirs = ("curve-time-local", "curve-memory-local", "curve-time-tglobal", "curve-memory-tglobal")
    assert all(bool(row.sources) != row.name.startswith(theirs) for row in rows)


def test_the_bars_are_those_promised():
    bars = {row.name: (row.side, row.bar) for group in GROUPS for row in group.rows if row.bar is not None}
    assert bars == {
        "forward-16k-speed-to-tglobal": ("at least", 2.2),
        "forward-16k-memory-to-tglobal": ("at most", 0.1),
        "forward-16k-time-to-local": ("at most", 1.0),
        "forward-16k-memory-to-local": ("at most", 0.5),
        "forward-48k-memory-to-tglobal-16k": ("at most", 0.2),
        "one-layer-32k-memory": ("at most", 0.04),
        "one-layer-32k-speed": ("at least", 5.0),
        "backward-8k-memory": ("at most", 0.45),
        "backward-8k-memory-recomputed": ("at most", 0.3),
        "backward-8k-time": ("at most", 0.85),
        "forward-48k-time-to-16k": ("at most", 3.2),
        "forward-16k-speed-bfloat16": ("at least", 1.7),
        "forward-16k-memory-bfloat16": ("at most", 0.5),
        "forward-1k-time-to-local": ("at most", 1.25),
        "generate-8k": ("at least", 1.0),
        "generate-16k": ("at least", 1.0),
        "convert-seconds": ("at most", 60.0),
        "convert-memory": ("at most", 2.2),
    }


def test_the_curve_goes_from_2k_to_48k_for_each_model():
    names = {row.name for group in GROUPS for row in group.rows}
    for what in ("time", "memory"):
        for model in ("dynamic", "fixed", "local", "tglobal"):
            assert {f"curve-{what}-{model}-{n}" for n in (2048, 4096, 8192, 16384, 32768, 49152)} <= names


@pytest.mark.parametrize("group", TIMED, ids=lambda group: group.rows[0].name)
def test_every_timed_row_is_measured(group):
    found = compare_times(Context(rounds=1), pairs=shrunk(pairs_of(group)), rounds=3)
    assert list(found) == [row.name for row in group.rows]
    assert all(measured.value > 0 and measured.detail["rounds"] == 1 for measured in found.values())


def test_a_speed_is_the_peers_time_by_ours_and_a_share_the_reverse(monkeypatch):
    ours, peer = Side("dynamic", 20, width="tiny"), Side("local", 20, width="tiny")
    seconds = {ours.label: [1.0, 2.0, 4.0], peer.label: [4.0, 6.0, 4.0]}
    monkeypatch.setattr(pairs, "in_turn", lambda contenders, **options: {name: seconds[name] for name in contenders})
    rows = [Pair("speed", "speed", ours, peer), Pair("share", "share", ours, peer), Pair("alone", "share", ours)]
    found = compare_times(Context(), pairs=rows, rounds=3)
    assert found["speed"].value == 3.0 and found["speed"].spread == (1.0, 4.0)
    assert found["share"].value == pytest.approx(1 / 3) and found["alone"].value == 2.0
    assert found["share"].detail == {"rounds": 3, "seconds": {ours.label: 2.0, peer.label: 4.0}}


def test_sides_with_one_model_are_built_once(monkeypatch):
    built = []
    monkeypatch.setattr(encoders, "build", lambda side: built.append(side) or build(side))
    ours, longer = Side("dynamic", 20, width="tiny"), Side("dynamic", 60, width="tiny")
    compare_times(Context(rounds=1), pairs=[Pair("grown", "share", longer, ours)], rounds=1)
    assert len(built) == 1


@pytest.mark.parametrize("model", ["dynamic", "fixed", "local", "tglobal"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_each_model_does_each_work(model, dtype):
    shapes = {"forward": (1, 300, 24), "backward": (1, 300, 24), "generate": (1, 6)}
    for work, shape in shapes.items():
        side = Side(model, 300, work, width="tiny", dtype=dtype, new_tokens=5)
        result = task(build(side), side)()
        assert result.shape == shape
        assert work == "generate" or (result.dtype == getattr(torch, dtype) and result.isfinite().all())


def test_a_backward_pass_reaches_all_weights():
    for model in ("dynamic", "tglobal"):
        side = Side(model, 300, "backward", width="tiny")
        built = build(side)
        reached = set()
        for name, parameter in built.named_parameters():
            parameter.register_post_accumulate_grad_hook(lambda _, name=name, reached=reached: reached.add(name))
        task(built, side)()
        assert reached == {name for name, _ in built.named_parameters()}
        assert all(parameter.grad is None for parameter in built.parameters())


def test_options_of_ours_reach_the_model():
    built = build(Side("dynamic", 300, width="tiny", chunk=64, recompute=True, layers=3))
    assert (built.config.encoder_feed_forward_chunk, built.config.num_layers) == (64, 3)
    assert built.config.encoder_feed_forward_recompute and built.config.pooling_rate == 8


def test_a_side_that_would_not_fit_is_left_out_with_a_reason(monkeypatch):
    from types import SimpleNamespace

    layer = [Pair("a", "share", Side("dynamic", 32_768, layers=1), Side("tglobal", 32_768, layers=1))]
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=25.4e9))
    assert needs_memory(Context(), pairs=layer) == "needs about 26 GB of free memory, got 25.4"
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=26.1e9))
    assert needs_memory(Context(), pairs=layer) is None
    assert needs_memory(Context(), pairs=shrunk(layer)) is None


def test_a_quick_run_reads_a_part_of_the_text_and_is_not_held_to_the_bar():
    quick = {group.rows[0].name: group for group in GROUPS if group.quick is not None}
    forward = quick["forward-16k-speed-to-tglobal"]
    assert {side.length for side in sides_of(forward.quick.keywords["pairs"])} == {2048}
    assert "2,048 tokens" in forward.quick_size and not forward.quick_judged
    short = quick["forward-1k-time-to-local"]
    assert short.quick_judged and pairs_of(short) == short.quick.keywords["pairs"]
    for name, group in quick.items():
        if name != "convert-seconds":
            found = compare_times(Context(rounds=1), pairs=shrunk(group.quick.keywords["pairs"]), rounds=1)
            assert list(found) == [row.name for row in group.rows]


@pytest.mark.slow
def test_memory_is_that_of_each_side():
    ours, peer = Side("dynamic", 2048, width="tiny"), Side("tglobal", 2048, width="tiny")
    found = compare_memory(Context(), pairs=[Pair("share", "share", ours, peer), Pair("alone", "share", ours)])
    assert 0 < found["share"].value < 0.9
    assert found["alone"].value == pytest.approx(found["share"].detail["mib"][ours.label], abs=0.1)


def test_a_share_of_memory_is_ours_by_the_peers(monkeypatch):
    seen = []

    def peak(function, *, environment, **side):
        seen.append(environment)
        return 2**20 * {"dynamic": 3, "tglobal": 12}[side["model"]]

    monkeypatch.setattr(pairs, "in_own_process", peak)
    ours, peer = Side("dynamic", 20, "backward", width="tiny"), Side("tglobal", 20, "backward", width="tiny")
    found = compare_memory(Context(), pairs=[Pair("share", "share", ours, peer), Pair("alone", "share", ours)])
    assert found["share"].value == 0.25 and found["alone"].value == 3.0
    assert found["share"].detail["mib"] == {ours.label: 3.0, peer.label: 12.0}
    # Each side once, with the same settings.
    assert len(seen) == 2 and seen[0] == seen[1]


def test_a_peak_counts_what_transient_global_attention_holds():
    side = Side("tglobal", 2048, width="tiny")
    # Scores and their softmax: 4 heads of 2,048 queries and 384 + 128 keys, 16 MiB each.
    # In a process of its own: one that ran other tests holds freed memory that the scores would go into.
    assert 24 < compare_memory(Context(), pairs=[Pair("peak", "share", side, None)])["peak"].value < 512


@pytest.mark.slow
def test_conversion_is_measured():
    found = conversion.conversion_rows(Context(), width="tiny", layers=2)
    assert found["convert-seconds"].value > 0 and found["convert-memory"].value > 0
    assert found["convert-memory"].detail["mib"]["weights"] > 0


def test_a_checkpoint_is_written_and_converted(tmp_path):
    weights = conversion.write_checkpoint(folder=str(tmp_path / "longt5"), width="tiny", layers=1)
    seconds, peak = conversion.convert_there(source=str(tmp_path / "longt5"), out=str(tmp_path / "mulla"))
    assert weights > 10_000 and seconds > 0 and peak >= 0
    assert (tmp_path / "mulla" / "model.safetensors").is_file() and (tmp_path / "mulla" / "conversion.json").is_file()


def test_sources_of_all_rows_are_files_of_the_package():
    from narrows.bench.results import digest

    assert all(digest(row.sources) for group in GROUPS for row in group.rows)
