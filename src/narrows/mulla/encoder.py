"""The encoder of a LongT5-Mulla as a transformers model, alone and as a part of the others."""

from pathlib import Path
from typing import Any, Self, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.t5.modeling_t5 import (
    T5ClassificationHead,
    T5DenseActDense,
    T5DenseGatedActDense,
    T5LayerNorm,
)
from transformers.utils.generic import can_return_tuple

from narrows.core import Compact, compact, relative_bias
from narrows.errors import UsageError
from narrows.hf.base import NarrowsPreTrainedModel
from narrows.mulla.attention import MullaPlan, plan_attention
from narrows.mulla.config import MullaT5Config
from narrows.mulla.layers import MullaT5Attention, MullaT5Block, SpanHead, in_chunks

__all__ = ["MullaT5EncoderModel", "MullaT5PreTrainedModel", "MullaT5Stack"]


class MullaT5PreTrainedModel(NarrowsPreTrainedModel):
    """What the models of this family share: T5's initialisation, and one table of embeddings for both stacks."""

    config: MullaT5Config
    config_class = MullaT5Config
    base_model_prefix = "transformer"
    _no_split_modules = ["MullaT5Block", "T5Block"]
    _tied_weights_keys = {"encoder.embed_tokens.weight": "shared.weight"}
    shared: nn.Embedding
    encoder: Any

    def __init__(self, config: MullaT5Config):
        # Again, as `from_pretrained(..., num_levels=3)` changes a field of a config that was already checked.
        config.check_architecture()
        super().__init__(config)

    @classmethod
    def from_longt5(
        cls,
        checkpoint: str | Path,
        *,
        variant: str = "dynamic",
        num_levels: int | None = None,
        pooling_rate: int | None = None,
        local_radius: int | None = None,
        new_tables: str = "local",
        **overrides: Any,
    ) -> Self:
        """A model of this class with the weights of a LongT5, T5, Flan-T5 or mT5.

        See `narrows.mulla.convert_checkpoint`, which also gives the report of every tensor, for arguments and errors.

        Example:
            >>> MullaT5ForConditionalGeneration.from_longt5("google/long-t5-tglobal-base")  # doctest: +SKIP
        """
        # The conversion knows all classes, and so this one.
        from narrows.mulla.convert import TASKS, convert_checkpoint

        model, _ = convert_checkpoint(
            checkpoint,
            variant=variant,
            num_levels=num_levels,
            pooling_rate=pooling_rate,
            local_radius=local_radius,
            new_tables=new_tables,
            task=next((task for task, kind in TASKS.items() if kind is cls), cls.__name__),
            **overrides,
        )
        return cast(Self, model)

    def get_expanded_tied_weights_keys(self, all_submodels: bool = False) -> dict[str, str]:
        """Both stacks always read the one table; `tie_word_embeddings` decides about the output layer only."""
        tied = dict(self._tied_weights_keys or {})
        if not self.config.tie_word_embeddings:
            tied.pop("lm_head.weight", None)
        return tied

    def get_input_embeddings(self) -> nn.Embedding:
        return self.shared

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self.shared = value
        self.encoder.set_input_embeddings(value)

    @classmethod
    def is_custom_code(cls) -> bool:
        """Not for code like this, which initialises by `transformers.initialization` only.

        In custom code transformers passes over modules without parameters of their own, and so over T5's rules, which
        belong to attention and feed-forward layers as a whole.
        """
        return cls.is_remote_code()

    @torch.no_grad()
    def _init_weights(self, module: Any) -> None:
        super()._init_weights(module)
        factor, width = self.config.initializer_factor, self.config.d_model
        inner = self.config.num_heads * self.config.d_kv
        if isinstance(module, T5LayerNorm):
            init.constant_(module.weight, factor)
        elif isinstance(module, MullaT5Attention):
            init.normal_(module.q.weight, std=factor * (width * self.config.d_kv) ** -0.5)
            init.normal_(module.k.weight, std=factor * width**-0.5)
            init.normal_(module.v.weight, std=factor * width**-0.5)
            init.normal_(module.o.weight, std=factor * inner**-0.5)
        elif isinstance(module, T5DenseActDense | T5DenseGatedActDense):
            for name in ("wi", "wi_0", "wi_1"):
                if hasattr(module, name):
                    init.normal_(getattr(module, name).weight, std=factor * width**-0.5)
            init.normal_(module.wo.weight, std=factor * self.config.d_ff**-0.5)
        elif isinstance(module, T5ClassificationHead):
            for linear in (module.dense, module.out_proj):
                init.normal_(linear.weight, std=factor * width**-0.5)
                init.zeros_(linear.bias)
        elif isinstance(module, SpanHead):
            init.normal_(module.weight, std=factor * width**-0.5)
            init.zeros_(module.bias)
        elif isinstance(module, MullaT5Stack):
            for table in module.relative_attention_bias:
                init.normal_(cast(nn.Embedding, table).weight, std=factor * width**-0.5)
            if module.level_scales is not None:
                init.ones_(module.level_scales)
        elif isinstance(getattr(module, "shared", None), nn.Embedding):
            init.normal_(module.shared.weight, std=factor)
            if hasattr(module, "lm_head") and not self.config.tie_word_embeddings:
                init.normal_(module.lm_head.weight, std=factor)


