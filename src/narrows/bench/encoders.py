"""Models that read long texts, ours and transformers' LongT5, with random weights, and what each is given to do.

Random weights take the time and the memory that trained ones take.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

__all__ = ["WIDTHS", "Side", "Width", "build", "longt5_config", "task"]


class Width(NamedTuple):
    """Sizes of a layer under T5's names, and the vocabulary."""

    d_model: int
    d_kv: int
    d_ff: int
    num_heads: int
    vocab_size: int


WIDTHS = {"base": Width(768, 64, 2048, 12, 32128), "tiny": Width(24, 6, 40, 4, 97)}
_WARM_UP = 256


class Side(NamedTuple):
    """One side of a comparison: a model, and what it does with a text. All of it goes through JSON.

    Attributes:
        model: `dynamic` or `fixed` (ours), `local` or `tglobal` (LongT5 with local or transient-global attention).
        length: tokens of the text, a batch of one.
        work: `forward`: the encoder's states, without gradients; `backward`: these and all gradients, without dropout;
            `generate`: `new_tokens` greedily by encoder and decoder of `layers` each.
        width: of `WIDTHS`.
        layers: of the encoder.
        dtype: of the weights.
        chunk: tokens that a feed-forward layer takes at once, ours only; 0: all.
        recompute: whether the feed-forward's inner states are computed again in the backward pass, ours only.
        new_tokens: see `work`.
    """

    model: Literal["dynamic", "fixed", "local", "tglobal"]
    length: int
    work: Literal["forward", "backward", "generate"] = "forward"
    width: str = "base"
    layers: int = 2
    dtype: Literal["float32", "bfloat16"] = "float32"
    chunk: int = 0
    recompute: bool = False
    new_tokens: int = 64

    @property
    def ours(self) -> bool:
        """Whether the model is a Mulla."""
        return self.model in ("dynamic", "fixed")

    @property
    def label(self) -> str:
        """All that tells one side from another, for the results.

        Example:
            >>> Side("dynamic", 16_384, dtype="bfloat16", chunk=1024).label
            'dynamic/forward/base/2 layers/16384 tokens/bfloat16/chunk 1024'
        """
        parts = [self.model, self.work, self.width, f"{self.layers} layers", f"{self.length} tokens"]
        parts += [self.dtype] if self.dtype != "float32" else []
        parts += [f"chunk {self.chunk}"] if self.chunk else []
        parts += ["recomputed"] if self.recompute else []
        parts += [f"{self.new_tokens} new"] if self.work == "generate" else []
        return "/".join(parts)

    @property
    def gigabytes(self) -> float:
        """About the memory it takes above its weights, with a margin; measured at base width.

        Scores of transient-global attention grow with the square of the length, the rest with the length. A forward
        pass holds a layer at a time, a backward pass all of them.

        Example:
            >>> round(Side("tglobal", 32_768, layers=1).gigabytes)
            26
        """
        if self.width != "base":
            return 0.0
        texts = self.length / 16_384
        forward = 1.5 * texts + (5.0 * texts**2 if self.model == "tglobal" else 0.0)
        return 1.13 * forward * (self.layers if self.work == "backward" else 1)

    @property
    def needs(self) -> "Side":
        """What its model depends on: sides that differ in the text only share one."""
        return self._replace(length=0)

    @property
    def warm_up(self) -> "Side":
        """So few tokens that they leave no buffers of the size to be measured."""
        return self._replace(length=min(_WARM_UP, self.length), new_tokens=2)

    def build(self) -> Any:
        """See `build`."""
        return build(self)

    def task(self, model: Any) -> Callable[[], Tensor]:
        """See `task`."""
        return task(model, self)


def longt5_config(width: Width, *, layers: int, attention: str) -> Any:
    """transformers' config of a LongT5 with the published ones' gated feed-forward and first token of a target."""
    from transformers import LongT5Config

    config: Any = LongT5Config(
        **width._asdict(), num_layers=layers, feed_forward_proj="gated-gelu", encoder_attention_type=attention
    )
    config.decoder_start_token_id = 0
    return config


def build(side: Side, *, seed: int = 0) -> Any:
    """The model of a side: an encoder, or with a decoder where it generates."""
    torch.manual_seed(seed)
    generates, width = side.work == "generate", WIDTHS[side.width]
    if side.ours:
        from narrows.mulla import MullaT5Config, MullaT5EncoderModel, MullaT5ForConditionalGeneration

        kind: Any = MullaT5ForConditionalGeneration if generates else MullaT5EncoderModel
        config: Any = MullaT5Config(
            **width._asdict(),
            num_layers=side.layers,
            variant=side.model,
            encoder_feed_forward_chunk=side.chunk,
            encoder_feed_forward_recompute=side.recompute,
        )
    else:
        from transformers import LongT5EncoderModel, LongT5ForConditionalGeneration

        kind = LongT5ForConditionalGeneration if generates else LongT5EncoderModel
        attention = {"local": "local", "tglobal": "transient-global"}[side.model]
        config = longt5_config(width, layers=side.layers, attention=attention)
    return kind(config).eval().to(getattr(torch, side.dtype))


def task(model: Any, side: Side, *, seed: int = 0) -> Callable[[], Tensor]:
    """A function that does the side's work on a random text, made beforehand, and returns states or token ids."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, WIDTHS[side.width].vocab_size, (1, side.length), generator=generator)
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def forward() -> Tensor:
        with torch.inference_mode():
            return model(**inputs).last_hidden_state

    def backward() -> Tensor:
        states = model(**inputs).last_hidden_state
        states.square().mean().backward()
        model.zero_grad(set_to_none=True)
        return states.detach()

    def generate() -> Tensor:
        tokens = {"min_new_tokens": side.new_tokens, "max_new_tokens": side.new_tokens}
        return model.generate(**inputs, **tokens, do_sample=False, num_beams=1)

    return {"forward": forward, "backward": backward, "generate": generate}[side.work]
