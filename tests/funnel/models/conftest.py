"""Small random funnels, and batches padded in every way, as functions."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from narrows.funnel import FunnelConfig

_VOCABULARY = 61
_CLS = 3


def _config(**changes) -> FunnelConfig:
    sizes = {
        "vocab_size": _VOCABULARY,
        "block_sizes": [2, 1, 1],
        "num_decoder_layers": 1,
        "d_model": 12,
        "n_head": 3,
        "d_head": 4,
        "d_inner": 20,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
    }
    return FunnelConfig(**{**sizes, **changes})


def _build(kind, *, seed: int = 0, **changes):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = kind(_config(**changes)).eval()
        for name, parameter in model.named_parameters():
            # Weights of 0.02 would hide a wrong one.
            torch.nn.init.normal_(parameter, mean=float("layer_norm.weight" in name), std=0.3)
    return model


def _ids(*lengths: int, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randint(4, _VOCABULARY, (length,), generator=generator) for length in lengths]
    for row in rows:
        row[:1] = _CLS
    return rows


def _segments(row: Tensor) -> Tensor:
    """[cls] is 2, then half of the row is 0 and the rest 1."""
    segments = (torch.arange(len(row)) > len(row) // 2).long()
    segments[:1] = 2
    return segments


def _together(rows: list[Tensor], side: str) -> dict[str, Tensor]:
    length = max(len(row) for row in rows) + 3
    batch = {
        "input_ids": torch.full((len(rows), length), 7),
        "attention_mask": torch.zeros(len(rows), length, dtype=torch.long),
        "token_type_ids": torch.ones(len(rows), length, dtype=torch.long),
    }
    for number, row in enumerate(rows):
        places = {"right": range(len(row)), "left": range(length - len(row), length)}.get(side)
        if places is None:
            generator = torch.Generator().manual_seed(number)
            places = torch.randperm(length, generator=generator)[: len(row)].sort().values.tolist()
        places = list(places)
        batch["input_ids"][number, places] = row
        batch["attention_mask"][number, places] = 1
        batch["token_type_ids"][number, places] = _segments(row)
    return batch


@pytest.fixture(scope="session")
def config() -> Callable:
    """A small config; keywords change its fields."""
    return _config


@pytest.fixture(scope="session")
def build() -> Callable:
    """A small model of a class, all of whose weights matter."""
    return _build


@pytest.fixture(scope="session")
def ids() -> Callable:
    """Random rows of token ids, of the lengths given."""
    return _ids


@pytest.fixture(scope="session")
def segments() -> Callable:
    """The segments of a row, those of `together`."""
    return _segments


@pytest.fixture(scope="session")
def together() -> Callable:
    """Rows in one batch with mask and segments: padded right, left, or scattered."""
    return _together
