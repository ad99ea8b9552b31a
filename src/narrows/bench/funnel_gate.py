"""Checks of Funnel that have to hold before a number counts; each returns None, or what is wrong in a few words."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from narrows.funnel import FunnelConfig, FunnelForMaskedLM, FunnelModel

__all__ = ["FUNNEL"]

# Deviations of two orders of fp32 operations, as a share of the largest value.
_TOLERANCE = 2e-5
_SIZES: dict[str, Any] = {"vocab_size": 97, "d_model": 24, "n_head": 4, "d_head": 6, "d_inner": 40}
_LAYOUT: dict[str, Any] = {"block_sizes": [2, 1, 1], "block_repeats": [1, 2, 1], "num_decoder_layers": 1}
# More than a tile of queries, and no multiple of what the blocks pool by.
_LENGTH = 83


def _batch(*, left: bool = True) -> dict[str, Tensor]:
    """A text without padding, one padded on the right, one padded on either side, one of a single token."""
    mask = torch.ones(4, _LENGTH, dtype=torch.long)
    mask[1, 54:] = mask[3, 1:] = 0
    mask[2, : 17 if left else 0] = mask[2, 70:] = 0
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(2, _SIZES["vocab_size"], mask.shape, generator=generator)
    segments = (torch.arange(_LENGTH) > 30).long().repeat(4, 1)
    # A text's own first token belongs to all segments.
    segments[torch.arange(4), mask.argmax(1)] = 2
    return {"input_ids": ids * mask, "attention_mask": mask, "token_type_ids": segments}


def _stir(model: nn.Module) -> None:
    """Norms, biases and position scores that matter: fresh ones are 1, 0 and near 0, and a wrong one goes unseen."""
    torch.manual_seed(2)
    for parameter in model.parameters():
        nn.init.normal_(parameter, mean=0.7 if parameter.dim() == 1 else 0.0, std=0.2)


def _ours(kind: Any = FunnelModel, **options: Any) -> Any:
    model = kind(FunnelConfig(**{**_SIZES, **_LAYOUT, **options})).eval()
    _stir(model)
    return model


def _apart(what: str, found: Sequence[Tensor], expected: Sequence[Tensor]) -> str | None:
    """None, or by how much the worst of several tensors differs, each measured by its largest value."""
    differences = [
        (one - other).abs().max() / other.abs().max().clamp_min(1.0) for one, other in zip(found, expected, strict=True)
    ]
    # torch's largest of NaN and a number is NaN, Python's is whichever came first.
    worst = float(torch.stack(differences).max())
    # The other way round NaN would pass.
    return None if worst <= _TOLERANCE else f"{what} differ by {worst:.2g}, at most {_TOLERANCE:.0e} is allowed"


def _states(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    """The states of all real tokens, one after the other."""
    with torch.no_grad():
        return model(**inputs).last_hidden_state[inputs["attention_mask"].bool()]


def _values_and_gradients(model: Any, inputs: dict[str, Tensor]) -> list[Tensor]:
    states = model(**inputs).last_hidden_state[inputs["attention_mask"].bool()]
    weights = torch.linspace(-1, 1, states.numel()).view_as(states)
    (states * weights).sum().backward()
    return [states.detach(), *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)]


def fast_equals_reference() -> str | None:
    """Both fast forms give values and gradients of the form with every score in memory."""
    expected = _values_and_gradients(_ours(funnel_backend="reference"), _batch())
    for backend in ("tiled", "sdpa"):
        found = _values_and_gradients(_ours(funnel_backend=backend), _batch())
        wrong = _apart(f"values or gradients ({backend})", found, expected)
        if wrong is not None:
            return wrong
    return None


def factorized_equals_shifted() -> str | None:
    """The paper's second form of the scores is the first."""
    found, expected = (_states(_ours(attention_type=name), _batch()) for name in ("factorized", "relative_shift"))
    return _apart("states", [found], [expected])


def hf_equals_transformers() -> str | None:
    """With `semantics="hf"` the states are those of transformers' Funnel, padded or not."""
    from transformers import FunnelConfig as TheirConfig
    from transformers import FunnelModel as TheirModel

    theirs: Any = TheirModel(TheirConfig(**_SIZES, **_LAYOUT)).eval()
    _stir(theirs)
    ours = _ours(semantics="hf")
    ours.load_state_dict(theirs.state_dict())
    inputs = _batch(left=False)
    # Of a single token its pooling leaves no key.
    padded = {name: tensor[:3] for name, tensor in inputs.items()}
    whole = {name: tensor[:1] for name, tensor in inputs.items()}
    found, expected = ([_states(model, some) for some in (padded, whole)] for model in (ours, theirs))
    return _apart("states", found, expected)


def padding_is_a_no_op() -> str | None:
    """A text beside others, padded on any side, has the states that it has alone."""
    model, inputs = _ours(), _batch()
    alone = []
    for row, mask in enumerate(inputs["attention_mask"].bool()):
        alone.append(_states(model, {name: tensor[row][mask][None] for name, tensor in inputs.items()}))
    return _apart("states", [_states(model, inputs)], [torch.cat(alone)])


def checkpointing_changes_nothing() -> str | None:
    """Layers that are computed again in the backward pass give the gradients of those that are kept, with dropout."""
    found = []
    for recompute in (True, False):
        model = _ours().train()
        if recompute:
            model.gradient_checkpointing_enable()
        torch.manual_seed(3)
        found.append(_values_and_gradients(model, _batch()))
    return _apart("values or gradients", *found)


def masked_lm_equals_transformers() -> str | None:
    """The loss of masked language modelling, decoder and head, is that of transformers' Funnel."""
    from transformers import FunnelConfig as TheirConfig
    from transformers import FunnelForMaskedLM as TheirModel

    theirs: Any = TheirModel(TheirConfig(**_SIZES, **_LAYOUT)).eval()
    _stir(theirs)
    ours = _ours(FunnelForMaskedLM, semantics="hf")
    ours.load_state_dict(theirs.state_dict())
    inputs = {name: tensor[:1] for name, tensor in _batch().items()}
    inputs["labels"] = inputs["input_ids"].masked_fill(torch.arange(_LENGTH) % 7 > 0, -100)
    with torch.no_grad():
        found, expected = (model(**inputs).loss for model in (ours, theirs))
    return _apart("losses", [found], [expected])


FUNNEL: dict[str, Callable[[], str | None]] = {
    "fast equals reference": fast_equals_reference,
    "factorized equals shifted": factorized_equals_shifted,
    "hf semantics equal transformers": hf_equals_transformers,
    "padding is a no-op": padding_is_a_no_op,
    "checkpointing changes nothing": checkpointing_changes_nothing,
    "masked LM equals transformers": masked_lm_equals_transformers,
}
