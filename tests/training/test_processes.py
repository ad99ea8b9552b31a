"""Several processes stop and save in the same step, whichever of them was asked."""

import subprocess
import sys
from pathlib import Path

import pytest

_WORKER = """
import sys
from types import SimpleNamespace

import torch
from transformers import TrainerControl, TrainerState

from narrows.training.trainer import ClockCheckpoint, StopSignal

rank, place = int(sys.argv[1]), sys.argv[2]
torch.distributed.init_process_group("gloo", init_method=f"file://{place}", rank=rank, world_size=2)
args = SimpleNamespace(world_size=2, device=torch.device("cpu"))
said = []
for asked in (False, True):
    # Only the second process gets the signal, and only its clock has run out.
    stop, clock = StopSignal(), ClockCheckpoint(seconds=-1.0 if asked and rank else 1e9)
    stop.stopped = asked and rank == 1
    by_signal, by_clock = TrainerControl(), TrainerControl()
    stop.on_step_end(args, TrainerState(), by_signal)
    clock.on_step_end(args, TrainerState(), by_clock)
    said.append((stop.stopped, by_signal.should_training_stop, by_signal.should_save, by_clock.should_save))
sys.stdout.write(str(said))
torch.distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_what_one_process_is_asked_all_do(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WORKER]
    started = [
        subprocess.Popen([*command, str(rank), str(tmp_path / "store")], stdout=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    said = [process.communicate(timeout=120)[0].strip() for process in started]
    assert said == [str([(False,) * 4, (True,) * 4])] * 2
