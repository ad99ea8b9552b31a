"""From logits to answers: the best span of a passage, of an example's windows, and of a data set."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from narrows.data import PairLayout, QAExample, SpanFeature, equal_length_batches, token_budget_batches
from narrows.deformer.spans import best_spans
from narrows.funnel.heads import ConditionalSpanOutput
from narrows.hf.encoders import accepted_inputs, changed_by_padding, least_tokens

__all__ = ["SpanPrediction", "answer_mask", "predict_spans", "span_inputs"]


@dataclass(frozen=True, slots=True)
class SpanPrediction:
    """The best span of an example.

    Attributes:
        text: characters `start` to `end` of the context; "" when there is no token.
        start: first character.
        end: one past the last.
        score: its start logit plus its end logit; of Funnel's conditional head the sum of their log probabilities,
            by which the best of all windows is found.
        margin: score minus the logits of [CLS] in the same window, whose largest in all windows decides; of the
            conditional head the largest logit that there is an answer.
    """

    text: str
    start: int
    end: int
    score: float
    margin: float


def span_inputs(model: torch.nn.Module, layout: PairLayout) -> frozenset[str]:
    """Names of the inputs that a span model takes: without segments where its tokenizer gives none."""
    return accepted_inputs(model) - (frozenset() if layout.segmented else {"token_type_ids"})


def predict_spans(
    model: torch.nn.Module,
    examples: Sequence[QAExample],
    features: Sequence[SpanFeature],
    *,
    layout: PairLayout,
    batch_tokens: int = 8192,
    max_answer_tokens: int = 30,
    on_batch: Callable[[int], None] | None = None,
) -> list[SpanPrediction]:
    """Each example's best span, read jointly in rows of question and passage.

    Args:
        model: a span model, in eval mode: `start_logits` and `end_logits` over the row, or Funnel's conditional head.
        examples: what was encoded.
        features: their windows, as `SpanEncoder` made them.
        layout: of the rows.
        batch_tokens: padded tokens of a batch.
        max_answer_tokens: longest span.
        on_batch: told how many windows were read, for a progress bar.
    """
    best: dict[int, SpanPrediction] = {}
    lengths = [len(f.question_ids) + len(f.passage_ids) + layout.special_tokens for f in features]
    device, accepted = next(model.parameters()).device, span_inputs(model, layout)
    cut = equal_length_batches if changed_by_padding(model.config) else token_budget_batches
    for indices in cut(lengths, batch_tokens=batch_tokens):
        chosen = [features[index] for index in indices]
        made = _collate(chosen, layout, least=least_tokens(model.config))
        batch = {name: tensor.to(device) for name, tensor in made.items() if name in accepted}
        with torch.inference_mode():
            outputs = model(**batch)
        conditional = isinstance(outputs, ConditionalSpanOutput)
        decode, better = (_decode_conditional, _likelier) if conditional else (_decode, _surer)
        places = torch.tensor([layout.passage_start(f.question_ids) for f in chosen])
        found = decode(outputs, chosen, examples, first=places, max_answer_tokens=max_answer_tokens)
        for feature, prediction in zip(chosen, found, strict=True):
            rival = best.get(feature.example)
            best[feature.example] = prediction if rival is None else better(rival, prediction)
        if on_batch is not None:
            on_batch(len(indices))
    return [best[index] for index in range(len(examples))]


def _surer(one: SpanPrediction, other: SpanPrediction) -> SpanPrediction:
    return other if other.margin > one.margin else one


def _likelier(one: SpanPrediction, other: SpanPrediction) -> SpanPrediction:
    """As in the paper's code: the span and whether there is one come from the best windows of each."""
    return replace(other if other.score > one.score else one, margin=max(one.margin, other.margin))


