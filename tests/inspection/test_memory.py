"""The memory of a Mulla: bytes counted over fake tensors, the line carried on, and what a process really takes."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from narrows.errors import UsageError
from narrows.inspection.live_bytes import LiveBytes
from narrows.inspection.memory import TRACES, Law, Memory, Static, trace_memory, trace_peaks, trace_static
from narrows.inspection.memory_check import measured_peak
from narrows.inspection.memory_plan import describe_config, plan_batches
from narrows.inspection.memory_runs import Run, build
from narrows.mulla import MullaT5Config

TINY = {"d_model": 16, "d_kv": 4, "d_ff": 32, "num_heads": 2, "vocab_size": 50}
MIDDLE = {"d_model": 128, "d_kv": 32, "d_ff": 512, "num_heads": 4, "vocab_size": 2000}


def run_of(sizes: dict, *, layers: tuple[int, int] = (2, 2), target_length: int = 16, **fields) -> Run:
    named = {name: fields.pop(name) for name in list(fields) if name not in Run._fields}
    config = describe_config() | sizes | {"num_layers": layers[0], "num_decoder_layers": layers[1]} | named
    return Run(config, target_length=target_length, **fields)


def test_bytes_are_counted_once_and_given_back() -> None:
    with FakeTensorMode():
        given = torch.zeros(100)
        with LiveBytes(number=7) as held:
            held.watch(given)
            held.watch(given[:50])
            assert held.live == 400
            made = given.view(10, 10) + 1
            held.enter("second")
            assert held.live == 800 and int(torch.zeros((), dtype=torch.int64)) == 7
            assert bool(given.bool().all())
            del made
            held.enter("third")
            given.clone()
    assert held.live == 400 and held.peaks[""] == 800 and held.peaks["third"] == 800


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"training": False, "encoder_feed_forward_chunk": 512},
        pytest.param({"dtype": "bfloat16"}, marks=pytest.mark.slow),
        pytest.param({"checkpointing": True}, marks=pytest.mark.slow),
        pytest.param(
            {"encoder_feed_forward_chunk": 512, "encoder_feed_forward_recompute": True}, marks=pytest.mark.slow
        ),
    ],
    ids=lambda fields: "-".join(fields) or "plain",
)
def test_the_line_goes_through_what_is_traced_directly(fields: dict) -> None:
    run = run_of(TINY, layers=(4, 3), local_radius=31, **fields)
    seen: list[int] = []
    memory = trace_memory(run, seen.append)
    assert sum(seen) == TRACES
    # As many levels as in the traced texts: one more is a table more, which is much beside so small a model.
    for batch, length in ((1, 1900), (2, 1700)):
        direct = max(trace_peaks(run, batch=batch, length=length).values())
        assert memory.activations(batch=batch, length=length) == pytest.approx(direct, rel=0.03)


def test_no_random_number_is_taken() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    trace_memory(run_of(TINY, training=False, local_radius=31))
    assert torch.equal(torch.get_rng_state(), before)


def test_what_is_always_there_is_exact() -> None:
    run = run_of(TINY)
    weights = sum(parameter.numel() for parameter in build(run).parameters()) * 4
    adamw = trace_static(run._replace(optimizer="adamw"))
    assert adamw.weights == adamw.gradients == weights
    # Two moments, and the number of steps of each tensor.
    assert 2 * weights <= adamw.optimizer_state < 2.1 * weights
    adafactor = trace_static(run)
    assert 0 < adafactor.optimizer_state < weights / 3 and adafactor.optimizer_step > 0
    assert trace_static(run._replace(training=False, dtype="bfloat16")) == Static(weights // 2, 0, 0, 0)


def test_a_process_takes_what_was_foretold() -> None:
    run = run_of(MIDDLE)
    memory = trace_memory(run)
    assert memory.peak(batch=1, length=4096) == pytest.approx(measured_peak(run, batch=1, length=4096), rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("chunk", [0, 1024])
def test_processes_take_what_was_foretold_at_all_lengths(training: bool, dtype: str, chunk: int) -> None:
    run = run_of(
        {**MIDDLE, "d_model": 512, "d_ff": 1024, "num_heads": 8},
        layers=(3, 2),
        training=training,
        dtype=dtype,
        encoder_feed_forward_chunk=chunk,
        encoder_feed_forward_recompute=training and chunk > 0,
    )
    memory = trace_memory(run)
    for batch, length in ((1, 4096), (1, 8192), (2, 6000)):
        measured = measured_peak(run, batch=batch, length=length)
        assert memory.peak(batch=batch, length=length) == pytest.approx(measured, rel=0.15)


MEMORY = Memory(Static(100, 100, 50, 30), {"a": Law(10, 0, 2), "b": Law(0, 40, 1)})


def test_the_largest_phase_is_the_peak() -> None:
    assert MEMORY.activations(batch=1, length=10) == 50 and MEMORY.activations(batch=1, length=100) == 210
    assert MEMORY.peak(batch=1, length=10) == 300
    # Where a step of the optimiser takes more than the texts.
    assert MEMORY._replace(phases={"a": Law(1, 0, 0)}).peak(batch=1, length=10) == 280


def test_micro_batches_divide_the_batch() -> None:
    plan = plan_batches(MEMORY, length=100, batch=12, budget=250 + 10 + 5 * 200)
    assert (plan.most_texts, plan.micro_batch, plan.accumulation, plan.peak) == (5, 4, 3, 1060)
    assert (plan.activations_per_text, plan.one_text, plan.longest_length) == (210, 460, 500)
    plan = plan_batches(MEMORY, length=1000, batch=12, budget=460)
    assert (plan.most_texts, plan.micro_batch, plan.accumulation, plan.peak) == (0, None, None, None)
    assert plan.longest_length == 100


def test_a_budget_below_the_weights_is_told_with_what_would_do() -> None:
    with pytest.raises(
        UsageError,
        match=r"a budget of at least 291 bytes, of which weights, gradients and the optimiser's state are 250 bytes, "
        r"got 200 bytes; for one text of 100 tokens give 460 bytes",
    ):
        plan_batches(MEMORY, length=100, batch=1, budget=200)
    bare = MEMORY._replace(static=Static(100, 0, 0, 0))
    with pytest.raises(UsageError, match=r"of which weights are 100 bytes, got 100 bytes"):
        plan_batches(bare, length=100, batch=1, budget=100)


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ({"length": 0}, "`length` must be at least 1, got 0"),
        ({"batch": -1}, "`batch` must be at least 1, got -1"),
        ({"length": 1 << 40}, "`length` must be at most 16,777,216, got 1,099,511,627,776"),
    ],
)
def test_sizes_out_of_range(sizes: dict, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        plan_batches(MEMORY, **{"length": 10, "batch": 1, "budget": 1000, **sizes})


def test_configs_of_checkpoints_and_shapes(tiny_seq2seq) -> None:
    base = describe_config()
    assert (base["d_model"], base["num_layers"], base["num_decoder_layers"], base["pooling_rate"]) == (768, 12, 12, 8)
    fixed = describe_config(layers=2, variant="fixed", feed_forward_chunk=64, recompute=True)
    assert (fixed["num_decoder_layers"], fixed["pooling_rate"], fixed["num_levels"]) == (2, 4, 3)
    assert fixed["encoder_feed_forward_chunk"] == 64 and fixed["encoder_feed_forward_recompute"]
    mulla = str(tiny_seq2seq("mulla"))
    own = MullaT5Config.from_pretrained(mulla)
    assert describe_config(mulla)["local_radius"] == own.local_radius
    assert describe_config(mulla, variant="fixed")["num_levels"] == 3
    converted = describe_config(str(tiny_seq2seq("longt5")), local_radius=5)
    assert converted["variant"] == "dynamic" and converted["local_radius"] == 5
