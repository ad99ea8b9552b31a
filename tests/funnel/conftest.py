"""Random inputs of Funnel's attention, as functions."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from narrows.funnel.attention import Geometry, RelativeTerms, attend_relative, factor_tables, relative_table

HEADS, DIM, WIDTH = 3, 4, 12


class _Inputs(NamedTuple):
    """Everything `attend_relative` takes; what can take a gradient does."""

    states: tuple[Tensor, Tensor, Tensor]
    terms: RelativeTerms
    tables: Tensor
    geometry: Geometry
    segments: tuple[Tensor, Tensor] | tuple[None, None]
    mask: Tensor | None

    def differentiable(self) -> list[Tensor]:
        return [*self.states, *self.terms, self.tables]

    def run(self, backend: str, *, dropout: float = 0.0, tensors=None) -> Tensor:
        """Attention, of other tensors of the same shapes if given."""
        query, key, value, *terms, tables = self.differentiable() if tensors is None else tensors
        if backend == "factorized":
            tables = factor_tables(self.geometry, width=WIDTH)
        return attend_relative(
            query,
            key,
            value,
            terms=RelativeTerms(*terms),
            geometry=self.geometry,
            query_segments=self.segments[0],
            key_segments=self.segments[1],
            mask=self.mask,
            tables=tables,
            dropout=dropout,
            backend=backend,
        )

    def values_and_gradients(self, backend: str, *, dropout: float = 0.0) -> list[Tensor]:
        out = self.run(backend, dropout=dropout)
        weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view_as(out)
        gradients = torch.autograd.grad(
            (out * weight).sum(), self.differentiable(), allow_unused=True, materialize_grads=True
        )
        return [out, *gradients]


def _inputs(
    queries: int,
    keys: int,
    *,
    shift: int = 1,
    batch: int = 2,
    separate_cls: bool = True,
    segments: int = 2,
    masked: bool = False,
    dtype: torch.dtype = torch.float64,
) -> _Inputs:
    """`segments` ids beside that of [cls]; 0: none given. Masked: a third of the keys, and all of the last row."""
    generator = torch.Generator().manual_seed(queries * 1009 + keys)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    states = random(batch, HEADS, queries, DIM), random(batch, HEADS, keys, DIM), random(batch, HEADS, keys, DIM)
    shapes = [(HEADS, DIM)] * 3 + [(WIDTH, HEADS, DIM), (2, HEADS, DIM)]
    geometry = Geometry(queries, keys, 1 - 2 * shift, shift, -1, 1, separate_cls)
    ids: tuple = (None, None)
    if segments:
        ids = tuple(torch.randint(0, segments, (batch, length), generator=generator) for length in (queries, keys))
        for row in ids:
            row[:, 0] = 2
    mask = None
    if masked:
        mask = torch.rand(batch, keys, generator=generator) > 0.3
        mask[-1] = False
    tables = relative_table(geometry, width=WIDTH).to(dtype).clone().requires_grad_()
    return _Inputs(states, RelativeTerms(*(random(*shape) for shape in shapes)), tables, geometry, ids, mask)


@pytest.fixture(scope="session")
def inputs() -> Callable:
    """Random inputs of the given lengths."""
    return _inputs
