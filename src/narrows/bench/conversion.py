"""The conversion of a checkpoint of the T5 family to Mulla: how long it takes and what it holds in memory."""

import tempfile
import time
from pathlib import Path

import torch

from narrows.bench.encoders import WIDTHS, longt5_config
from narrows.bench.probes import in_own_process, peak_above
from narrows.bench.rows import Context, Measurement

__all__ = ["conversion_rows", "convert_there", "write_checkpoint"]

_MIB = 2**20


def conversion_rows(context: Context, *, width: str, layers: int) -> dict[str, Measurement]:
    """Convert a random transient-global LongT5 with a decoder, and write the model."""
    with tempfile.TemporaryDirectory() as folder:
        source = f"{folder}/longt5"
        weights = in_own_process(f"{__name__}:write_checkpoint", folder=source, width=width, layers=layers)
        seconds, peak = in_own_process(f"{__name__}:convert_there", source=source, out=f"{folder}/mulla")
    mib = {"peak": round(peak / _MIB, 1), "weights": round(weights / _MIB, 1)}
    return {
        "convert-seconds": Measurement(value=seconds, detail={"mib": mib}),
        "convert-memory": Measurement(value=peak / weights, detail={"mib": mib}),
    }


def write_checkpoint(*, folder: str, width: str, layers: int) -> int:
    """Write the checkpoint; the bytes of its weights."""
    from transformers import LongT5ForConditionalGeneration

    torch.manual_seed(0)
    config = longt5_config(WIDTHS[width], layers=layers, attention="transient-global")
    LongT5ForConditionalGeneration(config).save_pretrained(folder)
    return sum(path.stat().st_size for path in Path(folder).glob("*.safetensors"))


def convert_there(*, source: str, out: str) -> tuple[float, int]:
    """Convert as `narrows convert` does; the seconds, and the bytes above what the process held before.

    Weights that are mapped from the file count as far as they were read.
    """
    from narrows.mulla.convert import convert_checkpoint

    began = time.perf_counter()

    def convert() -> None:
        model, report = convert_checkpoint(source)
        model.save_pretrained(out)
        report.save(Path(out))

    peak = peak_above(convert)
    return time.perf_counter() - began, peak
