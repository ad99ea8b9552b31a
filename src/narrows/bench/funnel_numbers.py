"""Rows of Funnel that are neither a time nor a peer's memory: exactness, precision, first loss, counts, long texts."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from narrows.bench.funnel_cost import paper_flops
from narrows.bench.funnel_models import FunnelSide, their_config
from narrows.bench.pairs import ALLOCATOR
from narrows.bench.probes import in_own_process, peak_above, resident_bytes
from narrows.bench.rows import Context, Measurement
from narrows.funnel import (
    FunnelBaseModel,
    FunnelForMaskedLM,
    FunnelModel,
    Geometry,
    RelativeTerms,
    attend_relative,
    preset,
)
from narrows.funnel.attention import relative_table

__all__ = ["alone_rows", "cost_rows", "loss_rows", "precision_rows", "resident_rows", "whole_peak"]

_VOCABULARY = 1000


class _Published(NamedTuple):
    """Of a layout: operations beside BERT-base's, and parameters in millions, with and without the decoder."""

    flops: float
    full: float
    base: float


# Operations as in the paper's tables, parameters as in the released checkpoints.
_PUBLISHED = {
    "B4-4-4H768": _Published(0.58, 131.0, 115.6),
    "B6-3x2-3x2H768": _Published(0.88, 131.0, 115.6),
    "B6-6-6H768": _Published(0.88, 177.1, 161.7),
    "B8-8-8H1024": _Published(2.07, 386.1, 358.8),
    "B10-10-10H1024": _Published(2.60, 468.0, 440.7),
}


def alone_rows(context: Context, *, layout: str, longest: int) -> dict[str, Measurement]:
    """Texts of every length, each alone and all in one batch, padded on either side: the farthest, in millionths."""
    torch.manual_seed(0)
    config = preset(layout, vocab_size=_VOCABULARY)
    texts = [torch.randint(2, _VOCABULARY, (length,)) for length in range(1, longest + 1)]
    worst = {}
    for kind in (FunnelBaseModel, FunnelModel):
        model = kind(config).eval()
        alone = torch.cat([_real(model, [text]) for text in texts])
        for side in ("right", "left"):
            together = _real(model, texts, side=side)
            worst[f"{kind.__name__}, {side}"] = float((together - alone).abs().max())
    # torch's largest of NaN and a number is NaN, Python's is whichever came first.
    farthest = float(torch.tensor(list(worst.values())).max())
    return {"alone-batched": Measurement(value=1e6 * farthest, detail=worst)}


def _real(model: Any, texts: list[Tensor], *, side: str = "right") -> Tensor:
    """The states of all real tokens or slots, text after text."""
    ids = torch.nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_side=side)
    lengths = torch.tensor([len(text) for text in texts])[:, None]
    places = torch.arange(ids.shape[1])
    mask = places < lengths if side == "right" else places >= ids.shape[1] - lengths
    with torch.inference_mode():
        outputs = model(input_ids=ids, attention_mask=mask.long())
    states = outputs.last_hidden_state
    return states[mask if states.shape[1] == ids.shape[1] else outputs.pooled_attention_mask]


def precision_rows(context: Context, *, layout: str, lengths: tuple[int, ...]) -> dict[str, Measurement]:
    """How far the first layer's attention weights in bfloat16 are from those in fp32, summed over the keys."""
    from transformers import FunnelBaseModel as TheirModel

    # With weights as transformers draws them, whose scores are large enough for positions to matter.
    torch.manual_seed(0)
    config = preset(layout, vocab_size=_VOCABULARY, initializer_std=None, num_decoder_layers=0)
    model: Any = FunnelBaseModel(config).eval()
    theirs: Any = TheirModel(their_config(config)).eval()
    theirs.load_state_dict(model.state_dict())
    ids = torch.randint(2, _VOCABULARY, (1, max(lengths)))
    with torch.inference_mode():
        exact = [_weights(model, ids[:, :length], backend="reference") for length in lengths]
        model, theirs = model.to(torch.bfloat16), theirs.to(torch.bfloat16)
        found = [_apart(_weights(model, ids[:, :n]), want) for n, want in zip(lengths, exact, strict=True)]
        their_errors = [
            _apart(theirs(ids[:, :n], output_attentions=True).attentions[0], want)
            for n, want in zip(lengths, exact, strict=True)
        ]
    rows = {f"bf16-error-{n}": Measurement(value=100 * error) for n, error in zip(lengths, found, strict=True)}
    detail = {"transformers": {str(n): 100 * error for n, error in zip(lengths, their_errors, strict=True)}}
    return {**rows, "bf16-error-growth": Measurement(value=max(found) / min(found), detail=detail)}


