"""Attention in a narrow width between a down- and an up-projection: the article's idea, in small parts.

Shapes are `[batch, length, width]` in and out. Needs torch only. See README.md for what differs from the article.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from narrows.bottleneck.reach import Reach, attend_after, attend_rows
from narrows.bottleneck.rotary import rotate, rotation
from narrows.bottleneck.rows import Memory, Rows
from narrows.core import compact
from narrows.errors import UsageError

__all__ = ["BottleneckAttention", "NarrowConvolution", "SelfAttention", "heads_of"]

# The usual widths of a head, in the order in which they are tried.
_HEAD_DIMS = (64, 32)


def heads_of(width: int, *, head_dim: int | None = None) -> int:
    """How many heads attention of a width has.

    Args:
        width: that attention runs in.
        head_dim: of a head; None: 64 if that divides the width, else 32. A narrower width is one head.

    Raises:
        UsageError: the width is not a number of such heads.

    Example:
        >>> [heads_of(width) for width in (512, 128, 96, 48)]
        [8, 2, 3, 1]
    """
    tried = _HEAD_DIMS if head_dim is None else (head_dim,)
    for dim in tried:
        if width % dim == 0:
            return width // dim
    if width < tried[0]:
        return 1
    raise UsageError(
        f"expected a width of attention that is a multiple of {' or '.join(map(str, tried))}, the width of a head, "
        f"got {width}; choose another ratio, or give the number of heads"
    )


class NarrowConvolution(nn.Module):
    """Each number of the narrow state mixed with its own at neighbouring tokens; at the start it changes nothing.

    Args:
        width: of the states.
        kernel: tokens that are mixed: the token itself and those before it, or with `causal=False` those around it.
        causal: see `kernel`.

    Source: the convolution after the projections of Primer (So et al. 2021) and CCA (arXiv 2510.04476), on the state
    that they are made of.
    """

    def __init__(self, width: int, *, kernel: int, causal: bool):
        super().__init__()
        if kernel < 1 or (not causal and kernel % 2 == 0):
            raise UsageError(
                f"`kernel` must be at least 1, and odd where it looks to both sides, got {kernel}; 3 is usual"
            )
        self.kernel, self.causal = kernel, causal
        self.weight = nn.Parameter(torch.empty(kernel, width))
        with torch.no_grad():
            self.weight.copy_(self.identity())

    def identity(self) -> Float[Tensor, "kernel width"]:
        """The weights with which nothing is mixed."""
        weight = torch.zeros_like(self.weight)
        weight[self.kernel - 1 if self.causal else self.kernel // 2] = 1
        return weight

    def forward(
        self, states: Float[Tensor, "batch length width"], before: Float[Tensor, "batch tail width"] | None = None
    ) -> Float[Tensor, "batch length width"]:
        """The mixed states.

        Args:
            states: zeros at padding.
            before: the `kernel − 1` states before these, of causal mixing; None: zeros, the start of the text.
        """
        length = states.shape[1]
        after = 0 if self.causal else self.kernel // 2
        if before is None:
            padded = functional.pad(states, (0, 0, self.kernel - 1 - after, after))
        else:
            padded = torch.cat([before.to(states.dtype), states], dim=1)
        # A sum of shifted copies: a grouped convolution of torch is many times slower on a CPU.
        mixed = padded[:, :length] * self.weight[0]
        for shift in range(1, self.kernel):
            mixed = torch.addcmul(mixed, padded[:, shift : shift + length], self.weight[shift])
        return mixed


class SelfAttention(nn.Module):
    """Heads over states of one width, with rotary positions.

    Args:
        width: in and out.
        heads: of queries; they share the width.
        groups: heads of keys and values, each for as many heads of queries; None: as many as `heads`.
        key_dim: width of a head's queries and keys, at most that of its values; None: the same.
        reach: how far a query sees.
        rotary_base: of the rotary positions; None: no positions.
        dropout: of attention weights, in training. Above 0 torch leaves its fast kernel on a CPU.

    Raises:
        UsageError: numbers that do not go together.
    """

    def __init__(
        self,
        width: int,
        *,
        heads: int,
        groups: int | None = None,
        key_dim: int | None = None,
        reach: Reach,
        rotary_base: float | None = 10_000.0,
        dropout: float = 0.0,
    ):
        super().__init__()
        groups = heads if groups is None else groups
        if heads < 1 or width % heads:
            raise UsageError(f"expected a number of heads that divides the width {width}, got {heads}; change it")
        if groups < 1 or heads % groups:
            raise UsageError(
                f"expected a number of key-value heads that divides the {heads} of the queries, got {groups}; change it"
            )
        self.head_dim = width // heads
        self.key_dim = self.head_dim if key_dim is None else key_dim
        if not 1 <= self.key_dim <= self.head_dim:
            raise UsageError(
                f"expected queries and keys of 1 to the {self.head_dim} numbers of a head's values, got "
                f"{self.key_dim}; change `key_dim`"
            )
        self.heads, self.groups, self.reach = heads, groups, reach
        self.rotary_base, self.dropout = rotary_base, dropout
        self.q_proj = nn.Linear(width, heads * self.key_dim)
        self.k_proj = nn.Linear(width, groups * self.key_dim)
        self.v_proj = nn.Linear(width, groups * self.head_dim)
        self.o_proj = nn.Linear(width, width)

    def forward(
        self,
        states: Float[Tensor, "batch length width"],
        rows: Rows,
        memory: Memory | None = None,
        backend: str = "sdpa",
        scale: Tensor | None = None,
    ) -> Float[Tensor, "batch length width"]:
        """Attention of the states to themselves and to what `memory` holds of keys and values, times `scale`."""
        query = self.queries(states, rows)
        key, value = self.keys_values(states, rows)
        if memory is not None:
            kept = memory.update(rows.scatter_heads(key), rows.scatter_heads(value))
            if rows.past:
                return self.after(query, *kept, rows, rows.columns, backend, scale)
        attended = attend_rows(
            self._scaled(query),
            self._wide(key),
            value,
            reach=self.reach,
            lengths=rows.lengths,
            dropout=self.dropout if self.training else 0.0,
            backend=backend,
        )
        return self._out(attended, scale)

    def queries(self, states: Tensor, rows: Rows) -> Float[Tensor, "batch heads length dim"]:
        """Turned by their places."""
        return self._turned(self.q_proj(states), self.heads, rows)

    def keys_values(
        self, states: Tensor, rows: Rows
    ) -> tuple[Float[Tensor, "batch groups length dim"], Float[Tensor, "batch groups length dim"]]:
        """The keys turned by their places, and the values."""
        value = self.v_proj(states).unflatten(-1, (self.groups, -1)).transpose(1, 2)
        return self._turned(self.k_proj(states), self.groups, rows), value

    def after(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        rows: Rows,
        places: Int[Tensor, "batch keys"] | None,
        backend: str,
        scale: Tensor | None = None,
    ) -> Float[Tensor, "batch length width"]:
        """What new tokens get of all keys, those of the past among them."""
        assert rows.places is not None
        # One new token a row, no padding, no window: every key is seen, and no mask is needed.
        whole = rows.is_simple and self.reach.window is None
        attended = attend_after(
            self._scaled(query),
            self._wide(key),
            value,
            reach=self.reach,
            queries=rows.places.expand(query.shape[0], -1),
            keys=None if whole or places is None else places.expand(query.shape[0], -1),
            backend=backend,
        )
        return self._out(attended, scale)

    def _out(self, attended: Tensor, scale: Tensor | None) -> Tensor:
        states = attended.transpose(1, 2).flatten(2)
        if scale is None:
            return self.o_proj(states)
        if not (torch.is_grad_enabled() and _is_plain(self.o_proj)):
            return scale * self.o_proj(states)
        # The weights times the factor: for its gradient the weights are kept, and nothing as long as the text.
        return functional.linear(states, scale * self.o_proj.weight, scale * self.o_proj.bias)

    def _turned(self, projected: Tensor, heads: int, rows: Rows) -> Tensor:
        states = projected.unflatten(-1, (heads, -1)).transpose(1, 2)
        return states if self.rotary_base is None else rotate(states, rows.rotations[self.key_dim])

    def _scaled(self, query: Tensor) -> Tensor:
        """Queries of fewer numbers filled up with zeros, and made larger by what the kernel divides too much by.

        With keys narrower than values torch leaves its fast kernel on a CPU.
        """
        if self.key_dim == self.head_dim:
            return query
        return self._wide(query * (self.head_dim / self.key_dim) ** 0.5)

    def _wide(self, states: Tensor) -> Tensor:
        missing = self.head_dim - self.key_dim
        # Padding by nothing would copy all keys. In memory a token's heads stay side by side.
        return functional.pad(states.transpose(1, 2), (0, missing)).transpose(1, 2) if missing else states


class BottleneckAttention(nn.Module):
    """down → activation → attention in the narrow width → up.

    Args:
        width: in and out.
        inner: width of the attention, at most `width`.
        attention: of the inner width; made by the caller, who decides about heads, reach and positions.
        activation: between the down-projection and the attention.
        convolution: of the narrow states; None: none.
        inner_residual: whether the narrow states go past attention too, which then has a learned factor: SRU++'s
            `W (Q + α A)`.

    Raises:
        UsageError: the inner width is wider than the outer one.

    Source: the article's `BottleneckAttention`; Lei 2021 (SRU++), equation 4, for the inner residual.

    Example:
        >>> inner = SelfAttention(16, heads=1, reach=Reach(causal=True))
        >>> layer = BottleneckAttention(64, inner=16, attention=inner)
        >>> layer(torch.ones(2, 5, 64), Rows.plain(5, dims=(16,), base=10_000.0)).shape
        torch.Size([2, 5, 64])
    """

    def __init__(
        self,
        width: int,
        *,
        inner: int,
        attention: SelfAttention,
        activation: nn.Module | None = None,
        convolution: NarrowConvolution | None = None,
        inner_residual: bool = False,
    ):
        super().__init__()
        if not 1 <= inner <= width:
            raise UsageError(
                f"expected an inner width of 1 to the {width} of the states, got {inner}; choose another ratio"
            )
        self.down_proj = nn.Linear(width, inner)
        self.activation = nn.GELU() if activation is None else activation
        self.convolution = convolution
        self.attention = attention
        self.scale = nn.Parameter(torch.ones(())) if inner_residual else None
        self.up_proj = nn.Linear(inner, width)

    @property
    def key_dim(self) -> int:
        """Width of a head's queries and keys."""
        return self.attention.key_dim

    def forward(
        self,
        states: Float[Tensor, "batch length width"],
        rows: Rows,
        memory: Memory | None = None,
        backend: str = "sdpa",
    ) -> Float[Tensor, "batch length width"]:
        """The branch's output, which the caller adds to the residual stream; under autocast in fp32.

        Args:
            states: real tokens at the front of each row.
            rows: the batch's arrangement, with the rotations of a head's width.
            memory: of this layer, where a text is read in parts.
            backend: of `attend_rows`.
        """
        narrow = self.activation(self.down_proj(states))
        if memory is not None and memory.keeps_states:
            mixed, attended = self._with_states(narrow, rows, memory, backend)
        else:
            mixed = self._mixed(narrow, rows, memory)
            attended = self.attention(mixed, rows, memory, backend, self.scale)
        widened = self.up_proj(attended if self.scale is None else mixed + attended)
        return widened.float() if torch.is_autocast_enabled(states.device.type) else widened

    def _mixed(self, narrow: Tensor, rows: Rows, memory: Memory | None) -> Tensor:
        if self.convolution is None:
            return narrow
        narrow = rows.blank(narrow)
        before = None if memory is None else memory.tail
        if memory is not None:
            memory.tail = _last_real(narrow, before, rows, self.convolution.kernel - 1)
        return self.convolution(narrow, before)

    def _with_states(self, narrow: Tensor, rows: Rows, memory: Memory, backend: str) -> tuple[Tensor, Tensor]:
        """By a memory of narrow states: keys and values of all tokens are made again."""
        kept, _ = memory.update(rows.scatter(narrow)[:, None], narrow.new_empty(len(narrow), 1, narrow.shape[1], 0))
        if not rows.past:
            mixed = self._mixed(narrow, rows, None)
            return mixed, self.attention(mixed, rows, None, backend, self.scale)
        assert rows.columns is not None and rows.places is not None
        every, order, places = kept[:, 0], None, rows.columns
        if rows.order is not None:
            # Padding in the caller's columns: real tokens to the front of each row.
            order = compact(places >= 0)
            places = torch.arange(every.shape[1], device=every.device)[None]
        lengths = None if order is None else order.lengths
        whole = Rows(lengths, order, 0, None, None, self._rotations(places), is_simple=False)
        every = whole.gather(every)
        mixed = every if self.convolution is None else self.convolution(every)
        key, value = self.attention.keys_values(mixed, whole)
        own = rows.places.expand(len(narrow), -1).clamp_max(every.shape[1] - 1)
        mixed = mixed.gather(1, own[..., None].expand(-1, -1, mixed.shape[-1]))
        query = self.attention.queries(mixed, rows)
        if lengths is not None:
            places = torch.where(places < lengths[:, None], places, -1)
        return mixed, self.attention.after(query, key, value, rows, places, backend, self.scale)

    def _rotations(self, places: Tensor) -> dict:
        base, dim = self.attention.rotary_base, self.attention.key_dim
        return {} if base is None else {dim: rotation(places, dim=dim, base=base)}


def _is_plain(layer: nn.Module) -> bool:
    """Whether it is its weights and nothing else: no adapter in its place, nobody who listens."""
    return type(layer) is nn.Linear and not (layer._forward_hooks or layer._forward_pre_hooks)


def _last_real(narrow: Tensor, before: Tensor | None, rows: Rows, kept: int) -> Tensor:
    """The last `kept` states of each row before its padding; zeros where the text is shorter."""
    if before is None:
        before = narrow.new_zeros(narrow.shape[0], kept, narrow.shape[2])
    both = torch.cat([before, narrow], dim=1)
    if rows.lengths is None:
        return both[:, both.shape[1] - kept :]
    index = rows.lengths[:, None] + torch.arange(kept, device=narrow.device)
    return both.gather(1, index[..., None].expand(-1, -1, narrow.shape[2]))
