"""Configuration of a LongT5-Mulla."""

import math
from typing import Any

import torch
from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig
from transformers.activations import ACT2FN

from narrows.errors import UsageError
from narrows.hf.fields import in_our_words
from narrows.mulla.attention import chosen_backend
from narrows.mulla.levels import LOCAL_RADIUS, VARIANTS, Pyramid

__all__ = ["MullaT5Config"]

# Of this radius attention is full for nearly any text, of this rate a slot is its mean; tensors are made of the size.
_MOST_SLOTS = 2**20
# With the least rate, 2, a slot of those beyond covers more tokens than 64 bits count.
_MOST_LEVELS = 62


@in_our_words
@strict
class MullaT5Config(PreTrainedConfig):
    """What a LongT5-Mulla is made of: T5's sizes under T5's names, and how its encoder looks at a text.

    Args:
        variant: `dynamic`: as many levels as a text needs until one is no longer than `local_radius`, all with one
            table of position scores. `fixed`: `num_levels`, a table each. To change it when loading, pass a config:
            `variant` of `from_pretrained` is a part of transformers' file names.
        local_radius: slots that a query sees to each side, at every level.
        pooling_rate: slots of a level that one of the next covers; None: 8 for `dynamic`, 4 for `fixed`.
        num_levels: of `fixed`, None: 3; 1 is LongT5's local attention. `dynamic` finds its own number: None.
        level_scales: `dynamic` only: a learnable factor on the position scores of each level, 1 at the start. There are
            `max_level_scales`; higher levels share the last one.
        max_level_scales: see `level_scales`.
        encoder_feed_forward_chunk: tokens that the encoder's feed-forward layers and norms take at once; 0: all.
        encoder_feed_forward_recompute: whether the encoder's feed-forward layers keep nothing for the backward pass and
            run once more in it, a chunk at a time.
        mulla_backend: of the encoder's attention, see `narrows.mulla.plan_attention`: `auto`, `reference`, `tiled` or
            `flex`. The decoder's is chosen by `attn_implementation`: `eager` or `sdpa`.
        tie_word_embeddings: whether the decoder's output layer is the table of embeddings. Encoder and decoder always
            share that table.
        scale_decoder_outputs: whether the states before the output layer are multiplied by `d_model` ** −0.5, as in the
            first T5.
        feed_forward_proj: an activation of transformers, or `gated-` and one.

    Raises:
        UsageError: a value that no model can have.

    Example:
        >>> config = MullaT5Config(variant="fixed", d_model=32, num_heads=4, d_kv=8, d_ff=64)
        >>> config.pooling_rate, config.num_levels
        (4, 3)
    """

    model_type = "narrows-mulla-t5"
    attribute_map = {
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
        "head_dim": "d_kv",
    }

    variant: str = "dynamic"
    local_radius: int = LOCAL_RADIUS
    pooling_rate: int | None = None
    num_levels: int | None = None
    level_scales: bool = False
    max_level_scales: int = 8
    encoder_feed_forward_chunk: int = 0
    encoder_feed_forward_recompute: bool = False
    mulla_backend: str = "auto"

    vocab_size: int = 32128
    d_model: int = 512
    d_kv: int = 64
    d_ff: int = 2048
    num_layers: int = 6
    num_decoder_layers: int | None = None
    num_heads: int = 8
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128
    dropout_rate: float | int = 0.1
    layer_norm_epsilon: float | int = 1e-6
    initializer_factor: float | int = 1.0
    feed_forward_proj: str = "gated-gelu"
    classifier_dropout: float | int = 0.0
    scale_decoder_outputs: bool = False
    tie_word_embeddings: bool = True
    is_encoder_decoder: bool = True
    is_decoder: bool = False
    use_cache: bool = True
    bos_token_id: int | None = None
    pad_token_id: int | None = 0
    eos_token_id: int | list[int] | None = 1
    decoder_start_token_id: int | None = 0

    def __post_init__(self, **kwargs: Any) -> None:
        if self.num_decoder_layers is None:
            self.num_decoder_layers = self.num_layers
        rate, levels = VARIANTS.get(self.variant, (None, None))
        if self.pooling_rate is None:
            self.pooling_rate = rate
        if self.num_levels is None:
            self.num_levels = levels
        super().__post_init__(**kwargs)
        self.check_architecture()

    @property
    def is_gated_act(self) -> bool:
        """Whether the feed-forward layers have a gate; the name by which T5's layers ask."""
        return self.feed_forward_proj.startswith("gated-")

    @property
    def dense_act_fn(self) -> str:
        """The activation's name, by which T5's layers ask."""
        name = self.feed_forward_proj.removeprefix("gated-")
        # T5's gated GELU is the one with tanh. As one operation of torch it keeps a fourth of what the chain of them
        # that transformers calls `gelu_new` keeps for the backward pass.
        return "gelu_pytorch_tanh" if self.feed_forward_proj == "gated-gelu" else name

    @property
    def num_bias_tables(self) -> int:
        """Tables of position scores in the encoder: one for each level, or one for all."""
        return 1 if self.num_levels is None else self.num_levels

    @property
    def pyramid(self) -> Pyramid:
        """The numbers that say which keys a query sees."""
        assert self.pooling_rate is not None
        return Pyramid(radius=self.local_radius, pooling_rate=self.pooling_rate, num_levels=self.num_levels)

    def get_text_config(self, decoder: bool | None = None, encoder: bool | None = None) -> PreTrainedConfig:
        """With `decoder` it counts the decoder's layers, as caches are made by it; T5's own counts the encoder's."""
        found = super().get_text_config(decoder=decoder, encoder=encoder)
        if decoder and not encoder:
            found.num_layers = self.num_decoder_layers
        return found

    def check_architecture(self) -> None:
        """Refuse what no model can have, each in one sentence.

        Raises:
            UsageError: a size out of its range, an unknown variant, backend or activation, options of the other
                variant, or fp16.
        """
        self._check_sizes()
        self._check_levels()
        if self.dense_act_fn not in ACT2FN:
            raise UsageError(
                f"`feed_forward_proj` must be an activation of transformers or `gated-` and one, "
                f"got {self.feed_forward_proj!r}; 'gated-gelu' and 'relu' are T5's"
            )
        try:
            chosen_backend(self.mulla_backend)
        except UsageError as error:
            raise UsageError(str(error).replace("`backend`", "`mulla_backend`")) from error
        if self.dtype in (torch.float16, "float16"):
            raise UsageError(
                "`dtype` must be bfloat16 or float32, got float16, in which T5's unscaled attention scores overflow; "
                "pass dtype=torch.bfloat16"
            )

    def _check_sizes(self) -> None:
        for name, least in (
            ("vocab_size", 1),
            ("d_model", 1),
            ("d_kv", 1),
            ("d_ff", 1),
            ("num_layers", 1),
            ("num_decoder_layers", 1),
            ("num_heads", 1),
            ("relative_attention_num_buckets", 4),
            ("max_level_scales", 1),
            ("encoder_feed_forward_chunk", 0),
        ):
            if getattr(self, name) < least:
                raise UsageError(f"`{name}` must be at least {least}, got {getattr(self, name)}; give it a size")
        exact = self.relative_attention_num_buckets // 4
        if self.relative_attention_max_distance <= exact:
            raise UsageError(
                f"`relative_attention_max_distance` must be above {exact}, a quarter of the buckets, "
                f"got {self.relative_attention_max_distance}; T5's is 128"
            )
        for name in ("dropout_rate", "classifier_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(
                    f"`{name}` must be a probability from 0 to below 1, got {getattr(self, name)}; T5's is 0.1"
                )
        for name in ("layer_norm_epsilon", "initializer_factor"):
            if not 0 < getattr(self, name) < math.inf:
                raise UsageError(f"`{name}` must be a number above 0, got {getattr(self, name)}; change it")

    def _check_levels(self) -> None:
        if self.variant not in VARIANTS:
            raise UsageError(
                f"`variant` must be one of {', '.join(sorted(VARIANTS))}, got {self.variant!r}; choose one of them"
            )
        for name, least in (("local_radius", 1), ("pooling_rate", 2)):
            value = getattr(self, name)
            if value is None or value < least:
                raise UsageError(f"`{name}` must be a whole number of at least {least}, got {value}; choose such a one")
        if self.variant == "dynamic" and self.num_levels is not None:
            raise UsageError(
                f"`num_levels` must be None for the dynamic variant, which adds levels as a text needs them, "
                f"got {self.num_levels}; leave it out or choose variant='fixed'"
            )
        if self.variant == "fixed" and (self.num_levels is None or self.num_levels < 1):
            raise UsageError(
                f"`num_levels` must be a whole number of at least 1 for the fixed variant, got {self.num_levels}; "
                "3 is the source's"
            )
        assert self.pooling_rate is not None
        for name, most in (("local_radius", _MOST_SLOTS), ("pooling_rate", _MOST_SLOTS), ("num_levels", _MOST_LEVELS)):
            value = getattr(self, name)
            if value is not None and value > most:
                raise UsageError(f"`{name}` must be at most {most:,}, got {value:,}; choose a smaller one")
        if self.pooling_rate ** (self.num_bias_tables - 1) >= 2**62:
            raise UsageError(
                f"`num_levels` must be so few that a slot covers less than 2^62 tokens, got {self.num_levels} with the "
                f"pooling rate {self.pooling_rate:,}; choose fewer, or a lower rate"
            )
        if self.variant == "fixed" and self.level_scales:
            raise UsageError(
                "`level_scales` must be False for the fixed variant, whose levels have a table each, got True; "
                "leave it out or choose variant='dynamic'"
            )