def _apart(weights: Tensor, expected: Tensor) -> float:
    return float((weights.float() - expected).abs().sum(-1).mean())


def _weights(model: Any, ids: Tensor, *, backend: str = "auto") -> Tensor:
    """Attention weights of the first layer, of a backend that never has them at once: each key its own axis."""
    attention, states = model.encoder.blocks[0][0].attention, model.embeddings(ids, None, None)
    length, heads = ids.shape[1], model.config.n_head
    query, key = (
        layer(states).unflatten(-1, (heads, -1)).transpose(1, 2) for layer in (attention.q_head, attention.k_head)
    )
    names = ("r_w_bias", "r_r_bias", "r_s_bias", "r_kernel", "seg_embed")
    dim = query.shape[-1]
    # As wide as whole heads are.
    geometry, axes = Geometry(length, length), torch.eye(length, -(-length // dim) * dim, dtype=query.dtype)
    found = [
        attend_relative(
            query,
            key,
            some.expand(1, heads, -1, -1),
            terms=RelativeTerms(*(getattr(attention, name) for name in names)),
            geometry=geometry,
            tables=relative_table(geometry, width=model.config.d_model),
            backend=backend,
        )
        for some in axes.split(dim, dim=1)
    ]
    return torch.cat(found, -1)[..., :length]


def loss_rows(context: Context, *, layout: str, length: int) -> dict[str, Measurement]:
    """The loss of masked language modelling before any training, beside that of a uniform guess."""
    torch.manual_seed(0)
    config = preset(layout)
    model = FunnelForMaskedLM(config).eval()
    ids = torch.randint(2, config.vocab_size, (2, length))
    with torch.inference_mode():
        loss = float(model(input_ids=ids, labels=torch.randint(2, config.vocab_size, ids.shape)).loss)
    guess = math.log(config.vocab_size)
    detail = {"loss": loss, "uniform": guess}
    return {"mlm-first-loss": Measurement(value=100 * abs(loss / guess - 1), detail=detail)}


def cost_rows(context: Context) -> dict[str, Measurement]:
    """The farthest of our counts from the published ones, in percent."""
    plain = paper_flops(preset("L12H768"))
    flops, parameters = {}, {}
    for name, published in _PUBLISHED.items():
        config = preset(name)
        flops[name] = _percent(paper_flops(config) / plain, published.flops)
        for kind, expected in ((FunnelModel, published.full), (FunnelBaseModel, published.base)):
            with torch.device("meta"):
                count = sum(parameter.numel() for parameter in kind(config).parameters())
            parameters[f"{name} {kind.__name__}"] = _percent(count / 1e6, expected)
    return {
        "cost-flops": Measurement(value=max(flops.values()), detail={"percent": flops}),
        "cost-parameters": Measurement(value=max(parameters.values()), detail={"percent": parameters}),
    }


def _percent(found: float, expected: float) -> float:
    return 100 * abs(found / expected - 1)


def resident_rows(context: Context, *, row: str, side: FunnelSide) -> dict[str, Measurement]:
    """All that a process holds at most while a text is read: Python, libraries, weights and states."""
    peak, before = in_own_process(f"{__name__}:whole_peak", environment=ALLOCATOR, **side._asdict())
    return {row: Measurement(value=peak / 1e9, detail={"gigabytes": {"loaded": before / 1e9, "peak": peak / 1e9}})}


def whole_peak(**fields: Any) -> tuple[int, int]:
    """Bytes that this process holds at most, and with the model loaded; `fields` are a `FunnelSide`'s."""
    side = FunnelSide(**fields)
    model = side.build()
    side.warm_up.task(model)()
    work, before = side.task(model), resident_bytes()
    return before + peak_above(work), before
