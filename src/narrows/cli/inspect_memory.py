"""`narrows inspect memory`: what training or using a LongT5-Mulla takes, and what fits a budget."""

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, cast

import typer

from narrows._plural import count
from narrows.cli import options
from narrows.cli.inspect_options import LocalRadius, NumLevels, PoolingRate, Variant, console
from narrows.errors import UsageError

if TYPE_CHECKING:
    from narrows.inspection.computed import Peer
    from narrows.inspection.memory import Memory
    from narrows.inspection.memory_check import Reading
    from narrows.inspection.memory_plan import Plan
    from narrows.inspection.memory_runs import Run

__all__ = ["memory"]

_NAMES = {"full": "full attention", "tglobal": "LongT5's transient-global", "local": "LongT5's local"}
# Parts of the length that `--check` measures.
_PARTS = (4, 2, 1)


_Length = Annotated[int, typer.Option("--length", help="Tokens of each text.")]
_Batch = Annotated[
    int, typer.Option("--batch", help="Texts of an optimiser's step; with --inference, texts to be read.")
]
_Budget = Annotated[str, typer.Option("--budget", help="Memory for tensors, such as 16G, 800M or 1.5GiB.")]
_Model = Annotated[
    str | None,
    typer.Option("--model", "-m", help="Checkpoint of the T5 family whose sizes to take.", show_default="base size"),
]
_Layers = Annotated[
    int | None, typer.Option("--layers", help="Layers of encoder and decoder.", show_default="the model's")
]
_TargetLength = Annotated[int, typer.Option("--target-length", min=1, help="Tokens that are written.")]
_Inference = Annotated[bool, typer.Option("--inference", help="Reading and greedy writing, without gradients.")]
# A plain text, so that fp16 is refused with its reason.
_Dtype = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        help="Number format: float32 or bfloat16; training keeps its weights in float32.",
        show_default="bfloat16 in training, float32 with --inference",
    ),
]
_Optimizer = Annotated[Literal["adafactor", "adamw"], typer.Option("--optimizer", help="As in recipes.")]
_Checkpointing = Annotated[bool, typer.Option("--checkpointing", help="As gradient_checkpointing in recipes.")]
_FeedForwardChunk = Annotated[
    int | None,
    typer.Option("--feed-forward-chunk", help="As encoder_feed_forward_chunk.", show_default="the model's"),
]
_Recompute = Annotated[bool, typer.Option("--recompute", help="As encoder_feed_forward_recompute.")]
_Check = Annotated[
    bool, typer.Option("--check", help="Also run it on this CPU, and show what it takes beside what was foretold.")
]


