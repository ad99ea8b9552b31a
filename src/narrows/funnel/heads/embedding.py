"""One vector a text, for search; and the files by which sentence-transformers reads the model."""

from pathlib import Path
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers.utils.generic import can_return_tuple

from narrows.core.pooling import pool
from narrows.errors import UsageError
from narrows.funnel.config import FunnelConfig
from narrows.funnel.heads.common import FunnelBaseHead, first_state, with_states
from narrows.funnel.heads.outputs import TextEmbeddingOutput
from narrows.hf.sentence_layout import OWN_VECTOR, SentenceLayout, save_layout

__all__ = ["FunnelForEmbedding", "save_sentence_modules"]


class FunnelForEmbedding(FunnelBaseHead):
    """The mean or maximum of the last block's real slots, or [cls], as `config.embedding_pooling` says.

    It has no weights of its own.

    Example:
        >>> config = FunnelConfig(vocab_size=9, d_model=8, n_head=2, d_head=4, d_inner=16)
        >>> list(FunnelForEmbedding(config).eval()(torch.tensor([[1, 2, 3, 4, 5]])).pooler_output.shape)
        [1, 8]
    """

    def __init__(self, config: FunnelConfig):
        super().__init__(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "batch length"] | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Int[Tensor, "batch length"] | None = None,
        inputs_embeds: Float[Tensor, "batch length embed"] | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> TextEmbeddingOutput:
        """Inputs as `FunnelBaseModel.forward`; `pooler_output` is `[batch, width]`, zeros for a row without tokens."""
        outputs = self._states(
            input_ids, attention_mask, token_type_ids, inputs_embeds, output_attentions, output_hidden_states
        )
        states, mask = outputs.last_hidden_state, outputs.pooled_attention_mask
        assert states is not None and mask is not None
        how = self.config.embedding_pooling
        pooled = first_state(outputs, self.config) if how == "cls" else pool(states, mask, how).to(states.dtype)
        return with_states(
            TextEmbeddingOutput,
            outputs,
            last_hidden_state=states,
            pooler_output=pooled,
            pooled_attention_mask=mask,
            lengths=outputs.lengths,
        )


def save_sentence_modules(
    folder: Path,
    config: FunnelConfig,
    *,
    max_tokens: int,
    dense: nn.Linear | None = None,
    source: SentenceLayout | None = None,
) -> None:
    """Write beside a saved `FunnelForEmbedding` what makes sentence-transformers (6 or later) read it.

    Its own pooling layers expect a state for each token; the model has fewer, and pools them itself. The process that
    loads the folder must have called `narrows.register_all()`.

    Args:
        folder: of the saved model and its tokenizer.
        config: of the model.
        max_tokens: longer texts are cut there.
        dense: of the pooled vector, where there is one.
        source: of the checkpoint that it was made from, whose prompts, lower case and `Normalize` are taken over.

    Raises:
        UsageError: fewer than one token.
    """
    if max_tokens < 1:
        raise UsageError(f"`max_tokens` must be at least 1, got {max_tokens}; 512 is usual")
    layout = SentenceLayout(folder, normalize=True) if source is None else source._replace(folder=folder)
    save_layout(
        layout._replace(pooling=OWN_VECTOR, max_tokens=max_tokens, pools_prompt=True), width=config.d_model, dense=dense
    )
