"""Configuration of a bottleneck Transformer."""

import warnings
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig
from transformers.activations import ACT2FN

from narrows.bottleneck.attention import heads_of
from narrows.errors import UsageError
from narrows.hf.fields import in_our_words

__all__ = ["INITIALIZERS", "KINDS", "BottleneckConfig"]

KINDS = ("bottleneck", "full", "window", "bottleneck-window")
"""What a layer's attention can be: narrow or of the whole width, over all tokens or those in the window."""

INITIALIZERS = ("scaled", "article")

_CHOICES = {
    "norm_position": ("pre", "post"),
    "cache_kind": ("keys_values", "narrow_states"),
    "initializer": INITIALIZERS,
}
# A head of fewer numbers hardly tells keys apart (docs/bottleneck.md).
_NARROW_HEAD = 16


@in_our_words
@strict
class BottleneckConfig(PreTrainedConfig):
    """What a bottleneck Transformer is made of; the plain one is `layer_pattern="full"`.

    Args:
        vocab_size: 260 is that of `narrows.hf.byte_tokenizer`: bytes, padding, start, end, mask.
        hidden_size: width of the residual stream.
        num_hidden_layers: of them.
        layer_pattern: kinds of layers, comma-separated, repeated until every layer has one: `bottleneck`, `full`,
            `window`, `bottleneck-window`. So `bottleneck,bottleneck,full` has full attention in every third.
        causal: whether a token sees only those before it.
        window: tokens to either side, itself among them, that a token sees in windowed layers.
        bottleneck_ratio: `hidden_size` / width of the attention.
        bottleneck_size: that width itself, in the place of the ratio.
        bottleneck_heads: heads there; None: as wide as 64, else 32, else one.
        bottleneck_key_value_heads: heads of keys and values, each for several of the queries; None: as many.
        bottleneck_key_dim: width of a head's queries and keys, at most that of its values; None: the same.
        bottleneck_act: between the down-projection and attention: an activation of transformers, or `linear`.
        bottleneck_kernel: tokens that a depthwise convolution mixes in the narrow states before attention; 0: none.
        bottleneck_inner_residual: whether narrow states also go past attention, whose factor is then learned.
        num_attention_heads: of layers of the whole width; None: as wide as 64, else 32.
        num_key_value_heads: see `bottleneck_key_value_heads`.
        intermediate_size: of the feed-forward layers; None: four times `hidden_size`.
        hidden_act: of the feed-forward layers.
        norm_position: `pre`, or `post`: after the residual is added, as in the article.
        initializer: `scaled`: normal, by the width that a layer reads, what adds to the residual stream less the more
            layers there are; `article`: down-projection Kaiming normal (fan out), up-projection Xavier uniform, the
            rest as torch has it.
        rope_theta: base of the rotary positions.
        cache_kind: what is kept of tokens that were read: `keys_values`, or `narrow_states` alone, of which they are
            made again, for half of the memory.
        hidden_dropout: of what is added to the residual stream.
        attention_dropout: of attention weights. Above 0 torch leaves its fast kernel on a CPU.

    Raises:
        UsageError: a value that no model can have.

    Example:
        >>> config = BottleneckConfig(hidden_size=512, bottleneck_ratio=4)
        >>> config.inner_size, config.inner_heads, config.kinds[:2]
        (128, 2, ['bottleneck', 'bottleneck'])
    """

    model_type = "narrows-bottleneck"
    keys_to_ignore_at_inference = ["cache"]

    vocab_size: int = 260
    hidden_size: int = 512
    num_hidden_layers: int = 6
    layer_pattern: str = "bottleneck"
    causal: bool = True
    window: int = 256
    bottleneck_ratio: float | int = 4
    bottleneck_size: int | None = None
    bottleneck_heads: int | None = None
    bottleneck_key_value_heads: int | None = None
    bottleneck_key_dim: int | None = None
    bottleneck_act: str = "gelu"
    bottleneck_kernel: int = 3
    bottleneck_inner_residual: bool = True
    num_attention_heads: int | None = None
    num_key_value_heads: int | None = None
    intermediate_size: int | None = None
    hidden_act: str = "gelu"
    norm_position: str = "pre"
    layer_norm_eps: float | int = 1e-5
    initializer: str = "scaled"
    rope_theta: float | int = 10_000.0
    cache_kind: str = "keys_values"
    use_cache: bool = True
    hidden_dropout: float | int = 0.0
    attention_dropout: float | int = 0.0
    classifier_dropout: float | int | None = None
    tie_word_embeddings: bool = True
    pad_token_id: int | None = 256
    bos_token_id: int | None = 257
    eos_token_id: int | list[int] | None = 258

    def __post_init__(self, **kwargs: Any) -> None:
        if self.intermediate_size is None:
            self.intermediate_size = 4 * self.hidden_size
        if self.num_attention_heads is None and self.hidden_size >= 1 and _has_full(self.layer_pattern):
            self.num_attention_heads = heads_of(self.hidden_size)
        super().__post_init__(**kwargs)
        self.check_architecture()

    @property
    def kinds(self) -> list[str]:
        """The kind of each layer."""
        pattern = _names(self.layer_pattern)
        return [pattern[layer % len(pattern)] for layer in range(self.num_hidden_layers)]

    @property
    def inner_size(self) -> int:
        """Width of the attention in bottleneck layers."""
        if self.bottleneck_size is not None:
            return self.bottleneck_size
        return round(self.hidden_size / self.bottleneck_ratio)

    @property
    def inner_heads(self) -> int:
        """Heads of the attention in bottleneck layers."""
        return heads_of(self.inner_size) if self.bottleneck_heads is None else self.bottleneck_heads

    def check_architecture(self) -> None:
        """Refuse what no model can have, each in one sentence.

        Raises:
            UsageError: a size out of its range, an unknown kind, choice or activation, a ratio below 1, above the width
                or that does not divide it, heads that do not divide it.
        """
        self._check_sizes()
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise UsageError(
                    f"`{name}` must be one of {', '.join(choices)}, got {getattr(self, name)!r}; choose one of them"
                )
        for name in ("hidden_act", "bottleneck_act"):
            if getattr(self, name) not in ACT2FN:
                raise UsageError(
                    f"`{name}` must be an activation of transformers, got {getattr(self, name)!r}; 'gelu' is usual"
                )
        self._check_pattern()
        if any(kind.startswith("bottleneck") for kind in self.kinds):
            self._check_bottleneck()

    def _check_sizes(self) -> None:
        for name, least in (
            ("vocab_size", 1),
            ("hidden_size", 1),
            ("num_hidden_layers", 1),
            ("window", 1),
            ("intermediate_size", 1),
            ("bottleneck_kernel", 0),
        ):
            if getattr(self, name) < least:
                raise UsageError(f"`{name}` must be at least {least}, got {getattr(self, name)}; give it a size")
        for name in ("hidden_dropout", "attention_dropout", "classifier_dropout"):
            rate = getattr(self, name)
            if rate is not None and not 0 <= rate < 1:
                raise UsageError(f"`{name}` must be from 0 to below 1, got {rate}; 0 is none")
        for name in ("layer_norm_eps", "rope_theta"):
            if not 0 < getattr(self, name) < float("inf"):
                raise UsageError(f"`{name}` must be above 0, got {getattr(self, name)}; leave it out")

    def _check_pattern(self) -> None:
        for name in _names(self.layer_pattern):
            if name not in KINDS:
                raise UsageError(
                    f"`layer_pattern` must be kinds of layers, of {', '.join(KINDS)}, comma-separated, got {name!r} in "
                    f"{self.layer_pattern!r}; write for example 'bottleneck,bottleneck,full'"
                )

    def _check_bottleneck(self) -> None:
        if self.bottleneck_size is None:
            ratio = self.bottleneck_ratio
            if not 1 <= ratio <= self.hidden_size:
                raise UsageError(
                    f"`bottleneck_ratio` must be from 1 to hidden_size, {self.hidden_size}, got {ratio}; 4 is usual"
                )
            if self.hidden_size / ratio != self.inner_size:
                raise UsageError(
                    f"`bottleneck_ratio` must divide hidden_size, {self.hidden_size}, got {ratio}; choose another "
                    "ratio, or give `bottleneck_size`"
                )
        elif not 1 <= self.bottleneck_size <= self.hidden_size:
            raise UsageError(
                f"`bottleneck_size` must be from 1 to hidden_size, {self.hidden_size}, got {self.bottleneck_size}; "
                "choose another"
            )
        if not self.causal and self.bottleneck_kernel and self.bottleneck_kernel % 2 == 0:
            raise UsageError(
                f"`bottleneck_kernel` must be odd where tokens see both sides, got {self.bottleneck_kernel}; 3 is usual"
            )
        heads = self.inner_heads
        if (
            heads >= 1
            and self.inner_size % heads == 0
            and self.inner_size // heads < min(_NARROW_HEAD, self.inner_size)
        ):
            warnings.warn(
                f"heads of {self.inner_size // heads} numbers in the bottleneck hardly tell keys apart; fewer heads "
                "are wider and faster",
                stacklevel=2,
            )


def _names(pattern: str) -> list[str]:
    return [name.strip() for name in pattern.split(",")]


def _has_full(pattern: str) -> bool:
    return not set(_names(pattern)) <= {"bottleneck", "bottleneck-window"}
