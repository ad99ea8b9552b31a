"""One vector a text, for search; and the files by which sentence-transformers reads the model."""

import json
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers.utils.generic import can_return_tuple

from narrows.errors import UsageError
from narrows.funnel.config import FunnelConfig
from narrows.funnel.heads.common import FunnelBaseHead, first_state, with_states
from narrows.funnel.heads.outputs import TextEmbeddingOutput

__all__ = ["FunnelForEmbedding", "save_sentence_modules"]

_TYPES = "sentence_transformers.models"


class FunnelForEmbedding(FunnelBaseHead):
    """The mean of the last block's real slots, or [cls], as `config.embedding_pooling` says; no weights of its own.

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
        pooled = first_state(outputs, self.config) if self.config.embedding_pooling == "cls" else _mean(states, mask)
        return with_states(
            TextEmbeddingOutput,
            outputs,
            last_hidden_state=states,
            pooler_output=pooled,
            pooled_attention_mask=mask,
            lengths=outputs.lengths,
        )


def save_sentence_modules(folder: Path, config: FunnelConfig, *, max_tokens: int) -> None:
    """Write beside a saved `FunnelForEmbedding` what makes sentence-transformers (6 or later) read it.

    Its own pooling layers expect a state for each token; the model has fewer, and pools them itself. The process that
    loads the folder must have called `narrows.register_all()`.

    Args:
        folder: of the saved model and its tokenizer.
        config: of the model.
        max_tokens: longer texts are cut there.

    Raises:
        UsageError: fewer than one token.
    """
    if max_tokens < 1:
        raise UsageError(f"`max_tokens` must be at least 1, got {max_tokens}; 512 is usual")
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": f"{_TYPES}.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Normalize", "type": f"{_TYPES}.Normalize"},
    ]
    transformer = {
        "max_seq_length": max_tokens,
        "do_lower_case": False,
        "modality_config": {"text": {"method": "forward", "method_output_name": "pooler_output"}},
        "module_output_name": "sentence_embedding",
    }
    _write(folder / "modules.json", modules)
    _write(folder / "sentence_bert_config.json", transformer)
    _write(folder / "config_sentence_transformers.json", {"similarity_fn_name": "cosine"})
    (folder / "1_Normalize").mkdir(exist_ok=True)


def _mean(states: Float[Tensor, "batch slots width"], mask: Tensor) -> Float[Tensor, "batch width"]:
    wide = torch.promote_types(states.dtype, torch.float32)
    total = torch.einsum("bsd,bs->bd", states.to(wide), mask.to(wide))
    return (total / mask.sum(1, keepdim=True).clamp_min(1)).to(states.dtype)


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
