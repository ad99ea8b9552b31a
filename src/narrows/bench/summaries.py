"""Quality rows of summarisers: ROUGE by how much of the documents is read, of checkpoints named on the command line."""

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from narrows.bench.rows import Context, Group, Measurement, Row
from narrows.data import SummaryExample, evenly_spread, read_summaries
from narrows.evaluation.rouge import Rouge, RougeSummary, rouge_summary
from narrows.evaluation.summaries import evaluate_summaries, score_texts
from narrows.hf.seq2seq import input_encoder, load_seq2seq
from narrows.hf.trained_inputs import TrainedInputs

__all__ = ["summary_groups"]

_SOURCES = (
    "data/long_inputs.py",
    "data/truncation.py",
    "data/summary_layouts/*.py",
    "evaluation/rouge.py",
    "evaluation/summaries.py",
    "hf/seq2seq.py",
    "mulla/*.py",
)
_LENGTHS = (2048, 4096, 8192, 16_384)
_RECORDS = 60
# As long as the references are.
_LEAD_WORDS = 200


class _Set(NamedTuple):
    layout: str
    path: str
    title: str


_SETS = {
    "squality": _Set("squality", "longdoc/squality_v1-3/test.jsonl.gz", "SQuALITY test"),
    "qmsum": _Set("qmsum", "longdoc/qmsum/ALL_val.jsonl.gz", "QMSum validation"),
}


def summary_groups(names: Sequence[str]) -> list[Group]:
    """The rows of the named checkpoints on each data set, and of the documents' beginnings beside them."""
    written = [_group(name, key) for name in names for key in _SETS]
    return [*written, *map(_lead, _SETS)] if names else []


def _group(name: str, key: str) -> Group:
    rows = tuple(
        Row(name=f"rouge-{name}-{key}-{length // 1024}k", unit="ROUGE", peer="mean of 1, 2, L, Lsum", sources=_SOURCES)
        for length in _LENGTHS
    )
    return Group(
        rows=rows,
        measure=partial(_measure, name=name, key=key),
        size=f"{_SETS[key].title}, {_RECORDS} records, the first tokens of each, as the model writes by default",
        missing=partial(_missing, key=key),
    )


def _lead(key: str) -> Group:
    row = Row(name=f"rouge-lead-{key}", unit="ROUGE", peer="mean of 1, 2, L, Lsum", sources=_SOURCES)

    def measure(context: Context) -> dict[str, Measurement]:
        examples = _examples(context, key)
        texts = {one.id: " ".join(one.documents[0].split()[:_LEAD_WORDS]) for one in examples}
        scores = score_texts(texts, examples, rouge=Rouge())
        return {row.name: _measurement(rouge_summary(scores.values()))}

    size = f"{_SETS[key].title}, {_RECORDS} records, the first {_LEAD_WORDS} words of each document"
    return Group(rows=(row,), measure=measure, size=size, missing=partial(_missing, key=key))


def _missing(context: Context, *, key: str) -> str | None:
    if context.data is None:
        return "needs data: pass --data DIR or set NARROWS_DATA"
    return None if (context.data / _SETS[key].path).is_file() else f"needs data: no {_SETS[key].path} in {context.data}"


def _measure(context: Context, *, name: str, key: str) -> dict[str, Measurement]:
    model, tokenizer = load_seq2seq(context.models[name])
    examples, found = _examples(context, key), {}
    for length in _LENGTHS:
        context.say(f"{name} reads {length:,} tokens of {_SETS[key].title}")
        with tempfile.TemporaryDirectory() as folder:
            found[f"rouge-{name}-{key}-{length // 1024}k"] = _score(
                model, tokenizer, examples, length=length, predictions=Path(folder) / "written.jsonl"
            )
    return found


def _score(
    model: Any, tokenizer: Any, examples: Sequence[SummaryExample], *, length: int, predictions: Path
) -> Measurement:
    inputs = TrainedInputs(length, {"name": "head"})
    generation = model.generation_config
    evaluation = evaluate_summaries(
        model,
        tokenizer,
        examples,
        encoder=input_encoder(tokenizer, truncation=inputs.make_truncation(), max_tokens=length),
        rouge=Rouge(),
        predictions=predictions,
        reading={"max_input_tokens": length},
        options={"num_beams": generation.num_beams or 1, "max_new_tokens": generation.max_new_tokens},
        batch_tokens=max(length, 16_384),
    )
    return _measurement(evaluation.rouge, tokens=evaluation.tokens, not_read=evaluation.dropped)


def _measurement(rouge: RougeSummary, **detail: Any) -> Measurement:
    scores = {name: getattr(rouge, name).mean for name in ("rouge1", "rouge2", "rougeL", "rougeLsum")}
    return Measurement(
        value=rouge.average.mean, spread=(rouge.average.low, rouge.average.high), detail={**scores, **detail}
    )


def _examples(context: Context, key: str) -> list[SummaryExample]:
    assert context.data is not None
    return list(evenly_spread(list(read_summaries(context.data / _SETS[key].path, layout=_SETS[key].layout)), _RECORDS))
