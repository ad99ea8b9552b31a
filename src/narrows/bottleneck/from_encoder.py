"""BERTs into BERTs with bottleneck attention in chosen layers: fitted there, copied everywhere else."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor, nn
from transformers import AutoConfig, AutoTokenizer, BertModel, BertPreTrainedModel, PreTrainedConfig

from narrows._plural import count
from narrows.bottleneck.bert import (
    BottleneckBertConfig,
    BottleneckBertForMaskedLM,
    BottleneckBertForQuestionAnswering,
    BottleneckBertForSequenceClassification,
    BottleneckBertForTokenClassification,
    BottleneckBertModel,
    narrow_layer,
)
from narrows.bottleneck.fit import FitError, Metric, Narrow, Projections, fit_attention, metric_of, possible_heads
from narrows.bottleneck.register import register
from narrows.errors import ConversionError, NarrowsError, UsageError
from narrows.hf.checkpoints import checkpoint_folder, require_finite, require_tokenizer
from narrows.hf.conversion import ConversionReport, Drop, New, Rename, apply_rules, load_tensors
from narrows.hf.sentence_layout import read_layout

__all__ = ["CALIBRATION_TEXTS", "TASKS", "FitReport", "convert_checkpoint"]

TASKS: dict[str, type[BertPreTrainedModel]] = {
    "encoder": BottleneckBertModel,
    "sequence-classification": BottleneckBertForSequenceClassification,
    "token-classification": BottleneckBertForTokenClassification,
    "question-answering": BottleneckBertForQuestionAnswering,
    "masked-lm": BottleneckBertForMaskedLM,
}
"""Name of each head → its class. `encoder` is the model alone."""

CALIBRATION_TEXTS = 256
"""Texts that a layer is fitted by at most, evenly spread over those that are given."""

_CALIBRATION_TOKENS = 128
_HEADS = {
    "sequence-classification": ("classifier",),
    "token-classification": ("classifier",),
    "question-answering": ("qa_outputs",),
    "masked-lm": ("cls.predictions",),
}
_POOLED = ("encoder", "sequence-classification")
_FITTED = ("self.query.weight", "self.query.bias", "self.key.weight", "self.value.weight", "self.value.bias")
_FITTED += ("output.dense.weight", "output.dense.bias")


@dataclass
class FitReport(ConversionReport):
    """A conversion's report, with what the fit of each narrow layer loses.

    Attributes:
        fits: number of the layer, from 1 → its relative errors.
        heads: of the narrow layers.
        texts: that they were fitted by.
    """

    fits: dict[int, FitError] = field(default_factory=dict)
    heads: int = 0
    texts: int = 0

    def as_dict(self) -> dict[str, Any]:
        fits = {str(layer): error._asdict() for layer, error in self.fits.items()}
        return {**super().as_dict(), "fits": fits, "bottleneck_heads": self.heads, "calibration_texts": self.texts}

    def summary(self) -> str:
        """As of every conversion, and a line for each fit."""
        by = f"by {count(self.texts, 'text')}" if self.texts else "without texts"
        lines = [super().summary(), f"  fitted {by}, {count(self.heads, 'head')}; relative errors:"]
        for layer, error in self.fits.items():
            output = "" if error.output is None else f", output {error.output:.3f}"
            lines.append(f"  layer {layer}: scores {error.scores:.3f}, values {error.values:.3f}{output}")
        return "\n".join(lines)


class _Fit(NamedTuple):
    narrow: Narrow
    error: FitError


def convert_checkpoint(
    checkpoint: str | Path,
    *,
    layers: Sequence[int],
    bottleneck_ratio: float = 2,
    bottleneck_heads: int | None = None,
    task: str | None = None,
    texts: Iterable[str] = (),
) -> tuple[BertPreTrainedModel, FitReport]:
    """A BERT whose chosen layers have bottleneck attention, fitted to their own, and the report.

    Args:
        checkpoint: a folder, one of sentence-transformers too, or a hub id, of a BERT of transformers.
        layers: numbers of layers, from 1.
        bottleneck_ratio: width of the model / width of the attention. At 1 the model is the source's.
        bottleneck_heads: of the narrow layers, no more and no wider than the source's; None: with texts, as many as
            give the least squared error of the outputs, over all the layers; without, the most that there can be.
        task: one of `TASKS`; None: what the checkpoint was saved as. Its head is kept if it is of that task.
        texts: for calibration, of which `CALIBRATION_TEXTS` are read, each up to 128 tokens. Without them every
            direction of a layer's input counts alike, which is a far worse fit.

    Raises:
        ConversionError: the checkpoint is of another kind, or its tensors do not fit.
        UsageError: an unknown task, layers that are not there, a ratio or a number of heads that does not fit, or
            texts without a token.

    Example:
        `model, report = convert_checkpoint("sentence-transformers/all-MiniLM-L6-v2", layers=[2, 3], texts=texts)`
    """
    if task is not None and task not in TASKS:
        raise UsageError(f"`task` must be one of {', '.join(TASKS)}, got {task!r}; choose one of them")
    if not layers:
        raise UsageError("expected at least one layer to replace, got none; number them from 1, such as 4,5,6")
    folder = read_layout(checkpoint_folder(checkpoint)).folder
    theirs = _read_config(folder)
    fields = {name: value for name, value in theirs.to_dict().items() if name not in ("model_type", "architectures")}
    # Refused before any weight is read.
    wanted = BottleneckBertConfig.from_dict(
        {**fields, "bottleneck_layers": sorted(layers), "bottleneck_ratio": bottleneck_ratio, "bottleneck_heads": 1}
    )
    candidates = _candidates(wanted, bottleneck_heads)
    tensors = load_tensors(folder)
    require_finite(tensors, checkpoint)
    trained = _trained_as(theirs)
    task = trained if task is None else task
    model, copied = _filled(fields, tensors, task=task, keeps_head=task == trained)
    chosen = _spread(list(texts))
    states = _states(model, folder, chosen, sorted(layers))
    heads, fits = _fits(model, states, candidates, inner=wanted.inner_size)
    config = cast(BottleneckBertConfig, model.config)
    config.bottleneck_layers, config.bottleneck_ratio = sorted(layers), bottleneck_ratio
    config.bottleneck_heads = heads
    report = FitReport(copied.used, copied.dropped, copied.new, heads=heads, texts=len(chosen))
    for number, fit in fits.items():
        _put(model, config, number, fit.narrow)
        _tell(report, model, number)
        report.fits[number] = fit.error
    floating = [tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()]
    cast(Any, model).to(max(floating, key=floating.count))
    return model.eval(), report


def _candidates(config: BottleneckBertConfig, heads: int | None) -> list[int]:
    dim = config.hidden_size // config.num_attention_heads
    empty = torch.empty(config.num_attention_heads * dim, 0)
    shapes = Projections(*(empty,) * 7, heads=config.num_attention_heads)
    possible = possible_heads(shapes, config.inner_size)
    if heads is None:
        return possible
    if heads not in possible:
        raise UsageError(
            f"`bottleneck_heads` must be one of {', '.join(map(str, possible))} for an inner width of "
            f"{config.inner_size}, so that heads are neither more nor wider than the checkpoint's "
            f"{config.num_attention_heads} of {dim}, got {heads}; change it"
        )
    return [heads]


def _filled(
    fields: Mapping[str, Any], tensors: Mapping[str, Tensor], *, task: str, keeps_head: bool
) -> tuple[BertPreTrainedModel, ConversionReport]:
    """The checkpoint as it is, in a model without narrow layers yet, in fp32."""
    config = BottleneckBertConfig.from_dict({**fields, "bottleneck_layers": [], "dtype": "float32"})
    model: Any = TASKS[task](config)
    tied = set(model.all_tied_weights_keys)
    target = {name: tensor for name, tensor in model.state_dict().items() if name not in tied}
    rules: list[Rename | Drop | New] = [
        *_rules(tensors, task=task, keeps_head=keeps_head, tied=tied),
        Drop(r"(bert\.)?embeddings\.position_ids", "a table of 0, 1, 2, …"),
        Drop(r"(bert\.)?pooler\..*", "this head does not pool"),
        Drop(r"cls\..*", "head of pretraining"),
        Drop(r"(classifier|qa_outputs)\..*", "head of another task"),
        New(r"(bert\.)?pooler\..*", "pooler, random: to be trained"),
        New(r"(classifier|qa_outputs|cls)\..*", "head, random: to be trained"),
    ]
    filled, report = apply_rules(tensors, target, rules)
    model.load_state_dict({name: tensor.float() for name, tensor in filled.items()}, strict=False)
    model.tie_weights()
    return model.eval(), report


def _rules(tensors: Mapping[str, Tensor], *, task: str, keeps_head: bool, tied: set[str]) -> list[Rename | Drop | New]:
    """A rule for each tensor that has its place under its own name, with or without `bert.`."""
    inside = "" if task == "encoder" else "bert."
    parts = ("embeddings.", "encoder.", "pooler.") if task in _POOLED else ("embeddings.", "encoder.")
    rules: list[Rename | Drop | New] = []
    for name in tensors:
        # As checkpoints from TensorFlow days have them.
        ours = name.replace(".LayerNorm.gamma", ".LayerNorm.weight").replace(".LayerNorm.beta", ".LayerNorm.bias")
        bare = ours.removeprefix("bert.")
        if bare.startswith(parts) and not bare.endswith("position_ids"):
            rules.append(Rename(name, inside + bare))
        elif ours in tied:
            rules.append(Drop(name.replace(".", r"\."), "a copy of a tensor that it is tied to"))
        elif keeps_head and task in _HEADS and ours.startswith(_HEADS[task]):
            rules.append(Rename(name, ours))
    return rules


def _spread(texts: list[str]) -> list[str]:
    taken = min(len(texts), CALIBRATION_TEXTS)
    return [texts[number * len(texts) // taken] for number in range(taken)]


@torch.no_grad()
def _states(
    model: BertPreTrainedModel, folder: Path, texts: Sequence[str], layers: Sequence[int]
) -> dict[int, list[Tensor]]:
    """What each of the layers reads for each text, in float64."""
    found: dict[int, list[Tensor]] = {layer: [] for layer in layers}
    if not texts:
        return found
    require_tokenizer(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    longest = min(_CALIBRATION_TOKENS, cast(Any, model.config).max_position_embeddings)
    bert: Any = model.base_model
    for text in texts:
        ids = tokenizer(text, truncation=True, max_length=longest, return_tensors="pt")["input_ids"]
        if not ids.shape[1]:
            raise UsageError(
                f"expected calibration texts with at least one token, got {text[:40]!r}, which has none; leave it out"
            )
        hidden = bert(ids, output_hidden_states=True).hidden_states
        for layer in layers:
            found[layer].append(hidden[layer - 1][0].double())
    return found


def _fits(
    model: BertPreTrainedModel, states: Mapping[int, Sequence[Tensor]], candidates: Sequence[int], *, inner: int
) -> tuple[int, dict[int, _Fit]]:
    """The number of heads with the least squared error over all layers, and the fits by it."""
    sources = {number: _projections(model, number) for number in states}
    metrics = {number: metric_of(sources[number], states[number]) for number in states}
    if not any(states.values()):
        candidates = candidates[:1]
    best: tuple[float, int, dict[int, _Fit]] | None = None
    for heads in candidates:
        fits = {number: _fit(sources[number], metrics[number], inner, heads) for number in states}
        total = sum((fit.error.output or 0.0) ** 2 for fit in fits.values())
        if best is None or total < best[0]:
            best = total, heads, fits
    assert best is not None
    return best[1], best[2]


def _fit(source: Projections, metric: Metric, inner: int, heads: int) -> _Fit:
    return _Fit(*fit_attention(source, metric, inner=inner, heads=heads))


def _attention(model: BertPreTrainedModel, number: int) -> Any:
    return cast(Any, model.base_model).encoder.layer[number - 1].attention


def _projections(model: BertPreTrainedModel, number: int) -> Projections:
    attention = _attention(model, number)
    inner, output = attention.self, attention.output.dense
    tensors = (inner.query.weight, inner.query.bias, inner.key.weight, inner.value.weight, inner.value.bias)
    tensors = [tensor.detach().double() for tensor in (*tensors, output.weight, output.bias)]
    return Projections(*tensors, heads=inner.num_attention_heads)


@torch.no_grad()
def _put(model: BertPreTrainedModel, config: BottleneckBertConfig, number: int, narrow: Narrow) -> None:
    """A fitted layer in the place of the model's own."""
    narrow_layer(cast(Any, model.base_model).encoder.layer[number - 1], config, number - 1)
    attention, inner = _attention(model, number), narrow.inner
    nn.init.zeros_(attention.self.key.bias)
    for parameter, tensor in (
        (attention.self.down.weight, narrow.down),
        (attention.self.down.bias, narrow.down_bias),
        (attention.self.query.weight, inner.query),
        (attention.self.query.bias, inner.query_bias),
        (attention.self.key.weight, inner.key),
        (attention.self.value.weight, inner.value),
        (attention.self.value.bias, inner.value_bias),
        (attention.output.dense.weight, inner.output),
        (attention.output.dense.bias, inner.output_bias),
    ):
        parameter.copy_(tensor)


