"""A bottleneck Transformer as a transformers model: states of every token."""

import re
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.utils.generic import can_return_tuple

from narrows.bottleneck.attention import BottleneckAttention, NarrowConvolution, SelfAttention
from narrows.bottleneck.cache import BottleneckCache, require_cache
from narrows.bottleneck.config import BottleneckConfig
from narrows.bottleneck.layers import BottleneckLayer, StableLayerNorm
from narrows.bottleneck.rows import Rows, arrange
from narrows.errors import UsageError
from narrows.hf.base import NarrowsPreTrainedModel

__all__ = ["BottleneckModel", "BottleneckPreTrainedModel"]

_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_BACKENDS = {"matmul": "reference", "sdpa": "sdpa"}


class BottleneckPreTrainedModel(NarrowsPreTrainedModel):
    """What the models of this family share: initialisation, and how a layer is found by a parameter's name."""

    config: BottleneckConfig
    config_class = BottleneckConfig
    base_model_prefix = "model"
    _no_split_modules = ["BottleneckLayer"]

    def __init__(self, config: BottleneckConfig):
        # Again, as `from_pretrained(..., bottleneck_ratio=8)` changes a field of a config that was already checked.
        config.check_architecture()
        super().__init__(config)

    def layer_of(self, name: str) -> int | None:
        """Which layer a parameter is of, for learning rates that fall with depth: 0 embeddings, 1 to n; None: a head.

        Args:
            name: as `named_parameters()` gives it.
        """
        if "embed_tokens." in name:
            return 0
        if found := _LAYER.search(name):
            return int(found.group(1)) + 1
        return self.config.num_hidden_layers if "final_norm." in name else None

    @torch.no_grad()
    def _init_weights(self, module: Any) -> None:
        config = self.config
        if isinstance(module, nn.Linear):
            init.normal_(module.weight, std=module.in_features**-0.5)
            if module.bias is not None:
                init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            # As wide as a normed state once it is multiplied with one, which is what a tied output layer does.
            init.normal_(module.weight, std=config.hidden_size**-0.5)
        elif isinstance(module, NarrowConvolution):
            init.copy_(module.weight, module.identity())
        else:
            super()._init_weights(module)
        self._init_parts(module)

    def _init_parts(self, module: Any) -> None:
        """What the weights of a linear layer alone do not say; its owner comes after it."""
        config = self.config
        calm = (2 * config.num_hidden_layers) ** -0.5
        if isinstance(module, BottleneckAttention):
            if module.scale is not None:
                init.ones_(module.scale)
            if config.initializer == "article":
                init.kaiming_normal_(module.down_proj.weight, mode="fan_out", nonlinearity="relu")
                init.xavier_uniform_(module.up_proj.weight)
            else:
                init.normal_(module.up_proj.weight, std=calm * config.inner_size**-0.5)
        elif isinstance(module, SelfAttention) and config.initializer == "article":
            for linear in (module.q_proj, module.k_proj, module.v_proj):
                init.xavier_uniform_(linear.weight)
        elif isinstance(module, BottleneckLayer) and config.initializer == "scaled":
            init.normal_(module.feed_forward.fc_out.weight, std=calm * cast(int, config.intermediate_size) ** -0.5)
            if isinstance(module.attention, SelfAttention):
                init.normal_(module.attention.o_proj.weight, std=calm * config.hidden_size**-0.5)

    @classmethod
    def is_custom_code(cls) -> bool:
        """Not for code like this, which initialises by `transformers.initialization` only.

        In custom code transformers passes over modules without parameters of their own, and so over the rules that
        belong to attention and layers as a whole.
        """
        return cls.is_remote_code()


