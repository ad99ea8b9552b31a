"""Layers, blocks and models of bottleneck attention and their peers, with random weights, and what each is given to do.

Random weights take the time and the memory that trained ones take.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from narrows.bench.bottleneck_cost import latent_macs
from narrows.bottleneck import BottleneckModel, Rows, preset
from narrows.bottleneck.config import BottleneckConfig
from narrows.bottleneck.cost import attention_macs, block_macs
from narrows.bottleneck.layers import BottleneckLayer, make_attention

__all__ = ["BottleneckSide", "PlainAttention", "build", "config_of", "macs", "task"]

_HEAD = 64
_WARM_UP = 32


class BottleneckSide(NamedTuple):
    """One side of a comparison: a part of a model, and what it does with one text without padding.

    Attributes:
        model: `narrows` and `article`, the presets; `bare`, `narrows` without its convolution and inner residual;
            `full`, the same code over the whole width; `torch`, that written by hand without positions; `latent`,
            x-transformers' attention whose keys and values are made of a state of width / ratio.
        length: tokens of the text.
        part: `layer`: the attention alone; `block`: with norms and a feed-forward of four times the width; `model`:
            `layers` blocks over embeddings.
        work: `backward`: forward and all gradients; `forward`: without them.
        ratio: width by that of the attention.
        causal: whether a token sees only those before it.
        width: of the residual stream, in heads of 64.
        layers: of a `model`.
    """

    model: Literal["narrows", "article", "bare", "full", "torch", "latent"]
    length: int
    part: Literal["layer", "block", "model"] = "layer"
    work: Literal["forward", "backward"] = "backward"
    ratio: int = 4
    causal: bool = True
    width: int = 512
    layers: int = 6

    @property
    def label(self) -> str:
        """All that tells one side from another, for the results.

        Example:
            >>> BottleneckSide("narrows", 2048, ratio=8).label
            'narrows r=8/layer/width 512/causal/backward/2048 tokens'
        """
        ratio = "" if self.model in ("full", "torch") else f" r={self.ratio}"
        layers = f"{self.layers} layers" if self.part == "model" else self.part
        sees = "causal" if self.causal else "both sides"
        parts = [f"{self.model}{ratio}", layers, f"width {self.width}", sees, self.work, f"{self.length} tokens"]
        return "/".join(parts)

    @property
    def kind(self) -> str:
        """Of the layers, by our names."""
        return "full" if self.model == "full" else "bottleneck"

    @property
    def gigabytes(self) -> float:
        """About the memory it takes, with a margin.

        Example:
            >>> round(BottleneckSide("full", 8192, "block").gigabytes, 1)
            1.8
        """
        states = self.length * self.width * 4e-9
        return 0.5 + states * (80 if self.work == "backward" else 30)

    @property
    def needs(self) -> "BottleneckSide":
        """What its modules depend on."""
        return self._replace(length=0, work="forward")

    @property
    def warm_up(self) -> "BottleneckSide":
        """So little that it leaves no buffers of the size to be measured."""
        return self._replace(length=min(_WARM_UP, self.length))

    def build(self) -> Any:
        """See `build`."""
        return build(self)

    def task(self, model: Any) -> Callable[[], Tensor]:
        """See `task`."""
        return task(model, self)


class PlainAttention(nn.Module):
    """Attention over the whole width as one writes it by hand with torch: no positions, no padding, no cache.

    Args:
        width: in and out.
        heads: that share it.
        causal: whether a token sees only those before it.
    """

    def __init__(self, width: int, *, heads: int, causal: bool):
        super().__init__()
        self.heads, self.causal = heads, causal
        self.in_proj = nn.Linear(width, 3 * width)
        self.out_proj = nn.Linear(width, width)

    def forward(self, states: Float[Tensor, "batch length width"]) -> Float[Tensor, "batch length width"]:
        """Attention of the states to themselves."""
        query, key, value = (
            each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in self.in_proj(states).chunk(3, dim=-1)
        )
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.out_proj(attended.transpose(1, 2).flatten(2))


def config_of(side: BottleneckSide) -> BottleneckConfig:
    """Our config of a side of ours."""
    sizes = {"hidden_size": side.width, "num_hidden_layers": side.layers, "causal": side.causal}
    if side.model == "full":
        return preset("full", length=side.length, **sizes)
    if side.model == "article":
        return preset("article", length=side.length, **sizes, bottleneck_ratio=side.ratio)
    bare = {"bottleneck_kernel": 0, "bottleneck_inner_residual": False} if side.model == "bare" else {}
    return preset("narrows", length=side.length, **sizes, bottleneck_ratio=side.ratio, **bare)


def macs(side: BottleneckSide) -> int:
    """Products that it takes, forward; with the backward pass three times as many on every side."""
    if side.model == "torch":
        side = side._replace(model="full")
    if side.model == "latent":
        latent = side.width // side.ratio
        return latent_macs(width=side.width, latent=latent, length=side.length, causal=side.causal).total
    count = attention_macs if side.part == "layer" else block_macs
    return count(config_of(side), side.kind, side.length).total * (side.layers if side.part == "model" else 1)


def build(side: BottleneckSide, *, seed: int = 0) -> Any:
    """The modules of a side."""
    torch.manual_seed(seed)
    heads = side.width // _HEAD
    if side.model == "torch":
        return PlainAttention(side.width, heads=heads, causal=side.causal)
    if side.model == "latent":
        return _Latent(side.width, heads=heads, latent=side.width // side.ratio, causal=side.causal)
    config = config_of(side)
    if side.part == "model":
        return BottleneckModel(config).eval()
    return BottleneckLayer(config, side.kind) if side.part == "block" else make_attention(config, side.kind)


class _Latent(nn.Module):
    """x-transformers' attention with its rotary positions, which turn half of each head there."""

    def __init__(self, width: int, *, heads: int, latent: int, causal: bool):
        super().__init__()
        from x_transformers.x_transformers import Attention, RotaryEmbedding

        options = {"use_latent_kv": True, "dim_latent_kv": latent, "flash": True, "causal": causal}
        self.attention: Any = Attention(width, dim_head=width // heads, heads=heads, **options)
        self.positions: Any = RotaryEmbedding(max(32, width // heads // 2))

    def forward(self, states: Tensor, rotary: Any) -> Tensor:
        found = self.attention(states, rotary_pos_emb=rotary)
        return found[0] if isinstance(found, tuple) else found


def task(model: Any, side: BottleneckSide, *, seed: int = 0) -> Callable[[], Tensor]:
    """A function that does the side's work on a random text, made beforehand, and returns the states."""
    generator = torch.Generator().manual_seed(seed)
    if side.part == "model":
        ids = torch.randint(0, 256, (1, side.length), generator=generator)

        def read() -> Tensor:
            with torch.inference_mode():
                return model(ids, use_cache=False).last_hidden_state

        return read
    states = torch.randn(1, side.length, side.width, generator=generator)
    around = _around(model, side)

    def forward() -> Tensor:
        with torch.inference_mode():
            return model(states, *around)

    def backward() -> Tensor:
        model.zero_grad(set_to_none=True)
        given = states.detach().requires_grad_()
        output = model(given, *around)
        output.backward(states)
        return cast(Tensor, output.detach())

    return forward if side.work == "forward" else backward


def _around(model: Any, side: BottleneckSide) -> tuple[Any, ...]:
    """What a layer is given beside the states, which a model makes once for all of its layers."""
    if side.model == "torch":
        return ()
    if side.model == "latent":
        return (model.positions.forward_from_seq_len(side.length),)
    attention = model.attention if side.part == "block" else model
    config = config_of(side)
    return (Rows.plain(side.length, dims=(attention.key_dim,), base=config.rope_theta),)
