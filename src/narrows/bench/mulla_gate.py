"""Checks of Mulla that have to hold before a number counts; each returns None, or what is wrong in a few words."""

import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from narrows.bench.encoders import WIDTHS, longt5_config
from narrows.mulla import (
    MullaT5Config,
    MullaT5EncoderModel,
    MullaT5ForConditionalGeneration,
    MullaT5PreTrainedModel,
    Pyramid,
    mulla_attention,
    plan_attention,
)

__all__ = ["MULLA"]

_TOLERANCE = 1e-5
_RADIUS, _RATE = 5, 3
# One text without padding, one padded right, one left, one of a single token.
_LENGTH = 47


def _batch() -> dict[str, Tensor]:
    mask = torch.ones(4, _LENGTH, dtype=torch.long)
    mask[1, 31:] = mask[2, :16] = mask[3, 1:] = 0
    ids = torch.randint(2, WIDTHS["tiny"].vocab_size, mask.shape, generator=torch.Generator().manual_seed(1))
    return {"input_ids": ids * mask, "attention_mask": mask}


def _stir(model: nn.Module) -> None:
    """Norms and position scores that matter: fresh ones are 1 and near 0, and a wrong one would go unseen."""
    torch.manual_seed(2)
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            nn.init.normal_(parameter, mean=0.7, std=0.2)
        elif "relative_attention_bias" in name:
            nn.init.normal_(parameter, std=0.8)


def _ours(**options: Any) -> MullaT5EncoderModel:
    torch.manual_seed(0)
    sizes = WIDTHS["tiny"]._asdict()
    model = MullaT5EncoderModel(MullaT5Config(**sizes, local_radius=_RADIUS, pooling_rate=_RATE, **options)).eval()
    _stir(model)
    return model


def _pair(peer: type[Any], config: Any, ours: type[MullaT5PreTrainedModel], **options: Any) -> tuple[Any, Any]:
    """A random model of transformers, and ours with one level, made of its checkpoint."""
    torch.manual_seed(0)
    theirs = peer(config).eval()
    _stir(theirs)
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        # Cloned, since the weights are mapped from a file that goes away.
        own = ours.from_longt5(folder, variant="fixed", num_levels=1, **options)
        for parameter in own.parameters():
            parameter.data = parameter.data.clone()
    return own, theirs


def _apart(what: str, found: Sequence[Tensor], expected: Sequence[Tensor]) -> str | None:
    """None, or by how much the worst of several tensors differs, each measured by its largest value."""
    differences = [
        (one - other).abs().max() / other.abs().max().clamp_min(1.0) for one, other in zip(found, expected, strict=True)
    ]
    # torch's largest of NaN and a number is NaN, Python's is whichever came first.
    worst = float(torch.stack(differences).max())
    # The other way round NaN would pass.
    return None if worst <= _TOLERANCE else f"{what} differ by {worst:.2g}, at most {_TOLERANCE} is allowed"


def _states(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    """The states of all real tokens, one after the other."""
    with torch.no_grad():
        return model(**inputs).last_hidden_state[inputs["attention_mask"].bool()]


def _values_and_gradients(model: MullaT5EncoderModel) -> list[Tensor]:
    states = model(**_batch()).last_hidden_state
    weights = torch.linspace(-1, 1, states.numel()).view_as(states)
    (states * weights).sum().backward()
    return [states.detach(), *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)]


def tiled_equals_reference() -> str | None:
    """The form that computes tile by tile gives values and gradients of the form with every score in memory."""
    for variant in ("dynamic", "fixed"):
        found, expected = (
            _values_and_gradients(_ours(variant=variant, mulla_backend=name)) for name in ("tiled", "reference")
        )
        wrong = _apart(f"values or gradients ({variant})", found, expected)
        if wrong is not None:
            return wrong
    return None


def chunks_equal_whole() -> str | None:
    """A feed-forward in chunks, and one that is computed again in the backward pass, change nothing."""
    options = {"encoder_feed_forward_chunk": 7, "encoder_feed_forward_recompute": True}
    return _apart("values or gradients", _values_and_gradients(_ours(**options)), _values_and_gradients(_ours()))