def memory(
    length: _Length = 16_384,
    batch: _Batch = 32,
    budget: _Budget = "16G",
    model: _Model = None,
    layers: _Layers = None,
    variant: Variant = None,
    local_radius: LocalRadius = None,
    pooling_rate: PoolingRate = None,
    num_levels: NumLevels = None,
    target_length: _TargetLength = 512,
    inference: _Inference = False,
    dtype: _Dtype = None,
    optimizer: _Optimizer = "adafactor",
    checkpointing: _Checkpointing = False,
    feed_forward_chunk: _FeedForwardChunk = None,
    recompute: _Recompute = False,
    check: _Check = False,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Tell the memory of a LongT5-Mulla, what fits a budget, and where other attention is cheaper.

    The model's own code is run over tensors without memory, and carried on to the length; --check measures it.
    """
    _refuse_backward_options(inference=inference, checkpointing=checkpointing, recompute=recompute)
    from narrows.hf.trained_inputs import check_dtype
    from narrows.inspection.sizes import parse_size

    chosen = dtype or ("float32" if inference else "bfloat16")
    check_dtype(chosen)
    known = cast(Literal["float32", "bfloat16"], chosen)

    size = _Size(length, batch, parse_size(budget))
    from narrows.inspection.memory_plan import check_sizes, describe_config
    from narrows.inspection.memory_runs import Run

    check_sizes(length=length, batch=batch)
    config = describe_config(
        model,
        layers=layers,
        variant=variant,
        local_radius=local_radius,
        pooling_rate=pooling_rate,
        num_levels=num_levels,
        feed_forward_chunk=feed_forward_chunk,
        recompute=recompute,
    )
    found = _find(
        Run(config, not inference, known, optimizer, checkpointing, target_length), size, check=check, quiet=quiet
    )
    if json:
        options.emit_json(_figures(found, size))
        return
    _show_needs(found.needed, found.plan, found.run, length=length)
    _show_plan(found.plan, found.run, size)
    _show_peers(found.keys, found.peers, config, length)
    _show_check(found.readings)


class _Size(NamedTuple):
    length: int
    batch: int
    budget: int


class _Found(NamedTuple):
    run: "Run"
    needed: "Memory"
    plan: "Plan"
    keys: float
    peers: "dict[str, Peer]"
    readings: "list[Reading]"


def _refuse_backward_options(*, inference: bool, checkpointing: bool, recompute: bool) -> None:
    if inference and (checkpointing or recompute):
        given = "--checkpointing" if checkpointing else "--recompute"
        raise UsageError(f"expected no {given} with --inference, which keeps nothing for a backward pass; leave it out")


def _find(run: "Run", size: _Size, *, check: bool, quiet: bool) -> _Found:
    from narrows.inspection.computed import compare_keys
    from narrows.inspection.memory import TRACES, trace_memory
    from narrows.inspection.memory_plan import plan_batches
    from narrows.mulla import MullaT5Config

    with options.progress(TRACES, "Tracing", quiet) as advance:
        needed = trace_memory(run, advance)
    plan = plan_batches(needed, length=size.length, batch=size.batch, budget=size.budget)
    keys, peers = compare_keys(MullaT5Config(**run.config).pyramid, size.length)
    readings = _measure(needed, run, size.length, quiet=quiet) if check else []
    return _Found(run, needed, plan, keys, peers, readings)


def _figures(found: _Found, size: _Size) -> dict[str, Any]:
    return {
        **size._asdict(),
        "run": found.run,
        "static": found.needed.static,
        **found.plan._asdict(),
        "keys_per_query": found.keys,
        "peers": found.peers,
        "one_level_up_to": _one_level(found.run.config),
        "check": [{**reading._asdict(), "error": reading.error} for reading in found.readings],
    }


def _one_level(config: dict[str, Any]) -> int | None:
    return config["local_radius"] if config["variant"] == "dynamic" else None


def _measure(needed: "Memory", run: "Run", length: int, *, quiet: bool) -> "list[Reading]":
    """The peaks of one text of parts of the length, for real."""
    import psutil

    from narrows.inspection.memory_check import Reading, measured_peak
    from narrows.inspection.sizes import show_size

    highest, free = needed.peak(batch=1, length=length), psutil.virtual_memory().available
    if highest > free:
        raise UsageError(
            f"expected {show_size(highest)} of free memory to check one text of {count(length, 'token')}, "
            f"got {show_size(free)}; check a shorter --length or fewer --layers"
        )
    found = []
    with options.progress(len(_PARTS), "Measuring", quiet) as advance:
        for part in _PARTS:
            tokens = max(1, length // part)
            measured = measured_peak(run, batch=1, length=tokens)
            found.append(Reading(1, tokens, needed.peak(batch=1, length=tokens), measured))
            advance(1)
    return found


def _show_needs(needed: "Memory", plan: "Plan", run: "Run", *, length: int) -> None:
    from narrows.inspection.sizes import show_size

    config, shown = run.config, console()
    encoder, decoder = run.layers
    levels = "" if config["num_levels"] is None else f", num_levels {config['num_levels']}"
    shown.print(
        f"{config['variant']} Mulla: {encoder} + {count(decoder, 'layer')}, d_model {config['d_model']:,}, "
        f"local_radius {config['local_radius']:,}, pooling_rate {config['pooling_rate']:,}{levels}",
        style="bold",
    )
    how = f"training in {run.dtype} with {run.optimizer}" if run.training else f"inference in {run.dtype}"
    shown.print(f"{how}, targets of {count(run.target_length, 'token')}")
    parts = {"weights": needed.static.weights}
    if run.training:
        parts |= {"gradients": needed.static.gradients, "optimiser's state": needed.static.optimizer_state}
    parts[f"a text of {count(length, 'token')}"] = plan.activations_per_text
    width = max(map(len, parts))
    for name, size in parts.items():
        shown.print(f"  {name:<{width}}  {show_size(size):>9}")


def _show_plan(plan: "Plan", run: "Run", size: _Size) -> None:
    from narrows.inspection.sizes import show_size

    shown = console()
    shown.print(f"budget {show_size(size.budget)}, for tensors alone")
    if plan.micro_batch is None or plan.accumulation is None or plan.peak is None:
        shown.print(f"  micro-batch: none, as one such text takes {show_size(plan.one_text)} in all")
    else:
        times, end = ("accumulation", " a step") if run.training else ("rounds", "")
        shown.print(
            f"  micro-batch {plan.micro_batch:,} × {times} {plan.accumulation:,} = {count(size.batch, 'text')}{end}, "
            f"{show_size(plan.peak)} at the peak"
        )
        if run.training:
            tokens = plan.micro_batch * (size.length + run.target_length)
            shown.print(f"  in a recipe: optimiser: {{batch_tokens: {tokens}, accumulation: {plan.accumulation}}}")
    shown.print(f"  longest text that fits alone: {count(plan.longest_length, 'token')}")


def _show_peers(keys: float, peers: "dict[str, Peer]", config: dict[str, Any], length: int) -> None:
    """Time by what attention computes; all else of a layer is the same."""
    shown = console()
    shown.print(f"keys that attention computes for a query of {count(length, 'token')}: {keys:,.0f}")
    for name, peer in peers.items():
        if peer.cheaper_below is None:
            beside = f"fewer at every length, but a query sees {count(2 * config['local_radius'] + 1, 'token')}"
            where = beside if name == "local" else "no more than here at every length"
        elif peer.cheaper_below <= 1:
            where = "more at every length"
        else:
            where = f"cheaper below {count(peer.cheaper_below, 'token')}"
        shown.print(f"  {_NAMES[name]}: {peer.keys:,.0f}, {where}")
    one_level = _one_level(config)
    if one_level is not None:
        shown.print(f"  up to {count(one_level, 'token')} this Mulla has one level and is full attention")


def _show_check(readings: "list[Reading]") -> None:
    from narrows.inspection.sizes import show_size

    if not readings:
        return
    shown = console()
    shown.print("measured on this CPU, one text at a time")
    for reading in readings:
        shown.print(
            f"  {count(reading.length, 'token')}: foretold {show_size(reading.predicted)}, "
            f"measured {show_size(reading.measured)} ({100 * reading.error:+.1f} %)"
        )
