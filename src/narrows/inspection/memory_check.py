"""What a run really takes, each reading in a process of its own, to hold beside what was traced."""

from typing import Any, NamedTuple

import torch

from narrows.bench.pairs import ALLOCATOR
from narrows.bench.probes import in_own_process, peak_above, resident_bytes
from narrows.inspection.memory_runs import Run, build, make_optimizer, train_on

__all__ = ["Reading", "measured_peak", "take_peak"]

# Tokens of what comes before the text that is measured: so few that it leaves no buffers of the size to be measured.
_FIRST = 64
_TINY = {"vocab_size": 97, "d_model": 24, "d_kv": 6, "d_ff": 40, "num_heads": 4, "num_layers": 2}


class Reading(NamedTuple):
    """A size, what was foretold for it and what it took; bytes."""

    batch: int
    length: int
    predicted: int
    measured: int

    @property
    def error(self) -> float:
        """How far the prediction is off, as a share of what was measured; above 0: it is too high."""
        return self.predicted / self.measured - 1


def measured_peak(run: Run, *, batch: int, length: int) -> int:
    """Bytes that a fresh process takes on the CPU for the weights and, at the peak, for one step of the run.

    Raises:
        NarrowsError: the process failed.
    """
    where = f"{__name__}:take_peak"
    return in_own_process(where, environment=ALLOCATOR, run=run._asdict(), batch=batch, length=length)


def take_peak(*, run: dict[str, Any], batch: int, length: int) -> int:
    """As `measured_peak`, in this process."""
    wanted = Run(**run)
    small = wanted._replace(config={**wanted.config, **_TINY, "num_decoder_layers": 2}, target_length=4)
    # Imports and what torch sets up once.
    _use(build(small), small, batch=1, length=_FIRST)
    before = resident_bytes()
    # Not at its peak, which is higher: tied tables are made one by one.
    model = build(wanted)
    weights = resident_bytes() - before
    return weights + peak_above(lambda: _use(model, wanted, batch=batch, length=length))


def _use(model: Any, run: Run, *, batch: int, length: int) -> None:
    if not run.training:
        ids = torch.randint(2, run.config["vocab_size"], (batch, length))
        tokens = {"min_new_tokens": run.target_length, "max_new_tokens": run.target_length}
        mask = torch.ones_like(ids)
        with torch.inference_mode():
            model.generate(input_ids=ids, attention_mask=mask, do_sample=False, num_beams=1, **tokens)
        return
    optimizer = make_optimizer(model, run)
    # Gradients and the optimiser's state are there from then on.
    train_on(model, run._replace(target_length=4), batch=1, length=_FIRST)
    optimizer.step()
    train_on(model, run, batch=batch, length=length)
    optimizer.step()
