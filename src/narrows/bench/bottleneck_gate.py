"""Checks of bottleneck attention that have to hold before a number counts; each returns None, or what is wrong."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from narrows.bench.bottleneck_models import BottleneckSide, PlainAttention, build, config_of
from narrows.bottleneck import BottleneckConfig, BottleneckForCausalLM, BottleneckModel, Rows
from narrows.bottleneck.reference import reference

__all__ = ["BOTTLENECK"]

# Deviations of two orders of fp32 operations, as a share of the largest value.
_TOLERANCE = 2e-5
# Of layers; eight heads of the article are 16 wide then.
_WIDTH, _SHORT = 256, 7
_LENGTH = 37
_SIZES: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 64, "num_hidden_layers": 3, "bottleneck_ratio": 2, "window": 5,
    "layer_pattern": "bottleneck,full,bottleneck-window", "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def _stir(model: nn.Module) -> None:
    """Norms, biases and convolutions that matter: fresh ones are 1, 0 and the identity, and a wrong one goes unseen."""
    torch.manual_seed(2)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=1.5 * parameter.shape[-1] ** -0.5)
        else:
            nn.init.normal_(parameter, mean=0.7, std=0.2)


def _apart(what: str, found: Sequence[Tensor], expected: Sequence[Tensor]) -> str | None:
    """None, or by how much the worst of several tensors differs, each measured by its largest value."""
    differences = [
        (one - other).abs().max() / other.abs().max().clamp_min(1.0) for one, other in zip(found, expected, strict=True)
    ]
    # torch's largest of NaN and a number is NaN, Python's is whichever came first.
    worst = float(torch.stack(differences).max())
    # The other way round NaN would pass.
    return None if worst <= _TOLERANCE else f"{what} differ by {worst:.2g}, at most {_TOLERANCE:.0e} is allowed"


def _values_and_gradients(layer: nn.Module, states: Tensor, output: Tensor) -> list[Tensor]:
    weights = torch.linspace(-1, 1, output.numel()).view_as(output)
    inputs = [states, *layer.parameters()]
    return [output.detach(), *torch.autograd.grad((output * weights).sum(), inputs)]


def layer_equals_reference() -> str | None:
    """Layers that are measured give values and gradients of the form written out token by token."""
    sides = [BottleneckSide(model, _SHORT, ratio=2, width=_WIDTH) for model in ("narrows", "article", "bare", "full")]
    for side in (*sides, *(side._replace(causal=False) for side in sides[:2])):
        layer = build(side)
        _stir(layer)
        states = torch.randn(1, _SHORT, _WIDTH, generator=torch.Generator().manual_seed(1)).requires_grad_()
        rows = Rows.plain(_SHORT, dims=(layer.key_dim,), base=config_of(side).rope_theta)
        found = _values_and_gradients(layer, states, layer(states, rows))
        expected = _values_and_gradients(layer, states, reference(layer, states[0])[None])
        wrong = _apart(f"values or gradients ({side.label})", found, expected)
        if wrong is not None:
            return wrong
    return None


def full_equals_torch() -> str | None:
    """Our full layer without positions is the one written by hand with torch, the peer of it."""
    ours = build(BottleneckSide("full", _SHORT, width=_WIDTH))
    _stir(ours)
    ours.rotary_base = None
    theirs = PlainAttention(_WIDTH, heads=ours.heads, causal=True)
    with torch.no_grad():
        for name in ("weight", "bias"):
            parts = [getattr(linear, name) for linear in (ours.q_proj, ours.k_proj, ours.v_proj)]
            getattr(theirs.in_proj, name).copy_(torch.cat(parts))
        theirs.out_proj.load_state_dict(ours.o_proj.state_dict())
        states = torch.randn(2, _SHORT, _WIDTH, generator=torch.Generator().manual_seed(1))
        found, expected = ours(states, Rows.plain(_SHORT, dims=(), base=1.0)), theirs(states)
    return _apart("states", [found], [expected])


def _batch() -> dict[str, Tensor]:
    """A text without padding, one padded on the right, one on the left, one of a single token."""
    mask = torch.ones(4, _LENGTH, dtype=torch.long)
    mask[1, 23:] = mask[2, :14] = mask[3, 1:] = 0
    ids = torch.randint(3, _SIZES["vocab_size"], mask.shape, generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids * mask, "attention_mask": mask}


def padding_is_a_no_op() -> str | None:
    """A text beside others, padded on either side, has the states that it has alone."""
    batch = _batch()
    for causal in (True, False):
        model = BottleneckModel(BottleneckConfig(**_SIZES, causal=causal)).eval()
        _stir(model)
        real = batch["attention_mask"].bool()
        with torch.no_grad():
            together = model(**batch).last_hidden_state[real]
            rows = zip(batch["input_ids"], real, strict=True)
            alone = torch.cat([model(row[mask][None]).last_hidden_state[0] for row, mask in rows])
        wrong = _apart("states", [together], [alone])
        if wrong is not None:
            return wrong
    return None


def cached_equals_whole() -> str | None:
    """Logits of texts that are read in parts, padded on the left, are those of the texts read at once."""
    ids, mask = _batch()["input_ids"].clamp_min(3), torch.ones(4, _LENGTH, dtype=torch.long)
    mask[1, :4] = mask[2, :9] = 0
    for kind in ("keys_values", "narrow_states"):
        model = BottleneckForCausalLM(BottleneckConfig(**_SIZES, cache_kind=kind)).eval()
        _stir(model)
        for real in (None, mask):
            wrong = _apart(f"logits ({kind})", *_read_in_parts(model, ids, real))
            if wrong is not None:
                return wrong
    return None


def _read_in_parts(model: Any, ids: Tensor, mask: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
    seen = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
    parts, cache, place = [], None, 0
    with torch.no_grad():
        for end in (11, 18, *range(19, ids.shape[1] + 1)):
            given = None if mask is None else mask[:, :end]
            outputs = model(ids[:, place:end], attention_mask=given, cache=cache, use_cache=True)
            parts.append(outputs.logits)
            cache, place = outputs.cache, end
        whole = model(ids, attention_mask=mask, use_cache=False).logits
    return [torch.cat(parts, 1)[seen]], [whole[seen]]


def the_future_is_not_seen() -> str | None:
    """Of a text that goes on otherwise, the states before are the same."""
    model = BottleneckModel(BottleneckConfig(**_SIZES)).eval()
    _stir(model)
    ids = _batch()["input_ids"][:1]
    other = ids.clone()
    other[:, 20:] = ids[:, 20:].flip(1)
    with torch.no_grad():
        found, expected = (model(each).last_hidden_state[:, :20] for each in (other, ids))
    return _apart("states", [found], [expected])


BOTTLENECK: dict[str, Callable[[], str | None]] = {
    "layer equals reference": layer_equals_reference,
    "full layer equals torch": full_equals_torch,
    "padding is a no-op": padding_is_a_no_op,
    "cached equals whole": cached_equals_whole,
    "the future is not seen": the_future_is_not_seen,
}