class MullaT5Stack(MullaT5PreTrainedModel):
    """Layers of multi-level local attention over one plan.

    Real tokens are moved to the front of their rows at the entry and back at the exit, so that padding anywhere is a
    no-op. Position scores and the plan are made once for all layers.
    """

    _tied_weights_keys = None

    def __init__(self, config: MullaT5Config):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.d_model)
        self.relative_attention_bias = nn.ModuleList(
            nn.Embedding(config.relative_attention_num_buckets, config.num_heads) for _ in range(config.num_bias_tables)
        )
        self.level_scales = nn.Parameter(torch.ones(config.max_level_scales)) if config.level_scales else None
        self.block = nn.ModuleList(MullaT5Block(config) for _ in range(config.num_layers))
        self.final_layer_norm = T5LayerNorm(config.d_model, eps=config.layer_norm_epsilon)
        self.dropout = nn.Dropout(config.dropout_rate)
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
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """States of all tokens; zeros at padding, unless `feed_forward_proj` is an activation that is not 0 at 0.

        Args:
            input_ids: `[batch, length]`, or `inputs_embeds`.
            attention_mask: `[batch, length]`, nonzero for real tokens, anywhere in the row; None: all are.
            inputs_embeds: `[batch, length, width]` in the place of `input_ids`.
            output_attentions: refused, since attention weights are never in memory at once.
            output_hidden_states: also return the states that entered the first layer, those after each but the last,
                and the result.

        Raises:
            UsageError: both or none of the inputs, no token in them, a mask of another shape, attention weights asked
                for, or fp16.
        """
        inputs = _inputs(input_ids, inputs_embeds)
        if self.config.output_attentions if output_attentions is None else output_attentions:
            raise UsageError(
                "`output_attentions` must be False for this encoder, whose attention weights are never in memory at "
                "once, got True; pass `encoder_outputs` to have the decoder's alone"
            )
        moved, lengths = _moved(attention_mask, inputs)
        if moved is not None:
            inputs = moved.gather(inputs)
        states = self.embed_tokens(inputs) if inputs_embeds is None else inputs
        _refuse_fp16(states)
        if moved is not None:
            padding = torch.arange(states.shape[1], device=states.device) >= lengths[:, None]
            # T5 has no biases: what is zero here stays zero through all layers, whatever stood at the padding.
            states = states.masked_fill(padding[:, :, None], 0.0)
        plan = self._plan(lengths, states.shape[1])
        wants = self.config.output_hidden_states if output_hidden_states is None else output_hidden_states
        states = self.dropout(states)
        kept = [states] if wants else []
        for number, block in enumerate(self.block, start=1):
            states = block(states, plan.bias, plan)
            if wants and number < len(self.block):
                kept.append(states)
        states = in_chunks(self.final_layer_norm, states, self.config.encoder_feed_forward_chunk)
        states = _moved_back(self.dropout(states), moved)
        hidden = (*(_moved_back(each, moved) for each in kept), states) if wants else None
        return BaseModelOutput(last_hidden_state=states, hidden_states=hidden)

    def _plan(self, lengths: Tensor, length: int) -> MullaPlan:
        tables = torch.stack([cast(nn.Embedding, table).weight for table in self.relative_attention_bias])
        pyramid = self.config.pyramid
        bias = relative_bias(tables, radius=pyramid.radius, max_distance=self.config.relative_attention_max_distance)
        if self.level_scales is not None:
            levels = torch.arange(len(pyramid.lengths(length)), device=bias.device)
            bias = bias * self.level_scales[levels.clamp_max(len(self.level_scales) - 1), None, None]
        return plan_attention(bias, lengths, pyramid, length=length, backend=self.config.mulla_backend)


class MullaT5EncoderModel(MullaT5PreTrainedModel):
    """The encoder alone: states of every token of a long text."""

    _keys_to_ignore_on_load_unexpected = [r"decoder\.", r"lm_head\."]

    def __init__(self, config: MullaT5Config):
        super().__init__(config)
        self.shared = nn.Embedding(config.vocab_size, config.d_model)
        self.encoder = MullaT5Stack(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Int[Tensor, "batch length"] | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Float[Tensor, "batch length width"] | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """As `MullaT5Stack.forward`."""
        return self.encoder(
            input_ids=input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            output_attentions=output_attentions,
            output_hidden_states=output_hidden_states,
        )


def _inputs(input_ids: Tensor | None, inputs_embeds: Tensor | None) -> Tensor:
    """The one that was given, if a token is in it."""
    inputs = inputs_embeds if input_ids is None else input_ids
    if inputs is None or (input_ids is not None and inputs_embeds is not None):
        given = "neither" if inputs is None else "both"
        raise UsageError(f"expected either input_ids or inputs_embeds, got {given}; pass one of them")
    if inputs.shape[1] == 0:
        raise UsageError(
            f"expected rows of at least one token, got an input of shape {list(inputs.shape)}; leave empty texts out"
        )
    return inputs


def _moved(attention_mask: Tensor | None, inputs: Tensor) -> tuple[Compact | None, Tensor]:
    """How to move the real tokens to the front, None where all are real, and how many each row has."""
    shape = inputs.shape[:2]
    if attention_mask is None:
        return None, torch.full(shape[:1], shape[1], device=inputs.device)
    if attention_mask.shape != shape:
        raise UsageError(
            f"`attention_mask` must be [batch, length] as the inputs, {list(shape)}, got {list(attention_mask.shape)}; "
            "pass the tokenizer's"
        )
    moved = compact(attention_mask != 0)
    return moved, moved.lengths


def _moved_back(states: Tensor, moved: Compact | None) -> Tensor:
    return states if moved is None else moved.scatter(states)


def _refuse_fp16(states: Tensor) -> None:
    device = states.device.type
    autocast = torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) == torch.float16
    if states.dtype == torch.float16 or autocast:
        raise UsageError(
            f"this model must run in bfloat16 or float32, got float16{' by autocast' if autocast else ''}, in which "
            "T5's unscaled attention scores overflow; use torch.bfloat16"
        )