def _collate(features: Sequence[SpanFeature], layout: PairLayout, *, least: int) -> Mapping[str, Tensor]:
    rows = [layout.join(f.question_ids, f.passage_ids) for f in features]
    longest = max(least, *(len(ids) for ids, _ in rows))
    pad, segment = layout.padding
    places = [(layout.passage_start(f.question_ids), len(f.passage_ids)) for f in features]
    return {
        "input_ids": torch.tensor([ids + [pad] * (longest - len(ids)) for ids, _ in rows]),
        "attention_mask": torch.tensor([[1] * len(ids) + [0] * (longest - len(ids)) for ids, _ in rows]),
        "token_type_ids": torch.tensor([segments + [segment] * (longest - len(segments)) for _, segments in rows]),
        "p_mask": answer_mask([range(first, first + tokens) for first, tokens in places], longest),
    }


def answer_mask(passages: Sequence[range], length: int) -> Tensor:
    """XLNet's `p_mask`, `[batch, length]`: 0 where an answer may begin and end, in the passage and at [CLS]; else 1."""
    place = torch.arange(length)
    first, last = (torch.tensor(ends)[:, None] for ends in ([p.start for p in passages], [p.stop for p in passages]))
    return (((place < first) | (place >= last)) & (place > 0)).long()


def _decode(
    outputs: Any,
    features: Sequence[SpanFeature],
    examples: Sequence[QAExample],
    *,
    first: Tensor,
    max_answer_tokens: int,
) -> list[SpanPrediction]:
    start, end = outputs.start_logits.float().cpu(), outputs.end_logits.float().cpu()
    length = start.shape[1]
    place = torch.arange(length)
    last = first + torch.tensor([len(f.passage_ids) for f in features])
    outside = (place < first[:, None]) | (place >= last[:, None])
    null = start[:, 0] + end[:, 0]
    scores, begins, ends = best_spans(
        start.masked_fill(outside, float("-inf")),
        end.masked_fill(outside, float("-inf")),
        max_tokens=max_answer_tokens,
    )
    spans = zip((begins - first).tolist(), (ends - first).tolist(), scores.tolist(), null.tolist(), strict=True)
    return [
        _prediction(feature, examples, begin, stop, score=score, margin=score - without)
        for feature, (begin, stop, score, without) in zip(features, spans, strict=True)
    ]


def _decode_conditional(
    outputs: ConditionalSpanOutput,
    features: Sequence[SpanFeature],
    examples: Sequence[QAExample],
    *,
    first: Tensor,
    max_answer_tokens: int,
) -> list[SpanPrediction]:
    """The likeliest of the head's starts and their ends that make a span of the passage; there may be none."""
    wanted = ("start_top_log_probs", "start_top_index", "end_top_log_probs", "end_top_index", "answer_logits")
    start_log, start, end_log, end, unanswerable = (getattr(outputs, name).cpu() for name in wanted)
    start = start[:, :, None].expand_as(end)
    tokens = torch.tensor([len(f.passage_ids) for f in features])[:, None, None]
    begins, ends = start - first[:, None, None], end - first[:, None, None]
    possible = (begins >= 0) & (begins <= ends) & (ends < tokens) & (ends - begins < max_answer_tokens)
    scores = (start_log[:, :, None] + end_log).float().masked_fill(~possible, float("-inf")).flatten(1)
    best = scores.argmax(1, keepdim=True)
    chosen = (each.flatten(1).gather(1, best)[:, 0].tolist() for each in (begins, ends, scores))
    spans = zip(*chosen, unanswerable.float().tolist(), strict=True)
    return [
        _prediction(feature, examples, begin, stop, score=score, margin=-no_answer)
        for feature, (begin, stop, score, no_answer) in zip(features, spans, strict=True)
    ]


def _prediction(
    feature: SpanFeature, examples: Sequence[QAExample], begin: int, end: int, *, score: float, margin: float
) -> SpanPrediction:
    """Of a span in tokens of the window; one of the score -inf is none."""
    if not feature.passage_ids:
        return SpanPrediction("", 0, 0, -math.inf, -math.inf)
    if score == -math.inf:
        return SpanPrediction("", 0, 0, score, margin)
    left, right = feature.passage_offsets[begin][0], feature.passage_offsets[end][1]
    return SpanPrediction(examples[feature.example].context[left:right], left, right, score, margin)
