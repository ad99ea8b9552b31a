"""How much memory a LongT5-Mulla needs by batch and length: traced on short texts, carried on to long ones.

The model's own code runs over fake tensors (`LiveBytes`) with few layers and short texts. In each phase of a step the
bytes held at most are a straight line in the texts, in their tokens and in the layers of each stack, so that a few runs
give it for all; the largest phase at the wanted size is the peak. `narrows.inspection.memory_check` measures it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from narrows.inspection.live_bytes import LiveBytes
from narrows.inspection.memory_runs import Run, build, make_optimizer, train_on, write_after

__all__ = ["LONGEST", "TRACES", "Law", "Memory", "Static", "trace_memory"]

LONGEST = 2**24
"""Beyond what is looked for: longer than any text."""
TRACES = 10
"""Runs of `trace_memory`, at most."""

# Layers of each stack in the traced runs: in a phase the first and the last may differ, those between do not.
_FEW_LAYERS = 2
# Tokens of the shorter traced text; those of the longer are half as many again. They have fewer levels than long texts
# have: what more of them add is a few MiB.
_SHORT = 512
# Queries that are computed together, at most rates.
_TILE = 128


class Law(NamedTuple):
    """Bytes that are held, by the number of equally long texts and their tokens.

    Example:
        >>> Law(10, 5, 2).bytes(batch=3, length=100)
        625
    """

    fixed: float
    per_text: float
    per_token: float

    def bytes(self, *, batch: int, length: int) -> int:
        """For `batch` texts of `length` tokens each."""
        return max(0, round(self.fixed + batch * (self.per_text + length * self.per_token)))

    def plus(self, other: "Law", times: int) -> "Law":
        """This and `times` the other one, which may be negative."""
        return Law(*(own + times * more for own, more in zip(self, other, strict=True)))


class Static(NamedTuple):
    """Bytes that are held whatever is read."""

    weights: int
    gradients: int
    optimizer_state: int
    optimizer_step: int
    """What a step of the optimiser holds beside all this while it lasts."""

    @property
    def kept(self) -> int:
        """All that stays from step to step."""
        return self.weights + self.gradients + self.optimizer_state


class Memory(NamedTuple):
    """What a run needs at every size."""

    static: Static
    phases: dict[str, Law]
    """Bytes beside the static ones that each phase of a step holds at most."""

    def activations(self, *, batch: int, length: int) -> int:
        """Bytes beside the static ones at the peak of reading `batch` texts of `length` tokens."""
        return max(law.bytes(batch=batch, length=length) for law in self.phases.values())

    def peak(self, *, batch: int, length: int) -> int:
        """All bytes at the peak of a step."""
        return self.static.kept + max(self.activations(batch=batch, length=length), self.static.optimizer_step)

    def most_texts(self, *, budget: int, length: int, at_most: int) -> int:
        """Texts of `length` tokens that fit the budget together; 0: not one does."""
        return _last(lambda batch: self.peak(batch=batch, length=length) <= budget, at_most)

    def longest(self, *, budget: int) -> int:
        """Tokens of the longest single text that fits the budget; 0: none does."""
        return _last(lambda length: self.peak(batch=1, length=length) <= budget, LONGEST)


def trace_memory(run: Run, advance: Callable[[int], None] = lambda _: None) -> Memory:
    """Find what a run needs, without computing it and without the memory.

    Args:
        run: what is to be run.
        advance: called with the number of traced runs since the last call, of `TRACES`.

    Returns:
        Bytes of tensors. What the process and the device need for themselves comes beside.
    """
    torch_state = torch.get_rng_state()
    try:
        static = trace_static(run)
        advance(1)
        return Memory(static, _laws(run, advance))
    finally:
        torch.set_rng_state(torch_state)


def trace_static(run: Run) -> Static:
    """The bytes of weights, gradients and optimiser state, and what a step takes: of the whole model, exactly."""
    with FakeTensorMode():
        model = build(run)
        with LiveBytes(number=1) as held:
            for parameter in model.parameters():
                held.watch(parameter)
            weights = held.live
            if not run.training:
                return Static(weights, 0, 0, 0)
            _fill_gradients(model)
            gradients = held.live - weights
            optimizer = make_optimizer(model, run)
            # The first step makes the state, the second is as all that follow.
            optimizer.step()
            before = held.live
            held.enter("step")
            optimizer.step()
            return Static(weights, gradients, before - weights - gradients, held.peaks["step"] - before)


def trace_peaks(run: Run, *, batch: int, length: int) -> dict[str, int]:
    """Bytes beside weights and gradients that each phase holds at most, as the model's code says over fake tensors."""
    with FakeTensorMode():
        model = build(run)
        with LiveBytes(number=length) as held:
            for parameter in model.parameters():
                held.watch(parameter)
            if run.training:
                _fill_gradients(model)
            static = held.live
            work = train_on if run.training else write_after
            work(model, run, batch=batch, length=length, enter=held.enter)
    return {phase: peak - static for phase, peak in held.peaks.items() if phase}


def _fill_gradients(model: Any) -> None:
    """As they are from the second micro-batch of a step on."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)


def _laws(run: Run, advance: Callable[[int], None]) -> dict[str, Law]:
    encoder, decoder = run.layers
    few = min(_FEW_LAYERS, encoder), min(_FEW_LAYERS, decoder)
    base = _laws_of(run.with_layers(*few), advance)
    found = base
    for layers, more in (((few[0] + 1, few[1]), encoder - few[0]), ((few[0], few[1] + 1), decoder - few[1])):
        if more:
            grown = _laws_of(run.with_layers(*layers), advance)
            found = {
                phase: law.plus(grown[phase].plus(base[phase], times=-1), times=more) for phase, law in found.items()
            }
        else:
            advance(3)
    return found


def _laws_of(run: Run, advance: Callable[[int], None]) -> dict[str, Law]:
    """The law of each phase for these layers, from three points."""
    short, long = _traced_lengths(run)
    points = []
    for batch, length in ((1, short), (1, long), (2, short)):
        points.append(trace_peaks(run, batch=batch, length=length))
        advance(1)
    one, longer, two = points
    laws = {}
    for phase, value in one.items():
        per_token = (longer[phase] - value) / (long - short)
        per_batch = two[phase] - value
        laws[phase] = Law(value - per_batch, per_batch - per_token * short, per_token)
    return laws


def _traced_lengths(run: Run) -> tuple[int, int]:
    """Longer than a chunk of the feed-forward and than what the windows of level 2 cover, where the line begins."""
    config = run.config
    # To both sides of a tile the radius in slots, the slot that is begun, and what the tile before it covers.
    covered = 2 * (config["pooling_rate"] * (config["local_radius"] + 1) + _TILE)
    short = max(_SHORT, covered) + config["encoder_feed_forward_chunk"]
    return short, short + _SHORT // 2


def _last(fits: Callable[[int], bool], at_most: int) -> int:
    """The largest number up to `at_most` that fits, where all below it do; 0: none."""
    low, high = 0, at_most
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
