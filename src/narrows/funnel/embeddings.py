"""Tokens into states."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from narrows._plural import count
from narrows.errors import UsageError
from narrows.funnel.config import FunnelConfig

__all__ = ["FunnelEmbeddings"]


class FunnelEmbeddings(nn.Module):
    """Word embeddings (with absolute positions also of places and segments), norm, dropout, projection if wanted."""

    def __init__(self, config: FunnelConfig):
        super().__init__()
        assert config.d_embed is not None
        self.cls_segment = config.cls_token_type_id
        self.word_embeddings = nn.Embedding(config.vocab_size, config.d_embed, padding_idx=config.pad_token_id)
        self.position_embeddings: nn.Embedding | None = None
        self.token_type_embeddings: nn.Embedding | None = None
        if config.position_type == "absolute":
            self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.d_embed)
            self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.d_embed)
        self.layer_norm = nn.LayerNorm(config.d_embed, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout)
        # The authors' code projects after norm and dropout.
        self.projection = nn.Linear(config.d_embed, config.d_model) if config.d_embed != config.d_model else None

    def forward(
        self,
        input_ids: Int[Tensor, "batch length"] | None,
        inputs_embeds: Float[Tensor, "batch length embed"] | None,
        segments: Int[Tensor, "batch length"] | None,
    ) -> Float[Tensor, "batch length width"]:
        """States of the tokens.

        Args:
            input_ids: `[batch, length]`, or `inputs_embeds`.
            inputs_embeds: `[batch, length, d_embed]`, in the place of word embeddings.
            segments: read with absolute positions only; None: all 0.

        Raises:
            UsageError: an id or a segment without an embedding, or more tokens than positions.
        """
        if inputs_embeds is not None:
            states = inputs_embeds
        else:
            assert input_ids is not None
            states = _look_up(self.word_embeddings, input_ids, "input_ids", "use the tokenizer of this model")
        if self.position_embeddings is not None and self.token_type_embeddings is not None:
            length, room = states.shape[1], self.position_embeddings.num_embeddings
            if length > room:
                raise UsageError(
                    f"a row must have at most {count(room, 'token')} with absolute positions, got {length}; "
                    "cut it or choose position_type='relative'"
                )
            states = states + self.position_embeddings.weight[:length]
            if segments is None:
                states = states + self.token_type_embeddings.weight[0]
            else:
                # As in the authors' code, whose [cls] has segment 2 and reads the embedding of 0.
                own = segments.masked_fill(segments == self.cls_segment, 0)
                states = states + _look_up(self.token_type_embeddings, own, "token_type_ids", "pass 0 and 1")
        states = self.dropout(self.layer_norm(states))
        return states if self.projection is None else self.projection(states)


def _look_up(table: nn.Embedding, ids: Tensor, name: str, remedy: str) -> Tensor:
    try:
        return table(ids)
    # Asked only when torch has refused: a check of its own would read all ids in every call.
    except IndexError as error:
        raise UsageError(
            f"`{name}` must be from 0 to {table.num_embeddings - 1}, got {int(ids.min())} to {int(ids.max())}; {remedy}"
        ) from error
