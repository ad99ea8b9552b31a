"""The decoder: the last block's slots brought back to the tokens, and layers over them."""

from typing import cast

from jaxtyping import Float
from torch import Tensor, nn

from narrows.funnel.config import FunnelConfig
from narrows.funnel.encoder import Encoded, Wanted, pooling_of, run_layer
from narrows.funnel.layers import FunnelLayer, see
from narrows.funnel.pooling import Slots, upsample

__all__ = ["FunnelDecoder"]


class FunnelDecoder(nn.Module):
    """One up-sampling, the states of the first of several blocks added to it, then layers over all tokens."""

    def __init__(self, config: FunnelConfig):
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(FunnelLayer(config) for _ in range(config.num_decoder_layers))

    def forward(
        self, encoded: Encoded, tokens: Slots, *, backend: str, wanted: Wanted
    ) -> Float[Tensor, "batch length width"]:
        """States of all tokens.

        Args:
            encoded: of the encoder, with `skip`. What is wanted is added to its lists.
            tokens: the slots of the first block.
            backend: of attention.
            wanted: as in the encoder.
        """
        skip = cast(Tensor, encoded.skip)
        factor, pooling = self.config.total_stride, pooling_of(self.config)
        states = upsample(encoded.states, tokens.length, factor=factor, pooling=pooling)
        if self.config.num_blocks > 1 or self.config.semantics != "exact":
            # Of one block they are the same states, and their sum is no plain encoder's.
            states = states + skip
        if wanted.hidden:
            encoded.hidden.append([states])
        if wanted.weights:
            encoded.weights.append([])
        view = see(self.config, tokens, tokens, backend=backend, training=self.training, device=skip.device)
        for layer, repeats in zip(self.layers, cast(list[int], self.config.decoder_repeats), strict=True):
            for _ in range(repeats):
                states = run_layer(
                    cast(FunnelLayer, layer), states, states, view, encoded.hidden, encoded.weights, wanted
                )
        return states
