"""Small random Mullas, and batches padded in every way, as functions."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from narrows.mulla import MullaT5Config

_VOCABULARY = 61


def _config(**changes) -> MullaT5Config:
    sizes = {
        "vocab_size": _VOCABULARY,
        "d_model": 24,
        "d_kv": 6,
        "d_ff": 40,
        "num_layers": 2,
        "num_decoder_layers": 3,
        "num_heads": 4,
        "relative_attention_num_buckets": 12,
        "relative_attention_max_distance": 20,
        "local_radius": 4,
        "pooling_rate": 3,
    }
    return MullaT5Config(**{**sizes, **changes})


def _build(kind, *, seed: int = 0, **changes):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = kind(_config(**changes)).eval()
        for name, parameter in model.named_parameters():
            if "relative_attention_bias" in name:
                torch.nn.init.normal_(parameter, std=0.8)
    return model


def _ids(*lengths: int, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(2, _VOCABULARY, (length,), generator=generator) for length in lengths]


def _together(rows: list[Tensor], side: str) -> dict[str, Tensor]:
    length = max(len(row) for row in rows) + 2
    tokens, mask = torch.full((len(rows), length), 7), torch.zeros(len(rows), length, dtype=torch.long)
    for number, row in enumerate(rows):
        places = {"right": range(len(row)), "left": range(length - len(row), length)}.get(side)
        if places is None:
            generator = torch.Generator().manual_seed(number)
            places = torch.randperm(length, generator=generator)[: len(row)].sort().values.tolist()
        tokens[number, list(places)], mask[number, list(places)] = row, 1
    return {"input_ids": tokens, "attention_mask": mask}


@pytest.fixture(scope="session")
def config() -> Callable:
    """A small config; keywords change its fields."""
    return _config


@pytest.fixture(scope="session")
def build() -> Callable:
    """A small model of a class, with position scores that matter."""
    return _build


@pytest.fixture(scope="session")
def ids() -> Callable:
    """Random rows of token ids, of the lengths given."""
    return _ids


@pytest.fixture(scope="session")
def together() -> Callable:
    """Rows in one batch with a mask: padded right, left, or scattered."""
    return _together