def one_level_equals_longt5_local() -> str | None:
    """With one level the encoder is transformers' LongT5 with local attention."""
    from transformers import LongT5EncoderModel

    config = longt5_config(WIDTHS["tiny"], layers=2, attention="local")
    config.local_radius = _RADIUS
    ours, theirs = _pair(LongT5EncoderModel, config, MullaT5EncoderModel)
    return _apart("states", [_states(ours, _batch())], [_states(theirs, _batch())])


def wide_window_equals_t5() -> str | None:
    """With a window as wide as the text the encoder is transformers' T5."""
    from transformers import T5Config, T5EncoderModel

    config = T5Config(**WIDTHS["tiny"]._asdict(), num_layers=2)
    ours, theirs = _pair(T5EncoderModel, config, MullaT5EncoderModel, local_radius=_LENGTH)
    return _apart("states", [_states(ours, _batch())], [_states(theirs, _batch())])


def padding_is_a_no_op() -> str | None:
    """A text beside others, padded on either side, has the states that it has alone."""
    model, inputs = _ours(), _batch()
    alone = []
    for ids, mask in zip(inputs["input_ids"], inputs["attention_mask"].bool(), strict=True):
        text = ids[mask][None]
        alone.append(_states(model, {"input_ids": text, "attention_mask": torch.ones_like(text)}))
    return _apart("states", [_states(model, inputs)], [torch.cat(alone)])


def dynamic_sees_the_whole_text() -> str | None:
    """Every query gives every token of its text a weight above 0, and the weights sum to 1."""
    for length in (1, _RADIUS, 2 * _RADIUS + 2, 200):
        pyramid = Pyramid(radius=_RADIUS, pooling_rate=_RATE)
        plan = plan_attention(torch.zeros(1, 1, 2 * _RADIUS + 1), torch.tensor([length]), pyramid, length=length)
        nothing = torch.zeros(1, 1, length, length)
        # The value of a token is its own axis, so that the result is the weight of each token.
        weights = mulla_attention(nothing, nothing, torch.eye(length)[None, None], plan)[0, 0]
        unseen = int((weights <= 0).sum())
        if unseen:
            return f"{unseen} of {weights.numel()} pairs of a query and a token have no weight at {length} tokens"
        wrong = _apart("sums of weights", [weights.sum(-1)], [torch.ones(length)])
        if wrong is not None:
            return wrong
    return None


def generation_equals_longt5_local() -> str | None:
    """With one level the tokens that `generate` writes are those of transformers' LongT5 with local attention."""
    from transformers import LongT5ForConditionalGeneration

    config = longt5_config(WIDTHS["tiny"], layers=2, attention="local")
    config.local_radius = _RADIUS
    ours, theirs = _pair(LongT5ForConditionalGeneration, config, MullaT5ForConditionalGeneration)
    head = torch.randn(config.vocab_size, config.d_model, generator=torch.Generator().manual_seed(3))
    written = []
    for model in (ours, theirs):
        # An output layer of its own: with the embeddings' a random model repeats one token.
        model.lm_head.weight = nn.Parameter(head.clone())
        written.append(model.generate(**_batch(), max_new_tokens=12, min_new_tokens=12, do_sample=False))
    differing = int((written[0] != written[1]).sum()) if written[0].shape == written[1].shape else written[1].numel()
    return None if differing == 0 else f"{differing} of {written[1].numel()} tokens differ"


MULLA: dict[str, Callable[[], str | None]] = {
    "tiled equals reference": tiled_equals_reference,
    "chunks equal whole": chunks_equal_whole,
    "one level equals LongT5-local": one_level_equals_longt5_local,
    "wide window equals T5": wide_window_equals_t5,
    "padding is a no-op": padding_is_a_no_op,
    "dynamic sees the whole text": dynamic_sees_the_whole_text,
    "generation equals LongT5-local": generation_equals_longt5_local,
}
