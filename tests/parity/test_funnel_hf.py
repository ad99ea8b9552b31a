"""`semantics="hf"` equals transformers' Funnel on the same weights, wherever that does not fail."""

import itertools

import pytest
import torch
from torch import Tensor
from transformers import FunnelBaseModel as TheirBaseModel
from transformers import FunnelConfig as TheirConfig
from transformers import FunnelModel as TheirModel

from narrows.errors import UsageError
from narrows.funnel import FunnelBaseModel, FunnelConfig, FunnelModel

_SIZES = {"vocab_size": 40, "d_model": 12, "n_head": 3, "d_head": 5, "d_inner": 20}
_LAYOUTS = [
    {"block_sizes": [2, 1, 1], "block_repeats": [1, 2, 1]},
    {"block_sizes": [1, 2], "block_repeats": [2, 1]},
    {"block_sizes": [1, 1, 1, 1]},
    {"block_sizes": [2]},
]
_FLAGS = [
    dict(zip(("separate_cls", "truncate_seq", "pool_q_only"), flags, strict=True))
    for flags in itertools.product((True, False), repeat=3)
]


def _pair(kind, their_kind, **options):
    torch.manual_seed(0)
    theirs = their_kind(TheirConfig(**_SIZES, **options)).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    ours = kind(FunnelConfig(**_SIZES, **options, semantics="hf", funnel_backend="reference")).eval()
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def _inputs(length: int, *, padded: bool) -> dict[str, Tensor]:
    inputs = {"input_ids": torch.randint(0, 40, (3, length))}
    if padded:
        mask = torch.ones(3, length)
        # Never so few that transformers' minimum leaves no key in the fourth block.
        mask[1, max(8, length * 2 // 3) :] = 0
        mask[2, -1:] = 0
        segments = torch.randint(0, 2, (3, length))
        segments[:, 0] = 2
        inputs |= {"attention_mask": mask, "token_type_ids": segments}
    return inputs


def _flat(blocks: tuple[tuple[Tensor, ...], ...]) -> list[Tensor]:
    return [each for block in blocks for each in block]


@pytest.mark.parametrize("attention_type", ["relative_shift", "factorized"])
@pytest.mark.parametrize("flags", _FLAGS, ids=lambda flags: "-".join(name for name in flags if flags[name]) or "none")
def test_states_and_weights_are_those_of_transformers(flags, attention_type):
    kinds = itertools.cycle(["mean", "max"])
    for layout in _LAYOUTS:
        options = {**flags, **layout, "attention_type": attention_type, "pooling_type": next(kinds)}
        ours, theirs = _pair(FunnelModel, TheirModel, **options)
        theirs.set_attn_implementation("eager")
        for length, padded in itertools.product((9, 16, 18, 19), (False, True)):
            inputs = _inputs(length, padded=padded)
            with torch.no_grad():
                want = theirs(**inputs, output_hidden_states=True, output_attentions=True)
                got = ours(**inputs, output_hidden_states=True, output_attentions=True)
            pairs = [(got.last_hidden_state, want.last_hidden_state)]
            pairs += zip(_flat(got.hidden_states), want.hidden_states, strict=True)
            pairs += zip(_flat(got.attentions), want.attentions, strict=True)
            for one, other in pairs:
                torch.testing.assert_close(one, other, atol=2e-5, rtol=0)


@pytest.mark.parametrize("flags", _FLAGS, ids=lambda flags: "-".join(name for name in flags if flags[name]) or "none")
def test_what_transformers_cannot_read_is_refused_and_nothing_else(flags):
    for layout, attention_type in itertools.product(_LAYOUTS, ["relative_shift", "factorized"]):
        ours, theirs = _pair(FunnelBaseModel, TheirBaseModel, **flags, **layout, attention_type=attention_type)
        for length in range(1, 10):
            inputs = {"input_ids": torch.randint(0, 40, (1, length))}
            with torch.no_grad():
                try:
                    want = theirs(**inputs).last_hidden_state
                except (RuntimeError, IndexError):
                    with pytest.raises(UsageError, match=r"^expected rows that semantics='hf' can pool \d times, got"):
                        ours(**inputs)
                else:
                    torch.testing.assert_close(ours(**inputs).last_hidden_state, want, atol=2e-5, rtol=0)


def test_gradients_are_those_of_transformers():
    ours, theirs = _pair(FunnelModel, TheirModel, **_LAYOUTS[0])
    inputs = _inputs(13, padded=True)
    for model in (ours, theirs):
        states = model(**inputs).last_hidden_state
        (states * torch.linspace(-1, 1, states.numel()).view_as(states)).sum().backward()
    their_gradients = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        want = their_gradients[name].grad
        torch.testing.assert_close(parameter.grad, want, atol=1e-5 * max(1.0, float(want.abs().max())), rtol=0)


def test_padding_on_the_left_is_read_as_transformers_reads_it():
    ours, theirs = _pair(FunnelModel, TheirModel, **_LAYOUTS[0])
    inputs = _inputs(16, padded=True)
    inputs["attention_mask"][1] = inputs["attention_mask"][1].flip(0)
    with torch.no_grad():
        torch.testing.assert_close(ours(**inputs)[0], theirs(**inputs)[0], atol=2e-5, rtol=0)


def test_text_that_the_minimum_leaves_without_a_key_is_close():
    """Theirs adds -1e6 to all of its scores, which are then sixteenths."""
    ours, theirs = _pair(FunnelBaseModel, TheirBaseModel, **_LAYOUTS[0], separate_cls=False)
    mask = torch.ones(2, 16)
    mask[0, 3:] = 0
    inputs = {"input_ids": torch.randint(0, 40, (2, 16)), "attention_mask": mask}
    with torch.no_grad():
        torch.testing.assert_close(ours(**inputs)[0], theirs(**inputs)[0], atol=0.05, rtol=0)


def test_drawn_as_transformers_draws_without_a_deviation():
    options = {"block_sizes": [2, 1], "initializer_std": None, "initializer_range": 0.3, "pad_token_id": 1}
    sizes = {**_SIZES, "d_model": 64, "d_inner": 200, "vocab_size": 400}
    ours, theirs = FunnelModel(FunnelConfig(**sizes, **options)), TheirModel(TheirConfig(**sizes, **options))
    their_weights = dict(theirs.named_parameters())
    for name, weight in ours.named_parameters():
        other = their_weights[name].detach()
        if weight.numel() < 200:
            assert float(weight.detach().min()) >= min(0.0, float(other.min()))
        else:
            torch.testing.assert_close(weight.detach().std(), other.std(), atol=0, rtol=0.1)
            torch.testing.assert_close(
                weight.detach().mean(), other.mean(), atol=0.03 * float(other.std()) + 0.01, rtol=0
            )
    assert not ours.embeddings.word_embeddings.weight[1].any()
