"""BERT's encoder in plain torch, with the one thing DeFormer needs of it: a layer that computes chosen tokens only.

Equal to transformers' BertModel on the same weights (tests/parity). Post-norm layers, learned absolute positions.
"""

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from narrows.core import attend, project

__all__ = ["BertEmbeddings", "BertLayer"]


class BertEmbeddings(nn.Module):
    """Word, position and segment embeddings, summed and normalised."""

    def __init__(
        self,
        *,
        vocab: int,
        positions: int,
        segments: int,
        width: int,
        eps: float,
        pad: int | None,
        dropout: float,
    ):
        super().__init__()
        self.word = nn.Embedding(vocab, width, padding_idx=pad)
        self.position = nn.Embedding(positions, width)
        self.segment = nn.Embedding(segments, width)
        self.norm = nn.LayerNorm(width, eps=eps)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        input_ids: Int[Tensor, "batch length"],
        segments: Int[Tensor, "batch length"],
        positions: Int[Tensor, "batch length"],
    ) -> Float[Tensor, "batch length width"]:
        total = self.word(input_ids) + self.segment(segments) + self.position(positions)
        return self.dropout(self.norm(total))


class BertLayer(nn.Module):
    """Self-attention and feed-forward, each added to its input and normalised after.

    Args:
        width: of the hidden states; a multiple of `heads`.
        inner: width inside the feed-forward.
        activation: module between the two feed-forward maps.
        eps: of the two layer norms.
        dropout: on the outputs of attention and feed-forward.
        attention_dropout: on attention weights. Leave it 0 for the fast kernel.
    """

    def __init__(
        self,
        *,
        width: int,
        heads: int,
        inner: int,
        activation: nn.Module,
        eps: float,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
    ):
        super().__init__()
        self.heads = heads
        self.attention_dropout = attention_dropout
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width, eps=eps)
        self.up = nn.Linear(width, inner)
        self.activation = activation
        self.down = nn.Linear(inner, width)
        self.feed_forward_norm = nn.LayerNorm(width, eps=eps)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        hidden: Float[Tensor, "batch length width"],
        mask: Bool[Tensor, "batch 1 #queries length"] | None = None,
        query: Float[Tensor, "batch queries width"] | None = None,
        *,
        backend: str = "sdpa",
    ) -> Float[Tensor, "batch queries width"]:
        """States after the layer, for the rows of `query` (a part of `hidden`), or for all when it is None."""
        query = hidden if query is None else query
        attended = attend(
            self._heads(project(self.query, query)),
            self._heads(project(self.key, hidden)),
            self._heads(project(self.value, hidden)),
            mask=mask,
            dropout=self.attention_dropout if self.training else 0.0,
            backend=backend,
        )
        attended = project(self.output, attended.transpose(1, 2).flatten(2))
        states = self.attention_norm(query + self.dropout(attended))
        fed = project(self.down, project(self.up, states, self.activation))
        return self.feed_forward_norm(states + self.dropout(fed))

    def _heads(self, states: Tensor) -> Tensor:
        return states.unflatten(-1, (self.heads, -1)).transpose(1, 2)