class BottleneckModel(BottleneckPreTrainedModel):
    """Embeddings, layers and, with `norm_position="pre"`, a last norm.

    Example:
        >>> config = BottleneckConfig(hidden_size=64, num_hidden_layers=2)
        >>> model = BottleneckModel(config).eval()
        >>> list(model(torch.tensor([[1, 2, 3]])).last_hidden_state.shape)
        [1, 3, 64]
    """

    def __init__(self, config: BottleneckConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.dropout = nn.Dropout(config.hidden_dropout)
        self.layers = nn.ModuleList(BottleneckLayer(config, kind) for kind in config.kinds)
        is_pre = config.norm_position == "pre"
        self.final_norm = StableLayerNorm(config.hidden_size, eps=config.layer_norm_eps) if is_pre else nn.Identity()
        self.gradient_checkpointing = False
        self.post_init()

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embed_tokens

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.embed_tokens = value

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "batch length"] | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Float[Tensor, "batch length width"] | None = None,
        cache: BottleneckCache | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """States of all tokens; zeros at padding.

        Args:
            input_ids: `[batch, length]`, the new tokens, or `inputs_embeds`.
            attention_mask: `[batch, past + length]`, nonzero for real tokens, anywhere in the row; None: all are.
            inputs_embeds: `[batch, length, width]` in the place of `input_ids`.
            cache: of the tokens before; they are added to it.
            use_cache: whether to return a cache, a new one where none is given; None: as the config says, but not in
                training.
            output_attentions: refused, since attention weights are never in memory at once.
            output_hidden_states: also return the states that entered the first layer, and those after each.

        Raises:
            UsageError: both or none of the inputs, no token in them, ids outside the vocabulary, a mask of another
                shape, a cache of another model or without causal attention, or attention weights asked for.
        """
        config = self.config
        if config.output_attentions if output_attentions is None else output_attentions:
            raise UsageError(
                "`output_attentions` must be False for this model, whose attention weights are never in memory at "
                "once, got True; leave it out"
            )
        inputs = _inputs(input_ids, inputs_embeds, config)
        memory = self._memory(cache, use_cache, inputs.shape[0])
        rows = self._rows(attention_mask, inputs, 0 if memory is None else memory.get_seq_length())
        states = self.embed_tokens(rows.gather(inputs)) if inputs_embeds is None else rows.gather(inputs)
        wants = config.output_hidden_states if output_hidden_states is None else output_hidden_states
        states = self.dropout(states)
        kept = [states] if wants else []
        backend = _BACKENDS[self.attention_backend]
        for number, layer in enumerate(self.layers):
            states = layer(states, rows, None if memory is None else memory.layers[number], backend)
            if wants and number + 1 < len(self.layers):
                kept.append(states)
        states = rows.scatter(self.final_norm(states))
        hidden = (*(rows.scatter(each) for each in kept), states) if wants else None
        return BaseModelOutputWithPast(last_hidden_state=states, cache=memory, hidden_states=hidden)

    def _memory(self, cache: Any, use_cache: bool | None, batch: int) -> BottleneckCache | None:
        config = self.config
        if cache is None:
            wanted = config.use_cache and not self.training if use_cache is None else use_cache
            return BottleneckCache(config) if wanted and config.causal else None
        if not config.causal:
            raise UsageError("expected no `cache` for a model whose tokens see both sides, got one; leave it out")
        return require_cache(cache, config, batch)

    def _rows(self, attention_mask: Tensor | None, inputs: Tensor, past: int) -> Rows:
        batch, length = inputs.shape[:2]
        real = None
        if attention_mask is not None:
            if attention_mask.shape != (batch, past + length):
                raise UsageError(
                    f"`attention_mask` must be [batch, tokens], those of the cache among them, "
                    f"{[batch, past + length]}, got {list(attention_mask.shape)}; pass the tokenizer's"
                )
            real = attention_mask != 0
            # Without padding there is less to do; what is traced must not depend on what is in a mask.
            if not torch.compiler.is_compiling() and bool(real.all()):
                real = None
        dims = {layer.attention.key_dim for layer in cast(Any, self.layers)}
        return arrange(
            real, length=length, past=past, dims=tuple(sorted(dims)), base=self.config.rope_theta, device=inputs.device
        )


def _inputs(input_ids: Tensor | None, inputs_embeds: Tensor | None, config: BottleneckConfig) -> Tensor:
    """The one that was given, if it can be read."""
    inputs = inputs_embeds if input_ids is None else input_ids
    if inputs is None or (input_ids is not None and inputs_embeds is not None):
        given = "neither" if inputs is None else "both"
        raise UsageError(f"expected either input_ids or inputs_embeds, got {given}; pass one of them")
    if inputs.dim() != (2 if input_ids is not None else 3) or inputs.shape[1] == 0:
        raise UsageError(
            f"expected rows of at least one token, got an input of shape {list(inputs.shape)}; leave empty texts out"
        )
    if input_ids is not None and not torch.compiler.is_compiling() and input_ids.device.type == "cpu":
        low, high = (int(each) for each in input_ids.aminmax()) if input_ids.numel() else (0, 0)
        if low < 0 or high >= config.vocab_size:
            raise UsageError(
                f"expected input_ids from 0 to {config.vocab_size - 1}, the vocabulary, got "
                f"{low if low < 0 else high}; use the model's tokenizer"
            )
    return inputs