def _tell(report: FitReport, model: BertPreTrainedModel, number: int) -> None:
    """Say in the report that a layer's attention was not copied."""
    inside = "" if isinstance(model, BertModel) else "bert."
    prefix = f"{inside}encoder.layer.{number - 1}.attention."
    sources = {target: name for name, target in report.used.items()}
    for part in _FITTED:
        report.used[sources[prefix + part]] = f"{prefix}{part} (fitted)"
    bias = f"{prefix}self.key.bias"
    del report.used[sources[bias]]
    report.dropped[sources[bias]] = "adds the same to all scores of a query, which softmax takes away"
    report.new[bias] = "zeros, since it changes nothing"
    report.new[f"{prefix}self.down.weight"] = "fitted: the directions of its input that the layer needs most"
    report.new[f"{prefix}self.down.bias"] = "fitted: takes the mean of the layer's inputs away"


def _trained_as(source: PreTrainedConfig) -> str:
    """What a BERT was trained for, by the name of its class."""
    named = (source.architectures or [""])[0]
    ends = {kind.__name__.removeprefix("BottleneckBert"): task for task, kind in TASKS.items() if task != "encoder"}
    return next((task for end, task in ends.items() if named.endswith(end)), "encoder")


def _read_config(folder: Path) -> PreTrainedConfig:
    register()
    try:
        config = AutoConfig.from_pretrained(folder)
    except NarrowsError:
        raise
    except (OSError, ValueError, StrictDataclassError) as error:
        # The sentence is in the last line of what strict fields say, in the first of the others.
        line = -1 if isinstance(error, StrictDataclassError) else 0
        raise ConversionError(
            f"expected a config.json of a known model in {folder}, got none that can be read "
            f"({str(error).strip().splitlines()[line].strip()}); pass a checkpoint's folder"
        ) from error
    if config.model_type != "bert":
        raise ConversionError(
            f"expected a BERT of transformers, got model type {config.model_type!r}; choose another checkpoint"
        )
    return config
