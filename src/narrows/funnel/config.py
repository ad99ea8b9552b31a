"""Configuration of a Funnel-Transformer."""

import math
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig
from transformers.activations import ACT2FN

from narrows._plural import count
from narrows.errors import UsageError
from narrows.hf.fields import in_our_words

__all__ = ["FunnelConfig"]

_CHOICES = {
    "semantics": ("exact", "official", "hf"),
    "pooling_type": ("mean", "max", "top_attention"),
    "attention_type": ("relative_shift", "factorized"),
    "position_type": ("relative", "absolute"),
    "funnel_backend": ("auto", "reference", "sdpa", "tiled"),
    "discriminator_positive": ("replaced", "original"),
    "embedding_pooling": ("mean", "cls", "max"),
}
# What the other semantics' code has no place for: field, the one value it may have, why.
_FOREIGN = {
    "official": (
        ("pooling_size", 2, "with another size the authors' code pools states and positions differently"),
        ("pooling_type", None, "the authors' code lacks it"),
    ),
    "hf": (
        ("pooling_size", 2, "transformers' code knows no other"),
        ("pooling_type", None, "transformers' code lacks it"),
        ("position_type", "relative", "transformers' code knows no other"),
    ),
}


@in_our_words
@strict
class FunnelConfig(PreTrainedConfig):
    """What a Funnel-Transformer is made of, in fields named as transformers' where they mean the same.

    Args:
        block_sizes: layers of each block; from block to block the sequence is pooled.
        block_repeats: how often each layer of a block runs, one after the other with the same weights; None: once.
        num_decoder_layers: layers over the up-sampled sequence, of `FunnelModel`.
        decoder_repeats: how often each of them runs; None: once.
        d_embed: width of the word embeddings; None: `d_model`. Another one is projected to `d_model`.
        pooling_size: slots that one slot of the next block covers.
        pooling_type: `mean`, `max`, or `top_attention` (the paper's ablation, `exact` only): of each window the token
            that received the most attention.
        pool_q_only: whether the first layer of a block pools its queries only and still sees all keys.
        separate_cls: whether the first token stays alone in its slot, without position and segment scores.
        truncate_seq: whether pooling drops the last token of the sequence; read by `official` and `hf` only.
        attention_type: `relative_shift` or `factorized`: two forms of the same scores.
        position_type: `relative`, or `absolute` for the ablation: learned positions and segments in the embeddings.
        max_position_embeddings: of absolute positions.
        type_vocab_size: of absolute positions; `cls_token_type_id` counts as segment 0 there.
        semantics: `exact`: padding is a no-op, nothing is truncated, any length from 1. `official`, `hf`: as the
            authors' PyTorch code and as transformers', padding and truncation included.
        funnel_backend: of attention: `auto`, `reference`, `sdpa` or `tiled`.
        cls_token_type_id: the segment that counts as equal to every other.
        initializer_std: of the truncated normal all weights are drawn from; None draws as transformers does.
        initializer_range: with `initializer_std=None`, upper bound of the uniform draw of the relative terms.
        classifier_dropout: of the heads; None: `hidden_dropout`.
        lm_head_transform: whether the masked LM's head begins with a dense layer, an activation and a norm, as the
            authors'; it does wherever `d_embed` is not `d_model`. transformers' head does not.
        hide_masked_keys: of the masked LM: no token attends to those that are `mask_token_id`, as in the authors' code.
        mask_token_id: of the mask.
        generator_ratio: of ELECTRA: width, inner width and heads of the generator beside the discriminator's.
        discriminator_weight: of ELECTRA: factor of the discriminator's loss.
        discriminator_positive: what a logit above 0 says of a token: that it is `replaced`, as in transformers, or
            `original`, as in the authors' checkpoints.
        embedding_pooling: of a text's vector: `mean` or `max` of the last block's real slots, or `cls`, the first.
        start_n_top: starts that the conditional span head tries.
        end_n_top: ends that it keeps for each of them.

    Raises:
        UsageError: a value that no model can have.

    Example:
        >>> config = FunnelConfig(block_sizes=[6, 3, 3], block_repeats=[1, 2, 2])
        >>> config.num_hidden_layers, config.total_stride
        (12, 4)
    """

    model_type = "narrows-funnel"
    attribute_map = {"hidden_size": "d_model", "num_attention_heads": "n_head", "head_dim": "d_head"}

    vocab_size: int = 30522
    block_sizes: list[int] | tuple[int, ...] = (4, 4, 4)
    block_repeats: list[int] | tuple[int, ...] | None = None
    num_decoder_layers: int = 2
    decoder_repeats: list[int] | tuple[int, ...] | None = None
    d_model: int = 768
    d_embed: int | None = None
    n_head: int = 12
    d_head: int = 64
    d_inner: int = 3072
    hidden_act: str = "gelu_new"
    hidden_dropout: float | int = 0.1
    attention_dropout: float | int = 0.1
    activation_dropout: float | int = 0.0
    classifier_dropout: float | int | None = None
    initializer_range: float | int = 0.1
    initializer_std: float | int | None = 0.02
    layer_norm_eps: float | int = 1e-9

    pooling_type: str = "mean"
    pooling_size: int = 2
    pool_q_only: bool = True
    separate_cls: bool = True
    truncate_seq: bool = True
    attention_type: str = "relative_shift"
    position_type: str = "relative"
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    semantics: str = "exact"
    funnel_backend: str = "auto"

    lm_head_transform: bool = False
    hide_masked_keys: bool = False
    mask_token_id: int | None = None
    generator_ratio: float | int = 0.25
    discriminator_weight: float | int = 50.0
    discriminator_positive: str = "replaced"
    embedding_pooling: str = "mean"
    start_n_top: int = 5
    end_n_top: int = 5

    pad_token_id: int | None = None
    cls_token_type_id: int = 2
    tie_word_embeddings: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        if self.block_repeats is None:
            self.block_repeats = [1] * len(self.block_sizes)
        if self.decoder_repeats is None:
            self.decoder_repeats = [1] * max(self.num_decoder_layers, 0)
        if self.d_embed is None:
            self.d_embed = self.d_model
        super().__post_init__(**kwargs)
        self.check_architecture()

    @property
    def num_blocks(self) -> int:
        """Blocks of the encoder."""
        return len(self.block_sizes)

    @property
    def num_hidden_layers(self) -> int:
        """Layers of the encoder that have weights of their own; as in transformers, repeats are not counted."""
        return sum(self.block_sizes)

    @property
    def total_stride(self) -> int:
        """Tokens that a slot of the last block covers."""
        return self.pooling_size ** (self.num_blocks - 1)

    def check_architecture(self) -> None:
        """Refuse what no model can have, each in one sentence.

        Raises:
            UsageError: sizes and repeats that do not match or are out of range, an unknown name, or a pooling or
                position that the chosen semantics does not know.
        """
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise UsageError(
                    f"`{name}` must be one of {', '.join(known)}, got {getattr(self, name)!r}; choose one of them"
                )
        self._check_sizes()
        self._check_layers()
        self._check_semantics()
        self._check_backend()
        if self.hidden_act not in ACT2FN:
            raise UsageError(
                f"`hidden_act` must be an activation of transformers, got {self.hidden_act!r}; "
                "'gelu_new' is the paper's"
            )

    def _check_layers(self) -> None:
        if not self.block_sizes or min(self.block_sizes) < 1:
            raise UsageError(
                f"`block_sizes` must be numbers of at least 1, one for each block, got {list(self.block_sizes)}; "
                "[4, 4, 4] is the paper's smallest"
            )
        sizes = {"block": len(self.block_sizes), "decoder layer": self.num_decoder_layers}
        for name, kind in (("block_repeats", "block"), ("decoder_repeats", "decoder layer")):
            repeats = getattr(self, name)
            if len(repeats) != sizes[kind] or min(repeats, default=1) < 1:
                raise UsageError(
                    f"`{name}` must be {count(sizes[kind], 'number')} of at least 1, one for each {kind}, "
                    f"got {list(repeats)}; give as many, or leave it out"
                )

    def _check_sizes(self) -> None:
        for name, least in (
            ("vocab_size", 1),
            ("num_decoder_layers", 0),
            ("d_model", 1),
            ("d_embed", 1),
            ("n_head", 1),
            ("d_head", 1),
            ("d_inner", 1),
            ("pooling_size", 2),
            ("max_position_embeddings", 1),
            ("type_vocab_size", 1),
            ("cls_token_type_id", 0),
            ("start_n_top", 1),
            ("end_n_top", 1),
        ):
            if getattr(self, name) < least:
                raise UsageError(f"`{name}` must be at least {least}, got {getattr(self, name)}; give it a size")
        if self.position_type == "relative" and self.d_model % 2:
            raise UsageError(
                f"`d_model` must be even for relative positions, half of which are sines and half cosines, "
                f"got {self.d_model}; choose an even one"
            )
        # A pooled position must be an integer of 64 bits in any text.
        if self.total_stride > 2**31:
            raise UsageError(
                f"`block_sizes` must be so few that a slot covers at most 2^31 tokens, got {self.num_blocks} blocks "
                f"with the pooling size {self.pooling_size:,}; choose fewer, or a smaller size"
            )
        for name in ("hidden_dropout", "attention_dropout", "activation_dropout", "classifier_dropout"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise UsageError(f"`{name}` must be a probability from 0 to below 1, got {value}; the paper's is 0.1")
        for name in (
            "layer_norm_eps",
            "initializer_std",
            "initializer_range",
            "generator_ratio",
            "discriminator_weight",
        ):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise UsageError(f"`{name}` must be a number above 0, got {value}; change it")

    def _check_semantics(self) -> None:
        for name, only, why in _FOREIGN.get(self.semantics, ()):
            value = getattr(self, name)
            wrong = value == "top_attention" if only is None else value != only
            if wrong:
                expected = "mean or max" if only is None else only
                raise UsageError(
                    f"`{name}` must be {expected} for semantics={self.semantics!r}, since {why}, got {value}; "
                    "change it or choose semantics='exact'"
                )

    def _check_backend(self) -> None:
        """The other forms of attention than the one with all distances at hand have fewer backends."""
        for name, value, backends in (
            ("attention_type", "factorized", ("auto", "reference")),
            ("position_type", "absolute", ("auto", "reference", "sdpa")),
        ):
            if getattr(self, name) == value and self.funnel_backend not in backends:
                raise UsageError(
                    f"`funnel_backend` must be one of {', '.join(backends)} with {name}={value!r}, "
                    f"got {self.funnel_backend!r}; choose one of them"
                )
