"""States after the frozen lower layers: computed once before training, then read from a mapped file."""

import hashlib
import json
import os
import shutil
import time
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from tqdm.auto import tqdm

from narrows.data import token_budget_batches
from narrows.deformer import DeformerForQuestionAnswering
from narrows.errors import UsageError

__all__ = ["Side", "StoredStates", "store_states"]

_SECONDS_BETWEEN_FLUSHES = 5


class Side(NamedTuple):
    """One side of a row: `[CLS] question [SEP]` (segment 0) or `passage [SEP]` (segment 1)."""

    segment: int
    ids: tuple[int, ...]


class StoredStates:
    """States of sides, each found by its tokens.

    Args:
        path: fp32 states of all sides, one after another.
        sides: in the order of the file.
        width: of a state.
    """

    def __init__(self, path: Path, sides: Sequence[Side], *, width: int):
        starts = [0, *accumulate(len(side.ids) for side in sides)]
        self._places = {_digest(side): slice(starts[i], starts[i + 1]) for i, side in enumerate(sides)}
        self._states = np.memmap(path, dtype=np.float32, mode="r", shape=(starts[-1], width))

    def row(self, *sides: Side) -> Float[Tensor, "length width"]:
        """The states of some sides, one after another (a copy)."""
        return torch.from_numpy(np.concatenate([self._states[self._places[_digest(side)]] for side in sides]))


def store_states(
    model: DeformerForQuestionAnswering,
    sides: Sequence[Side],
    *,
    folder: Path,
    batch_tokens: int,
    quiet: bool = False,
) -> StoredStates:
    """Run embedder and lower layers over every distinct side, in fp32 and without dropout.

    The file is named by what it depends on (lower weights and texts): a complete one is used as it is, and
    one that a killed process left is gone on with.

    Args:
        model: its first `split_layer` layers are run, where it lies.
        sides: repetitions are stored once.
        folder: made when it is not there.
        batch_tokens: padded tokens of a forward pass.
        quiet: no progress bar.

    Raises:
        UsageError: the disk has no room for the file.
    """
    sides = list(dict.fromkeys(sides))
    width = model.config.hidden_size
    batches = _batches(sides, batch_tokens)
    folder.mkdir(parents=True, exist_ok=True)
    name = _name(model, sides, batch_tokens)
    path, ledger = folder / f"{name}.f32", folder / f"{name}.json"
    total = sum(len(side.ids) for side in sides)
    size = total * width * 4
    # A ledger alone tells nothing: somebody may have deleted the large file beside it.
    kept = ledger.is_file() and path.is_file() and path.stat().st_size == size
    done = json.loads(ledger.read_text(encoding="utf-8"))["batches"] if kept else 0
    if done == 0:
        _reserve(path, size)
    if done < len(batches):
        states = np.memmap(path, dtype=np.float32, mode="r+", shape=(total, width))
        _fill(model, states, sides, batches, done=done, ledger=ledger, quiet=quiet)
    return StoredStates(path, sides, width=width)


def _batches(sides: Sequence[Side], batch_tokens: int) -> list[list[int]]:
    batches = []
    for segment in (0, 1):
        chosen = [index for index, side in enumerate(sides) if side.segment == segment]
        lengths = [len(sides[index].ids) for index in chosen]
        batches += [[chosen[i] for i in batch] for batch in token_budget_batches(lengths, batch_tokens=batch_tokens)]
    return batches


def _fill(
    model: DeformerForQuestionAnswering,
    states: np.memmap,
    sides: Sequence[Side],
    batches: Sequence[Sequence[int]],
    *,
    done: int,
    ledger: Path,
    quiet: bool,
) -> None:
    starts = [0, *accumulate(len(side.ids) for side in sides)]
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    flushed = time.monotonic()
    for number in tqdm(range(done, len(batches)), "Storing lower states", disable=quiet):
        chosen = [sides[index] for index in batches[number]]
        longest = max(len(side.ids) for side in chosen)
        ids = torch.tensor([[*side.ids, *[0] * (longest - len(side.ids))] for side in chosen], device=device)
        lengths = torch.tensor([len(side.ids) for side in chosen], device=device)
        real = torch.arange(longest, device=device) < lengths[:, None]
        with torch.inference_mode():
            encoded = model.deformer.encode_side(ids, real, segment=chosen[0].segment).float().cpu().numpy()
        for row, index in enumerate(batches[number]):
            states[starts[index] : starts[index + 1]] = encoded[row, : len(sides[index].ids)]
        if number + 1 == len(batches) or time.monotonic() - flushed > _SECONDS_BETWEEN_FLUSHES:
            states.flush()
            _note(ledger, number + 1)
            flushed = time.monotonic()
    model.train(training)


def _note(ledger: Path, batches: int) -> None:
    partial = ledger.with_suffix(".partial")
    partial.write_text(json.dumps({"batches": batches}), encoding="utf-8")
    os.replace(partial, ledger)


def _reserve(path: Path, size: int) -> None:
    # Writing a mapped page that the disk cannot hold kills the process without a word.
    free = shutil.disk_usage(path.parent).free
    if free < size:
        raise UsageError(
            f"expected {size / 1e9:.2f} GB of free disk for the states in {path.parent}, "
            f"got {free / 1e9:.2f} GB; free some, or choose another output folder"
        )
    with path.open("wb") as file:
        file.truncate(size)


def _digest(side: Side) -> bytes:
    return hashlib.blake2b(np.asarray([side.segment, *side.ids], dtype=np.int64).tobytes(), digest_size=16).digest()


def _name(model: DeformerForQuestionAnswering, sides: Sequence[Side], batch_tokens: int) -> str:
    digest = hashlib.sha256(f"{model.config.split_layer} {batch_tokens}".encode())
    backbone = model.deformer.backbone
    for part in (backbone.embeddings, backbone.layers[: model.config.split_layer]):
        for name, tensor in sorted(part.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().float().cpu().contiguous().numpy().tobytes())
    for side in sides:
        digest.update(_digest(side))
    return digest.hexdigest()[:32]
