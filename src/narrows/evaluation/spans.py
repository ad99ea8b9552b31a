"""From logits to answers: the best span of a passage, of an example's windows, and of a data set."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from narrows.data import QAExample, SpanFeature, join_pair, passage_start, token_budget_batches
from narrows.deformer.spans import best_spans

__all__ = ["SpanPrediction", "predict_spans"]


@dataclass(frozen=True, slots=True)
class SpanPrediction:
    """The best span of an example.

    Attributes:
        text: characters `start` to `end` of the context; "" when there is no token.
        start: first character.
        end: one past the last.
        score: its start logit plus its end logit.
        margin: score minus the logits of [CLS] in the same window; the largest margin of all windows decides.
    """

    text: str
    start: int
    end: int
    score: float
    margin: float


def predict_spans(
    model: torch.nn.Module,
    examples: Sequence[QAExample],
    features: Sequence[SpanFeature],
    *,
    cls: int,
    sep: int,
    pad: int,
    batch_tokens: int = 8192,
    max_answer_tokens: int = 30,
    on_batch: Callable[[int], None] | None = None,
) -> list[SpanPrediction]:
    """Each example's best span, read jointly in rows `[CLS] question [SEP] passage [SEP]`.

    Args:
        model: a span model (`start_logits`, `end_logits` over the row), in eval mode.
        examples: what was encoded.
        features: their windows, as `SpanEncoder` made them.
        cls, sep, pad: special token ids.
        batch_tokens: padded tokens of a batch.
        max_answer_tokens: longest span.
        on_batch: told how many windows were read, for a progress bar.
    """
    best: dict[int, SpanPrediction] = {}
    lengths = [len(f.question_ids) + len(f.passage_ids) + 3 for f in features]
    device = next(model.parameters()).device
    for indices in token_budget_batches(lengths, batch_tokens=batch_tokens):
        chosen = [features[index] for index in indices]
        batch = {name: t.to(device) for name, t in _collate(chosen, cls=cls, sep=sep, pad=pad).items()}
        with torch.inference_mode():
            outputs = model(**batch)
        for feature, prediction in zip(
            chosen, _decode(outputs, chosen, examples, max_answer_tokens=max_answer_tokens), strict=True
        ):
            rival = best.get(feature.example)
            if rival is None or prediction.margin > rival.margin:
                best[feature.example] = prediction
        if on_batch is not None:
            on_batch(len(indices))
    return [best[index] for index in range(len(examples))]


def _collate(features: Sequence[SpanFeature], *, cls: int, sep: int, pad: int) -> Mapping[str, Tensor]:
    rows = [join_pair(f.question_ids, f.passage_ids, cls=cls, sep=sep) for f in features]
    longest = max(len(ids) for ids, _ in rows)
    return {
        "input_ids": torch.tensor([ids + [pad] * (longest - len(ids)) for ids, _ in rows]),
        "attention_mask": torch.tensor([[1] * len(ids) + [0] * (longest - len(ids)) for ids, _ in rows]),
        "token_type_ids": torch.tensor([segments + [1] * (longest - len(segments)) for _, segments in rows]),
    }


def _decode(
    outputs, features: Sequence[SpanFeature], examples: Sequence[QAExample], *, max_answer_tokens: int
) -> list[SpanPrediction]:
    start, end = outputs.start_logits.float().cpu(), outputs.end_logits.float().cpu()
    length = start.shape[1]
    place = torch.arange(length)
    first = torch.tensor([passage_start(f.question_ids) for f in features])
    last = first + torch.tensor([len(f.passage_ids) for f in features])
    outside = (place < first[:, None]) | (place >= last[:, None])
    null = start[:, 0] + end[:, 0]
    scores, begins, ends = best_spans(
        start.masked_fill(outside, float("-inf")),
        end.masked_fill(outside, float("-inf")),
        max_tokens=max_answer_tokens,
    )
    predictions = []
    for row, feature in enumerate(features):
        if not feature.passage_ids:
            predictions.append(SpanPrediction("", 0, 0, float("-inf"), float("-inf")))
            continue
        begin = feature.passage_offsets[int(begins[row]) - int(first[row])][0]
        stop = feature.passage_offsets[int(ends[row]) - int(first[row])][1]
        text = examples[feature.example].context[begin:stop]
        score = float(scores[row])
        predictions.append(SpanPrediction(text, begin, stop, score, score - float(null[row])))
    return predictions
