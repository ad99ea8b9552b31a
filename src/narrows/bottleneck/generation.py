"""A language model: the next token, one after another."""

from typing import Any, cast

from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.utils.generic import can_return_tuple

from narrows.bottleneck.cache import BottleneckCache
from narrows.bottleneck.config import BottleneckConfig
from narrows.bottleneck.heads import BottleneckHead, in_single
from narrows.errors import UsageError
from narrows.losses import token_loss

__all__ = ["BottleneckForCausalLM"]

_IGNORED = -100


class BottleneckForCausalLM(BottleneckHead, GenerationMixin):
    """Logits of the next token at every position; `generate` works with greedy search, sampling, beams and streamers.

    Raises:
        UsageError: a config that is not causal.

    Example:
        >>> model = BottleneckForCausalLM(BottleneckConfig(hidden_size=64, num_hidden_layers=2)).eval()
        >>> list(model.generate(torch.tensor([[72, 105]]), max_new_tokens=3, min_new_tokens=3).shape)
        [1, 5]
    """

    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: BottleneckConfig):
        super().__init__(config)
        if not config.causal:
            raise UsageError(
                "expected a config with causal=True for a language model, got causal=False; set it to True"
            )
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.lm_head = new_embeddings

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "batch length"] | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Float[Tensor, "batch length width"] | None = None,
        cache: BottleneckCache | None = None,
        labels: Int[Tensor, "batch length"] | None = None,
        use_cache: bool | None = None,
        num_items_in_batch: Tensor | int | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """Inputs as `BottleneckModel.forward`.

        Args:
            labels: `[batch, length]`, the tokens themselves, which are shifted here; −100 is not learnt.
            num_items_in_batch: tokens that the summed cross entropy is divided by; None: this batch's.
            logits_to_keep: how many tokens at the end have logits, 0: all; or which, as an index.
        """
        outputs = self.model(
            input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            cache=cache,
            use_cache=use_cache,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
            return_dict=True,
        )
        states = cast(Tensor, outputs.last_hidden_state)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = in_single(self.lm_head(states[:, kept]))
        loss = None if labels is None else self._loss(logits, labels[:, kept], num_items_in_batch)
        return CausalLMOutputWithPast(
            loss=loss, logits=logits, cache=outputs.cache, hidden_states=outputs.hidden_states
        )

    def _loss(self, logits: Tensor, labels: Tensor, number: Tensor | int | None) -> Tensor:
        following = labels[:, 1:]
        total = token_loss(logits[:, :-1], following, ignored=_IGNORED)
        return total / ((following != _IGNORED).sum().clamp_min(1) if number is None else number)

    def _prepare_cache_for_generation(
        self, generation_config: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        """Our own cache in the place of transformers'.

        Raises:
            UsageError: a cache of another kind is asked for.
        """
        if generation_config.cache_implementation not in (None, "dynamic"):
            raise UsageError(
                f"expected no `cache_implementation` for this model, got {generation_config.cache_implementation!r}; "
                "leave it out, and choose what is kept by `cache_kind` in the config"
            )
        if generation_config.use_cache and model_kwargs.get("cache") is None:
            model_kwargs["cache"] = BottleneckCache(self.config)
