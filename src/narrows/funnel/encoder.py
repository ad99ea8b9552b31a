"""The encoder: blocks of layers, each over fewer slots than the one before."""

from functools import partial
from typing import NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from narrows._plural import count
from narrows.errors import UsageError
from narrows.funnel.config import FunnelConfig
from narrows.funnel.layers import FunnelLayer, View, see
from narrows.funnel.pooling import Pooling, Slots

__all__ = ["Encoded", "FunnelEncoder", "Wanted", "pooling_of", "refuse_short", "run_layer"]


class Wanted(NamedTuple):
    """What a caller wants to have beside the result."""

    hidden: bool = False
    weights: bool = False
    skip: bool = False
    """The states after the first block, which the decoder adds to its input."""


class Encoded(NamedTuple):
    """What the encoder gives."""

    states: Float[Tensor, "batch slots width"]
    slots: Slots
    """Of the states: the last block's."""
    skip: Tensor | None
    hidden: list[list[Tensor]]
    """A list for each block."""
    weights: list[list[Tensor]]


class FunnelEncoder(nn.Module):
    """Blocks of layers named `blocks.{block}.{layer}`, with pooling before each block but the first."""

    def __init__(self, config: FunnelConfig):
        super().__init__()
        self.config = config
        self.blocks = nn.ModuleList(
            nn.ModuleList(FunnelLayer(config) for _ in range(size)) for size in config.block_sizes
        )

    def forward(
        self, states: Float[Tensor, "batch length width"], slots: Slots, *, backend: str, wanted: Wanted
    ) -> Encoded:
        """States of the last block.

        Args:
            states: `[batch, length, width]` the embedded tokens.
            slots: of the tokens.
            backend: of attention.
            wanted: what to keep on the way.
        """
        pooling = pooling_of(self.config)
        skip, received = None, None
        look = partial(see, self.config, backend=backend, training=self.training, device=states.device)
        hidden, weights = [[states]] if wanted.hidden else [], []
        for number, block in enumerate(self.blocks):
            pooled = pooling.slots(slots) if number else slots
            within = look(pooled, pooled)
            view, queries, keys = within, states, states
            if pooled is not slots:
                queries = keys = pooling.states(states, slots, received=received)
                if self.config.pool_q_only:
                    keys, view = states, look(pooled, slots)
            if number and wanted.hidden:
                hidden.append([])
            if wanted.weights:
                weights.append([])
            layers, repeats = cast(nn.ModuleList, block), cast(list[int], self.config.block_repeats)[number]
            runs = [layer for layer in layers for _ in range(repeats)]
            feeds_pooling = number < len(self.blocks) - 1 and pooling.kind == "top_attention"
            for run, layer in enumerate(runs):
                layer = cast(FunnelLayer, layer)
                if feeds_pooling and run == len(runs) - 1:
                    received = self._received(layer, queries, keys, view, pooled, pooling)
                states = run_layer(layer, queries, keys, view, hidden, weights, wanted)
                view, queries, keys = within, states, states
                if number == 0 and wanted.skip and run == self._last_of_skip:
                    skip = states
            slots = pooled
        return Encoded(states, slots, skip, hidden, weights)

    @property
    def _last_of_skip(self) -> int:
        """The run of a layer of the first block whose states the decoder adds; transformers' code forgets repeats."""
        repeats = 1 if self.config.semantics == "hf" else cast(list[int], self.config.block_repeats)[0]
        return self.config.block_sizes[0] * repeats - 1

    @torch.no_grad()
    def _received(
        self, layer: FunnelLayer, queries: Tensor, keys: Tensor, view: View, slots: Slots, pooling: Pooling
    ) -> Tensor:
        """The attention that each slot received from all real queries in all heads of a block's last layer."""
        weights = layer.attention.weights(queries, keys, view)
        if slots.mask is not None:
            weights = weights * slots.mask[:, None, :, None]
        received = weights.sum((1, 2))
        # The only layer of a block may have met the keys of the block before: a slot received what its parts did.
        return received if keys is queries else pooling.totals(received)


def run_layer(
    layer: FunnelLayer,
    queries: Tensor,
    keys: Tensor,
    view: View,
    hidden: list[list[Tensor]],
    weights: list[list[Tensor]],
    wanted: Wanted,
) -> Tensor:
    """One layer; what is wanted of it is added to the last list."""
    if wanted.weights:
        weights[-1].append(layer.attention.weights(queries, keys, view))
    states = layer(queries, keys, view)
    if wanted.hidden:
        hidden[-1].append(states)
    return states


def pooling_of(config: FunnelConfig) -> Pooling:
    """The pooling between the blocks of a model."""
    return Pooling(config.pooling_type, config.pooling_size, config.separate_cls, config.truncate_seq, config.semantics)


def refuse_short(config: FunnelConfig, length: int) -> None:
    """Refuse the lengths at which the code that `official` and `hf` stand for fails.

    Raises:
        UsageError: its positions are those of more poolings than so short a row has, or lie outside its table.
    """
    if config.semantics == "exact" or config.attention_type == "factorized" or config.position_type == "absolute":
        return
    pooling, slots, fits = pooling_of(config), Slots(length), True
    for _ in config.block_sizes[1:]:
        fits = fits and not pooling.keeps(slots.length)
        slots = pooling.slots(slots)
        fits = fits and slots.length * slots.stride < 2 * length
    if not fits:
        raise UsageError(
            f"expected rows that semantics={config.semantics!r} can pool {config.num_blocks - 1} times, "
            f"got rows of {count(length, 'token')}, at which the code it stands for fails; "
            "pad them to another length or choose semantics='exact'"
        )
